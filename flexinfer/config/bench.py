"""Settings of ``flexinfer-bench``; the manager passes them as environment of the Job."""

from pathlib import Path
from typing import Literal

from flexinfer.config.common import BusSettings, Duration, setting


class BenchSettings(BusSettings):
    """Measure one engine instance with real requests and publish a result."""

    url: str = setting("", "base URL of the proxy or server, without /v1")
    model: str = setting("", "model name to ask for; the hidden alias when run by the manager")
    key: str = setting("", "benchmark key of the result", max_length=50)
    workload: str = setting("", "workload id of the result", max_length=50)
    image: str = setting("", "engine image recorded in the result")
    driver_major: str = setting("", "driver major recorded in the result")
    model_namespace: str = setting("default", "namespace of the measured model object")
    model_name: str = setting("", "name of the measured model object")
    source: str = setting("", "model source recorded in the result")
    backend: str = setting("", "engine recorded in the result")
    device_class: str = setting("", "device class recorded in the result")
    node_name: str = setting("", "node recorded in the result", env="NODE_NAME")
    api: Literal["chat", "completions"] = setting("completions", "which API is measured")
    warmup_iterations: int = setting(2, "requests sent first and not counted", ge=0)
    iterations: int = setting(5, "least number of measured requests at concurrency 1", ge=1)
    min_duration: Duration = setting(30.0, "least time spent measuring at concurrency 1")
    batch_size: int = setting(128, "completion tokens per request", ge=1)
    concurrency: str = setting("1,8", "streams at once, comma separated; 1 gives the headline")
    prompt_tokens: int = setting(64, "length of the prompt in tokens", ge=1)
    ready_timeout: Duration = setting(300.0, "longest wait until the instance answers")
    request_timeout: Duration = setting(300.0, "longest single request")
    termination_log: Path = setting(Path("/dev/termination-log"), "where the result is repeated for the manager")
