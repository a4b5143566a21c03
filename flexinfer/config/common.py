"""Settings every executable has, and how argv and environment become a settings object.

A field is a flag (``--label-prefix``), an environment variable (``FLEXINFER_LABEL_PREFIX`` unless the field names
a customary one) and a default, in that order of precedence.
"""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from flexinfer import __version__

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: object) -> object:
    """``30s``, ``1m30s``, ``200ms`` or a number of seconds; anything else raises ValueError."""
    if not isinstance(value, str) or re.fullmatch(r"[0-9.]+", value):
        return value
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ValueError(f"{value!r} is not a duration; write 30s, 1m30s, 200ms or seconds")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


Duration = Annotated[float, BeforeValidator(parse_duration), Field(ge=0)]
Port = Annotated[int, Field(ge=0, le=65535)]


def setting(default: Any, text: str, *, env: str = "", positional: bool = False, **limits: Any) -> Any:
    """A settings field: default, help text, customary environment variable, pydantic limits.

    ``positional`` makes it an argument without a flag, optional when it has a default.
    """
    return Field(default, description=text, json_schema_extra={"env": env, "positional": positional}, **limits)


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "least level that is logged")
    log_format: Literal["auto", "json", "text"] = setting(
        "auto", "auto: readable lines on a terminal, JSON lines elsewhere"
    )


class BusSettings(Settings):
    """For executables that talk to the bus."""

    nats_url: str = setting("", "bus address, for example nats://nats:4222", env="NATS_URL")
    nats_credentials: Path | None = setting(None, "file with the NATS credentials of this component")
    nats_ca: Path | None = setting(None, "PEM file of the CA that signed the bus certificate")
    nats_ca_data: str = setting("", "the same as text, where no file can be mounted")
    cluster: str = setting("default", "cluster name in subjects and sources", min_length=1, max_length=63)

    @property
    def bus_ca(self) -> Path | str | None:
        """That CA as a PEM file or as its text."""
        return self.nats_ca or self.nats_ca_data or None


class RecordSettings(Settings):
    """For executables that write a tape: all of them."""

    record: Path | None = setting(None, "directory for a tape of every fact this process is told, and of what it says")
    record_max_size: int = setting(64, "MiB after which the tape goes on in a next part; 0: never", ge=0)
    record_max_age: Duration = setting(0.0, "time after which the tape goes on in a next part; 0: never")
    record_keep: int = setting(0, "finished parts of this process that stay, the oldest go first; 0: all", ge=0)
    record_compress: bool = setting(True, "pack finished parts with gzip")


class KubeSettings(BusSettings):
    """For executables that also talk to a Kubernetes API."""

    kubeconfig: Path | None = setting(None, "kubeconfig file; in a pod its ServiceAccount is used", env="KUBECONFIG")
    namespace: str = setting("flexinfer-system", "namespace of this release", env="POD_NAMESPACE")


S = TypeVar("S", bound=Settings)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def env_name(name: str, info: FieldInfo) -> str:
    """The environment variable of a field."""
    extra = info.json_schema_extra
    custom = extra.get("env") if isinstance(extra, dict) else ""
    return str(custom) if custom else f"FLEXINFER_{name.upper()}"


def _positional(info: FieldInfo) -> bool:
    extra = info.json_schema_extra
    return bool(extra.get("positional")) if isinstance(extra, dict) else False


def _metavar(info: FieldInfo) -> str:
    choices = [arg for arg in get_args(info.annotation) if isinstance(arg, str)]
    if choices:
        return "{" + ",".join(choices) + "}"
    text = str(info.annotation)
    if any(isinstance(part, BeforeValidator) for part in info.metadata):
        return "DURATION"
    return "PATH" if "Path" in text else "N" if "int" in text or "float" in text else "TEXT"


def parser(cls: type[Settings], program: str) -> argparse.ArgumentParser:
    """The command line of a settings class; a boolean flag may stand alone or take ``true`` or ``false``."""
    found = argparse.ArgumentParser(
        prog=program, description=cls.__doc__, allow_abbrev=False, formatter_class=argparse.HelpFormatter
    )
    found.add_argument("--version", action="version", version=f"{program} {__version__}")
    for name, info in cls.model_fields.items():
        default = "" if info.default in (None, "") else f" (default {info.default})"
        text = f"{info.description}{default} [{env_name(name, info)}]".replace("%", "%%")
        options: dict[str, Any] = {"dest": name, "default": None, "help": text, "metavar": _metavar(info)}
        if info.annotation is bool:
            options |= {"nargs": "?", "const": "true", "metavar": "true|false"}
        if _positional(info):
            options |= {"nargs": "?", "metavar": name.upper()}
            del options["dest"]
            found.add_argument(name, **options)
        else:
            short = ["-o"] if name == "output" else []
            found.add_argument(*short, _flag(name), **options)
    return found


def parse(cls: type[S], program: str, argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> S:
    """Settings from argv and environment.

    ``--help`` and ``--version`` print and exit 0. A wrong value exits 2 with one sentence per problem on stderr.
    """
    environ = os.environ if environ is None else environ
    command = parser(cls, program)
    given = {k: v for k, v in vars(command.parse_args(argv)).items() if v is not None}
    values: dict[str, Any] = {}
    for name, info in cls.model_fields.items():
        from_env = environ.get(env_name(name, info), "")
        if name in given:
            values[name] = given[name]
        elif from_env:
            values[name] = from_env
    try:
        return cls(**values)
    except ValidationError as err:
        lines = []
        for problem in err.errors():
            name = str(problem["loc"][0]) if problem["loc"] else ""
            where = _flag(name) if name in given or not name else env_name(name, cls.model_fields[name])
            lines.append(f"{program}: {where}: {problem['msg'].removeprefix('Value error, ')}")
        command.exit(2, "\n".join([*lines, f"See {program} --help.", ""]))
