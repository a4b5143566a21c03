"""What every payload is made of."""

from typing import Annotated

from msgspec import Meta, Struct

Name = Annotated[str, Meta(min_length=1, max_length=253)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]


class Payload(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """Base of every payload and of the records inside one."""
