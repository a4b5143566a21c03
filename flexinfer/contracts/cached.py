"""A model in the cache that the pods of a node share."""

from flexinfer.contracts.payload import Count, Name, Payload


class CachedModel(Payload, frozen=True, kw_only=True):
    """``entry`` names it, as pods do in their annotation; ``bytes`` is its size on disk."""

    entry: Name
    source: str
    bytes: Count
