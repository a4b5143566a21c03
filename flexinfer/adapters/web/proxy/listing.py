"""``GET /v1/models`` and ``/v1/models/<name>``: what the routing table serves, models at zero included."""

from typing import Any

import msgspec

from flexinfer.contracts.events import ModelEndpoint
from flexinfer.core.routing.directory import Directory
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.table import key_of


def _row(directory: Directory, spec: ModelEndpoint, name: str, created: int) -> dict[str, Any]:
    pool = directory.pools[key_of(spec)]
    speeds = [replica.speed for replica in pool.ready if replica.speed]
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": spec.namespace,
        "flexinfer": {
            "namespace": spec.namespace,
            "model": spec.model,
            "backend": spec.backend,
            "aliases": list(spec.aliases),
            "ready": len(pool.ready),
            "state": _state(spec, len(pool.ready)),
            "tokens_per_second": sum(speeds) if speeds else None,
        },
    }


def _state(spec: ModelEndpoint, ready: int) -> str:
    if ready:
        return "ready"
    if spec.failure:
        return "failed"
    return "asleep" if spec.wakeable else "unavailable"


def model_list(directory: Directory, created: int) -> bytes:
    """The list; ``created`` is a Unix time, which the API demands and nobody knows better."""
    table = directory.table
    rows = []
    for spec in table.listed():
        name = table.public_name(spec)
        rows.append(_row(directory, spec, name, created))
        shown = (table.adapter_name(spec, adapter) for adapter in spec.adapters or ())
        rows += [_adapter_row(directory, spec, adapter, created) for adapter in shown if adapter]
    return msgspec.json.encode({"object": "list", "data": rows})


def _adapter_row(directory: Directory, spec: ModelEndpoint, name: str, created: int) -> dict[str, Any]:
    """An adapter as a model of its own, as vLLM lists its own."""
    return {**_row(directory, spec, name, created), "parent": directory.table.public_name(spec)}


def one_model(directory: Directory, name: str, created: int) -> bytes:
    """One entry by any name that resolves. Raises Refusal 404."""
    spec = directory.table.resolve(name)
    if spec.hidden:
        raise Refusal(404, "model_not_found", f"the model '{name}' does not exist", param="model")
    row = _row if directory.table.adapter(spec, name) is None else _adapter_row
    return msgspec.json.encode(row(directory, spec, name, created))
