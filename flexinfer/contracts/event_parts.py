"""Parts of events that are no events themselves."""

from typing import Any

from msgspec import UNSET, UnsetType

from flexinfer.contracts.payload import Amount, Count, Name, Payload


class GgufFacts(Payload, frozen=True, kw_only=True):
    """What the header of a GGUF file says of a model. ``file_bytes``: all its parts; ``kv_heads``: the most of any
    layer; ``kv_bytes_per_token``: of the key-value cache in 16 bits; ``context_tokens``: what it was trained for."""

    architecture: str
    parameters: Count
    quantization: str | None = None
    file_bytes: Count
    layers: Count
    kv_heads: Count
    kv_bytes_per_token: Count
    context_tokens: Count | None = None


class CachedModel(Payload, frozen=True, kw_only=True):
    """One model in the cache that pods of a node share; ``entry`` names it, as pods do in their annotation, and
    ``bytes`` is its size on disk."""

    entry: Name
    source: str
    bytes: Count
    gguf: GgufFacts | UnsetType = UNSET  # unset: no GGUF file, or nobody has read it


class ModelAdapter(Payload, frozen=True, kw_only=True):
    """A LoRA adapter that clients ask for as a model. ``body``: the JSON fields of a request that pick it."""

    name: Name
    body: dict[str, Any]


class ShadowRanking(Payload, frozen=True, kw_only=True):
    """What another set of weights says about the same nodes at the same moment; nobody acts on it.

    ``node`` leads by them. The real leader is ``behind`` in its sum there and has ``lost`` points of score.
    """

    weights: dict[str, float]
    node: Name
    behind: Amount = 0.0
    lost: Count = 0


class ModelHeadroom(Payload, frozen=True, kw_only=True):
    """Tokens per second one cluster could still give to one model."""

    namespace: Name
    model: Name
    tokens_per_second: Amount
