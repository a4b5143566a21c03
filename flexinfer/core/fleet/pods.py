"""What a pod asks of a node's accelerators, read from its resources and annotations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flexinfer.contracts.extender import ContainerSpec, PodObject, Quantity
from flexinfer.contracts.labels import GPU_RESOURCE_VENDOR, POD_ARCH, POD_VENDOR, POD_VRAM_ESTIMATE

MIB_PER_MB = 1e6 / (1 << 20)
MAX_DEVICES = 1_000_000
_MIG = "nvidia.com/mig-"
_ENDED = frozenset({"Succeeded", "Failed"})
_SUFFIX = {"": 1.0, "m": 0.001, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([mkKMG]?)")


@dataclass(frozen=True, slots=True)
class Ask:
    """``devices`` accelerators of ``vendor`` (empty: any), ``whole`` of them through the device plugin.

    ``devices`` 0 is a demand on the processor. ``memory_mib`` is for the whole pod, 0 when not told. ``notes`` say
    what was unreadable and therefore taken as absent.
    """

    vendor: str
    devices: int
    whole: int
    memory_mib: float
    partition: str = ""
    notes: tuple[str, ...] = ()


def count_of(value: Quantity) -> int:
    """A whole number of devices from a Kubernetes quantity; 0 for anything unreadable.

    >>> count_of("2"), count_of(1), count_of("1000m"), count_of("many")
    (2, 1, 1, 0)
    """
    if isinstance(value, int) and 0 <= value <= MAX_DEVICES:
        return value
    if value == "1":
        return 1
    found = _QUANTITY.fullmatch(str(value))
    if not found:
        return 0
    return min(int(float(found.group(1)) * _SUFFIX[found.group(2)]), MAX_DEVICES)


def vendor_of(resource: str) -> str | None:
    """Vendor of an accelerator resource, None for all other resources."""
    if resource.startswith(_MIG):
        return "NVIDIA"
    return GPU_RESOURCE_VENDOR.get(resource)


def _wanted(container: ContainerSpec) -> dict[str, int]:
    lists = container.resources
    if lists is None:
        return {}
    merged: dict[str, Quantity] = {**(lists.limits or {}), **(lists.requests or {})}
    return {name: count_of(value) for name, value in merged.items() if vendor_of(name)}


def _add(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _most(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def accelerators(containers: Sequence[ContainerSpec], init: Sequence[ContainerSpec]) -> dict[str, int]:
    """Accelerator units by resource, as Kubernetes adds them up.

    Containers and sidecars run together and are summed; other init containers run one at a time, beside the
    sidecars started before them.
    """
    if len(containers) == 1 and not init:
        return {name: units for name, units in _wanted(containers[0]).items() if units > 0}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init:
        wanted = _wanted(container)
        if container.restart_policy == "Always":
            sidecars = _add(sidecars, wanted)
        else:
            peak = _most(peak, _add(sidecars, wanted))
    running = sidecars
    for container in containers:
        running = _add(running, _wanted(container))
    return {name: units for name, units in _most(peak, running).items() if units > 0}


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text.strip()) else None


def ask_of(pod: PodObject) -> Ask:
    """The accelerator demand of a pod. Unreadable annotations count as absent, with a note."""
    notes: list[str] = []
    annotations = pod.metadata.annotations or {}
    spec = pod.spec
    units = accelerators(spec.containers or (), spec.init_containers or ()) if spec else {}
    memory = 0.0
    if POD_VRAM_ESTIMATE in annotations:
        megabytes = _number(annotations[POD_VRAM_ESTIMATE])
        if megabytes is None:
            notes.append(f"{POD_VRAM_ESTIMATE} is no number of MB and was ignored")
        memory = (megabytes or 0.0) * MIB_PER_MB
    vendor = annotations.get(POD_VENDOR, "").strip().upper()
    if vendor not in {"", "AUTO", "NVIDIA", "AMD", "INTEL", "CPU"}:
        notes.append(f"{POD_VENDOR} names no vendor known here and was ignored")
        vendor = ""
    vendor = "" if vendor == "AUTO" else vendor
    if units:
        resource = min(units)
        if len(units) > 1:
            notes.append(f"several accelerator resources are requested; {resource} decides")
        partition = resource.removeprefix(_MIG) if resource.startswith(_MIG) else ""
        return Ask(vendor_of(resource) or "", units[resource], units[resource], memory, partition, tuple(notes))
    shared = vendor in {"NVIDIA", "AMD", "INTEL"} or (vendor == "" and (memory > 0 or POD_ARCH in annotations))
    if shared:
        return Ask(vendor, 1, 0, memory, notes=tuple(notes))
    return Ask("CPU", 0, 0, memory, notes=tuple(notes))


def ended(pod: PodObject) -> bool:
    """The pod has run to its end and holds nothing any more."""
    return pod.status is not None and pod.status.phase in _ENDED
