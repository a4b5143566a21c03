"""Building blocks of the custom resources: wire names, durations, quantities, free-form Kubernetes parts."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.alias_generators import to_camel

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
_QUANTITY = r"^([0-9]+(\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"

OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Wire(BaseModel):
    """Base of every part: camelCase on the wire; fields we do not know are kept aside, so that they can be named."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="allow", use_attribute_docstrings=True
    )


def rule(expression: str, message: str) -> dict[str, JsonValue]:
    """One CEL validation with the sentence a user reads."""
    return {"rule": expression, "message": message}


def rules(*found: dict[str, JsonValue]) -> ConfigDict:
    """``model_config`` of a part with CEL validations."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": list(found)})


def seconds(value: object) -> object:
    """``90s``, ``1m30s``, ``200ms`` or a number of seconds as seconds. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str):
        return value
    if not re.match(_DURATION, value):
        raise ValueError(f"{value!r} is not a duration; write 30s, 5m or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(ms|s|m|h)", value))


Duration = Annotated[
    float,
    BeforeValidator(seconds),
    Field(ge=0),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _DURATION}),
]
"""Seconds in Python; ``30s`` or an integer number of seconds on the wire."""


def duration(default: str, **limits: Any) -> Any:
    """A duration field whose default is written as users write it."""
    return Field(seconds(default), json_schema_extra={"default": default}, **limits)


Quantity = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) and not isinstance(value, bool) else value),
    Field(pattern=_QUANTITY),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _QUANTITY}),
]
"""A Kubernetes quantity such as ``500m`` or ``4Gi``."""

Free = Annotated[dict[str, Any], WithJsonSchema(OPEN)]
"""An object that is passed on or kept as it is."""

_SUFFIX = {
    "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def quantity_value(text: str) -> float:
    """The number a quantity stands for (bytes, cores, pieces). Raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]{0,2})", text)
    if not found or found.group(2) not in _SUFFIX:
        raise ValueError(f"{text!r} is not a quantity; write 500m, 2 or 4Gi")
    return float(found.group(1)) * _SUFFIX[found.group(2)]
