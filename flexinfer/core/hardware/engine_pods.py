"""Which pods of a node are engines, and where they answer."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import POD_BACKEND, POD_MODEL
from flexinfer.core.hardware.json_text import mapping
from flexinfer.core.hardware.readings import count

_PORTS = {"vllm": 8000, "sglang": 30000, "tgi": 80, "llamacpp": 8080, "ollama": 11434, "tensorrt-llm": 8000}
# Engines that people start by themselves, by a part of the image's name.
_IMAGES = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("text-generation-inference", "tgi"),
    ("llama.cpp", "llamacpp"),
    ("ollama", "ollama"),
    ("tritonserver", "tensorrt-llm"),
    ("tensorrt-llm", "tensorrt-llm"),
)


@dataclass(frozen=True, slots=True)
class EnginePod:
    """A running engine on this node. ``url`` has no path."""

    uid: str
    namespace: str
    name: str
    url: str
    backend: str
    model: str | None


def engine_of(pod: Object) -> EnginePod | None:
    """The engine in a pod, or None if it has none, does not run, or has no address yet."""
    meta, spec, status = (mapping(pod.get(part)) for part in ("metadata", "spec", "status"))
    address = status.get("podIP")
    if status.get("phase") != "Running" or not isinstance(address, str) or meta.get("deletionTimestamp"):
        return None
    notes = mapping(meta.get("annotations"))
    containers = [mapping(entry) for entry in _list(spec.get("containers"))]
    containers += [mapping(entry) for entry in _list(spec.get("initContainers")) if _is_sidecar(entry)]
    backend = str(notes.get(POD_BACKEND) or "").strip().lower()
    engine = next((each for each in containers if backend or _by_image(each)), None)
    if engine is None:
        return None
    backend = backend or _by_image(engine)
    port = next((found for each in containers for found in _ports(each)), None) or _PORTS.get(backend)
    if port is None:
        return None
    host = f"[{address}]" if ":" in address else address
    return EnginePod(
        uid=str(meta.get("uid") or ""),
        namespace=str(meta.get("namespace") or "default"),
        name=str(meta.get("name") or ""),
        url=f"http://{host}:{port}",
        backend=backend,
        model=str(notes.get(POD_MODEL) or "") or None,
    )


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _is_sidecar(entry: Any) -> bool:
    return mapping(entry).get("restartPolicy") == "Always"


def _by_image(container: dict[str, Any]) -> str:
    image = str(container.get("image") or "").lower()
    return next((backend for part, backend in _IMAGES if part in image), "")


def _ports(container: dict[str, Any]) -> list[int]:
    """Container ports, the one named ``http`` first."""
    found = [mapping(entry) for entry in _list(container.get("ports"))]
    found.sort(key=lambda entry: entry.get("name") != "http")
    return [port for entry in found if (port := count(entry.get("containerPort"))) and port < 65536]
