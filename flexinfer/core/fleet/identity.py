"""Identity of a benchmark result: what must be equal for one measurement to stand for another.

Two levels. The *workload* is what is served, whatever the hardware: it goes on pods as
``flexinfer.ai/benchmark-key``, so that one pod can be compared on many device classes. The *result key* adds what
the measurement was made on: image reference, driver major and device class. Everything hashed is known before
the run; digests seen during it are stored in the result instead.
"""

import hashlib
import re
from collections.abc import Sequence

from flexinfer.contracts.events import Device
from flexinfer.core.hardware.device_class import slug

MAX_KEY = 50
_HEX = 12


def _key(name: str, parts: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_HEX]
    return f"{slug(name, MAX_KEY - _HEX - 1) or 'model'}-{digest}"


def workload_id(source: str, backend: str, args: Sequence[str], quantization: str | None) -> str:
    """``<slug>-<12 hex>`` of the model source, engine, flags and quantisation.

    >>> workload_id("smollm2.gguf", "llamacpp", [], None).startswith("smollm2-gguf-")
    True
    """
    name = re.split(r"[/:]", source.rstrip("/"))[-1] or source
    return _key(name, ["workload", source, backend, quantization or "", *args])


def result_key(workload: str, image: str, driver_major: str, device_class: str) -> str:
    """The benchmark key: ``<slug>-<12 hex>``, at most 50 of ``[a-z0-9-]``."""
    return _key(workload[: -_HEX - 1], ["result", workload, image, driver_major, device_class])


def driver_major(device: Device | None) -> str:
    """``575`` of ``575.57.08``; empty for CPUs and unknown drivers."""
    found = re.match(r"\d+", device.driver or "") if device else None
    return found.group() if found else ""
