"""What the rest of the lifecycle knows of an engine."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flexinfer.contracts.events import Device
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.description import Adapter, Description
from flexinfer.core.lifecycle.engines.architectures import Architectures
from flexinfer.core.lifecycle.fetching.entries import Form

CPU = "CPU"
# Formats vLLM and SGLang are told by the same name.
WEIGHT_FORMS = {"awq": "awq", "gptq": "gptq", "fp8": "fp8"}


@dataclass(frozen=True, slots=True)
class Launch:
    """One replica to start.

    ``vendor`` is NVIDIA, AMD, INTEL or CPU; ``model_path`` where the weights lie in the container (empty: the engine
    downloads them below ``cache_path``); ``host`` the address to listen on.
    """

    description: Description
    vendor: str
    count: int
    host: str
    port: int
    model_path: str
    cache_path: str
    fetched: bool = False  # an init step has put the weights where model_path says
    adapter_paths: Mapping[str, str] = field(default_factory=dict)  # of adapters that were fetched, by name

    def adapter_path(self, adapter: Adapter) -> str:
        """What the engine is given for a LoRA adapter: a path, or a repository it downloads itself."""
        return self.adapter_paths.get(adapter.name) or adapter.source.location


@dataclass(frozen=True, slots=True)
class Program:
    """Command line and environment of a container; an empty command keeps the image's own entry point."""

    args: tuple[str, ...]
    command: tuple[str, ...] = ()
    env: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One engine option by its name in ``config``. ``switch``: the flag stands as it is when true;
    ``off`` when false."""

    flag: str
    switch: bool = False
    off: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One backend.

    ``images`` by vendor (a missing vendor needs ``spec.image``), ``schemes`` of sources it can load, ``health`` the
    path that answers 200 once requests are served (empty: only the port is probed), ``context_option`` the option
    that holds the context length, ``parallel_option`` the one that multiplies it, ``startup_seconds`` the least a
    start may take, ``adapter_schemes`` where its LoRA adapters may come from (none: it takes none), ``adapter_body``
    the JSON fields of a request that pick one of them (None: a request cannot), ``architectures`` by vendor what its
    own images run on, ``own_flags`` those that routing and probes rely on.
    """

    name: str
    port: int
    images: Mapping[str, str]
    schemes: frozenset[str]
    launch: Callable[[Launch], Program]
    served_model: Callable[[Description], str]
    health: str = "/health"
    prepare: Callable[[Launch], Program | None] = lambda _launch: None
    options: Mapping[str, Option] = field(default_factory=dict)
    context_option: str = ""
    parallel_option: str = ""
    shared_memory: bool = False  # wants a large /dev/shm, for several accelerators
    takes_args: bool = True
    form: Form = "folder"  # in which form it loads fetched weights
    startup_seconds: float = 600.0
    adapter_schemes: frozenset[str] = frozenset()
    adapter_body: Callable[[Description, Adapter], Mapping[str, Any]] | None = None
    architectures: Mapping[str, Architectures] = field(default_factory=dict)
    own_flags: tuple[str, ...] = ("--host", "--port")

    @property
    def runs_on_cpu(self) -> bool:
        """Whether it can do without accelerators in the image it comes with."""
        return CPU in self.images

    def refusal(self, device: Device) -> str:
        """Why the engine's own image cannot run on a device; empty if it can, or nobody knows."""
        known = self.architectures.get(device.vendor)
        if known is None or not device.arch or known.includes(device.arch):
            return ""
        return f"{self.name} does not run on {device.arch} (it needs {known.text})"


def env(name: str, value: str) -> Object:
    """One environment variable."""
    return {"name": name, "value": value}


def flags(engine_options: Mapping[str, Option], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Options as command line, in the order of the table, so that equal specs give equal pods.

    >>> flags({"contextSize": Option("-c"), "jinja": Option("--jinja", switch=True)}, {"jinja": True, "contextSize": 8})
    ('-c', '8', '--jinja')
    """
    out: list[str] = []
    for name, option in engine_options.items():
        value = values.get(name)
        if value is None or value == "":
            continue
        if option.switch:
            chosen = option.flag if truthy(value) else option.off
            out += chosen.split()
        else:
            out += [option.flag, text(value)]
    return tuple(out)


def defaults(launch: Launch, shards: str, quantize: str = "", forms: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The user's options, and what follows from the placement: one shard per accelerator under the option
    ``shards``, and under ``quantize`` the engine's name for the format of the weights (``forms``)."""
    values = dict(launch.description.options)
    if launch.count > 1:
        values.setdefault(shards, launch.count)
    form = (forms or {}).get(launch.description.demand.quantization or "")
    if form:
        values.setdefault(quantize, form)
    return values


def revision(launch: Launch) -> tuple[str, ...]:
    """The flag of a pinned revision, for engines that fetch the weights themselves."""
    pinned = launch.description.source.revision
    return ("--revision", pinned) if pinned and not launch.fetched else ()


def command_line(ours: tuple[str, ...], extra: tuple[str, ...]) -> tuple[str, ...]:
    """Our arguments and the user's, which win: a flag named there is left out here, because some engines refuse to
    see a flag twice.

    >>> command_line(("m", "--port", "1", "--metrics"), ("--port=2",))
    ('m', '--metrics', '--port=2')
    """
    named = flag_names(extra)
    kept: list[str] = []
    keep = True
    for part in ours:
        if part.startswith("--"):
            keep = _plain_name(part) not in named
        if keep:
            kept.append(part)
    return (*kept, *extra)


def flag_names(args: tuple[str, ...]) -> frozenset[str]:
    """Names of the flags in a command line, without values and without a leading ``no-``."""
    return frozenset(_plain_name(arg) for arg in args if re.match("--?[a-zA-Z]", arg))


def _plain_name(arg: str) -> str:
    name = arg.partition("=")[0]
    return f"--{name[5:]}" if name.startswith("--no-") else name


def truthy(value: object) -> bool:
    """A switch as people write it in YAML or as a string."""
    return str(value).lower() in {"true", "1", "yes", "on"}


def text(value: object) -> str:
    """A value on a command line; whole floats lose their fraction, as YAML and JSON do not tell 8 from 8.0."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def object_name(description: Description) -> str:
    """Engines that take any served name get the object's."""
    return description.key.name
