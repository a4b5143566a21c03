"""Settings of ``flexinfer bench run|list|show|compare``."""

from pathlib import Path
from typing import Literal

from flexinfer.config.bench import MeasureSettings, Seconds
from flexinfer.config.common import setting
from flexinfer.config.people import ClientSettings


class BenchRunSettings(MeasureSettings):
    """Measure any OpenAI-compatible server; nothing is published."""

    ready_timeout: Seconds = setting(10.0, "longest wait until the server answers")
    backend: str = setting("", "engine, for the fields it understands: llamacpp, vllm, sglang, ollama, tgi")
    device_class: str = setting("", "name of the hardware, as it shall stand in the result")
    output: Literal["text", "json", "yaml", "csv"] = setting("text", "format of the result on stdout")
    svg: Path | None = setting(None, "write the curve there as SVG")
    save: Path | None = setting(None, "append the result to this file, for --tape of show and compare")


class ResultsSettings(ClientSettings):
    """Where results are read from: the bus, or a file of events."""

    tape: Path | None = setting(
        None, "read a recorded tape, or a file of events, one JSON document per line, instead of the bus"
    )


class BenchListSettings(ResultsSettings):
    """The newest result of each key."""

    output: Literal["text", "json", "yaml", "csv"] = setting("text", "format")


class BenchShowSettings(ResultsSettings):
    """One result with its curve and its history."""

    key: str = setting("", "key of the result or its beginning; key@time for an older run", positional=True)
    output: Literal["text", "json", "yaml", "csv"] = setting("text", "format")
    svg: Path | None = setting(None, "write the curve there as SVG")


class BenchCompareSettings(ResultsSettings):
    """Two results, quantity by quantity."""

    old: str = setting("", "key of the first result or its beginning; key@time for an older run", positional=True)
    new: str = setting("", "key of the second result; empty: the newest of the first one's history", positional=True)
    output: Literal["text", "json", "yaml", "csv"] = setting("text", "format")
    svg: Path | None = setting(None, "write both curves there as SVG")
