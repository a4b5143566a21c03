"""Settings of ``flexinfer-bench``; the manager passes them as environment of the Job.

Numbers out of range are refused by the run itself, not here, so that a Job with a wrong setting ends with a
``failed`` event and a termination message like any other failure.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from flexinfer.config.common import BusSettings, RecordSettings, Settings, parse_duration, setting
from flexinfer.contracts import events
from flexinfer.core.benchmark import schedule
from flexinfer.core.benchmark.summary import Subject
from flexinfer.core.fleet.identity import MAX_KEY, result_key, workload_id

Seconds = Annotated[float, BeforeValidator(parse_duration)]


class MeasureSettings(Settings):
    """What is asked, how often, and how long we wait; shared by the Job and by ``flexinfer bench run``."""

    url: str = setting("", "base URL of the proxy or server, without /v1")
    model: str = setting("", "model name to ask for; the hidden alias when run by the manager")
    api: Literal["chat", "completions"] = setting("completions", "which API is measured")
    api_key: str = setting("", "API key of the proxy or server")
    ca: Path | None = setting(None, "PEM file of the CA that signed the server's certificate")
    warmup_iterations: int = setting(2, "requests sent first and not counted")
    iterations: int = setting(5, "least number of measured requests at concurrency 1")
    min_duration: Seconds = setting(30.0, "least time spent measuring at concurrency 1")
    batch_size: int = setting(128, "completion tokens per request")
    concurrency: str = setting("1,8", "streams at once, comma separated; 1 gives the headline")
    prompt_tokens: str = setting("64", "lengths of the prompt in tokens, comma separated; the first gives the headline")
    seed: int = setting(0, "seed of the prompts; 0: another one each time, so that no cache has seen them")
    ready_timeout: Seconds = setting(300.0, "longest wait until the instance answers")
    request_timeout: Seconds = setting(300.0, "longest single request")
    time_limit: Seconds = setting(480.0, "longest measurement; what is left of the curve then is left out")
    cost_per_hour: float | None = setting(None, "price of the node per hour, for the cost per million tokens")

    def plan(self) -> events.BenchSettings:
        """What the run does, as it goes into the result. Raises ValueError with every problem named."""
        wrong = self._problems()
        lists: dict[str, tuple[int, ...]] = {}
        for name in ("concurrency", "prompt_tokens"):
            try:
                lists[name] = schedule.numbers(getattr(self, name))
            except ValueError as err:
                wrong.append(f"{name.replace('_', ' ')}: {err}")
        if len(lists) == 2:
            plan = events.BenchSettings(
                warmup_iterations=self.warmup_iterations,
                iterations=self.iterations,
                min_duration_seconds=self.min_duration,
                batch_size=self.batch_size,
                concurrency=lists["concurrency"],
                prompt_tokens=lists["prompt_tokens"],
            )
            wrong += schedule.problems(plan)
            if not wrong:
                return plan
        raise ValueError("; ".join(wrong))

    def _problems(self) -> list[str]:
        wrong = [f"{name} must not be empty" for name in ("url", "model") if not getattr(self, name)]
        if self.url and not self.url.startswith(("http://", "https://")):
            wrong.append(f"url {self.url!r} must begin with http:// or https://")
        wrong += [
            f"{name.replace('_', ' ')} must be above 0"
            for name in ("ready_timeout", "request_timeout", "time_limit")
            if getattr(self, name) <= 0
        ]
        if self.cost_per_hour is not None and self.cost_per_hour < 0:
            wrong.append("cost per hour must not be negative")
        return wrong


class BenchSettings(MeasureSettings, RecordSettings, BusSettings):
    """Measure one engine instance with real requests and publish a result."""

    key: str = setting("", "benchmark key of the result")
    workload: str = setting("", "workload id of the result")
    image: str = setting("", "engine image recorded in the result")
    image_digest: str = setting("", "digest of that image, if known beforehand")
    driver_major: str = setting("", "driver major recorded in the result")
    model_namespace: str = setting("default", "namespace of the measured model object")
    model_name: str = setting("", "name of the measured model object")
    source: str = setting("", "model source recorded in the result")
    backend: str = setting("", "engine recorded in the result")
    device_class: str = setting("", "device class recorded in the result")
    node_name: str = setting("", "node recorded in the result", env="NODE_NAME")
    note: str = setting("", "remark recorded in the result, such as why a serving instance was measured")
    termination_log: Path = setting(Path("/dev/termination-log"), "where the result is repeated for the manager")

    def _problems(self) -> list[str]:
        wrong = super()._problems()
        if len(self.key) > MAX_KEY:
            wrong.append(f"key must be at most {MAX_KEY} characters")
        return wrong

    def subject(self) -> Subject:
        """What is measured. Identity fields that were not given are made from those that were."""
        source = self.source or self.model or "unset"
        backend = self.backend or "unknown"
        device_class = self.device_class or "unknown"
        workload = self.workload or workload_id(source, backend, (), None)
        return Subject(
            key=self.key or result_key(workload, self.image, self.driver_major, device_class),
            namespace=self.model_namespace or "default",
            model=self.model_name or self.model or "unset",
            workload=workload,
            source=source,
            backend=backend,
            device_class=device_class,
            node=self.node_name or None,
            image=self.image,
            image_digest=self.image_digest or None,
            driver_major=self.driver_major,
        )
