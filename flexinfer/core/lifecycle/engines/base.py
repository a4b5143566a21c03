"""What the rest of the lifecycle knows of an engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.description import Description

CPU = "CPU"


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


@dataclass(frozen=True, slots=True)
class Program:
    """Command line and environment of a container; an empty command keeps the image's own entry point."""

    args: tuple[str, ...]
    command: tuple[str, ...] = ()
    env: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One engine option by its name in ``config``. ``switch``: the flag stands alone when true; ``off`` when false."""

    flag: str
    switch: bool = False
    off: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One backend.

    ``images`` by vendor (a missing vendor needs ``spec.image``), ``schemes`` of sources it can load, ``health`` the
    path that answers 200 once requests are served (empty: only the port is probed), ``context_option`` the option
    that holds the context length, ``parallel_option`` the one that multiplies it.
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

    @property
    def runs_on_cpu(self) -> bool:
        """Whether it can do without accelerators in the image it comes with."""
        return CPU in self.images


def env(name: str, value: str) -> Object:
    """One environment variable."""
    return {"name": name, "value": value}


def flags(engine_options: Mapping[str, Option], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Options as command line, in the order of the table, so that equal specs give equal pods.

    >>> flags({"contextSize": Option("-c"), "mlock": Option("--mlock", switch=True)}, {"mlock": True, "contextSize": 8})
    ('-c', '8', '--mlock')
    """
    out: list[str] = []
    for name, option in engine_options.items():
        value = values.get(name)
        if value is None or value == "":
            continue
        if option.switch:
            chosen = option.flag if truthy(value) else option.off
            out += [chosen] if chosen else []
        else:
            out += [option.flag, text(value)]
    return tuple(out)


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
