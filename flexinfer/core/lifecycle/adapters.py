"""LoRA adapters as users write them in the engine options."""

from collections.abc import Mapping

from flexinfer.core.lifecycle.description import Adapter, Problem
from flexinfer.core.lifecycle.engines.base import Engine
from flexinfer.core.lifecycle.sources import BadSource, Source, parse_source

ADAPTERS = "loraAdapters"


def adapters_of(engine: Engine, written: object, path: str) -> tuple[Adapter, ...] | Problem:
    """``[{name: sql, source: /models/adapters/sql, scale: 0.5}]``: a path in the engine container, or what else the
    engine can load adapters from."""
    if written is None:
        return ()
    if not engine.adapter_schemes:
        return Problem("InvalidSpec", path, f"{engine.name} takes no LoRA adapters here; use vllm or llamacpp")
    if not isinstance(written, list):
        return Problem("InvalidSpec", path, "must be a list of {name, source}")
    found = [_adapter(engine, entry, f"{path}[{index}]") for index, entry in enumerate(written)]
    bad = next((one for one in found if isinstance(one, Problem)), None)
    if bad:
        return bad
    good = tuple(one for one in found if isinstance(one, Adapter))
    if len({one.name for one in good}) < len(good):
        return Problem("InvalidSpec", path, "two adapters have the same name")
    return good


def _adapter(engine: Engine, entry: object, path: str) -> Adapter | Problem:
    if not isinstance(entry, Mapping) or not entry.get("name") or not entry.get("source"):
        return Problem("InvalidSpec", path, "an adapter needs a name and a source")
    name, scale = str(entry["name"]), entry.get("scale")
    if "=" in name or "," in name:
        return Problem("InvalidSpec", f"{path}.name", "must have neither '=' nor ','")
    source = _source(engine, str(entry["source"]))
    if isinstance(source, str):
        return Problem("InvalidSource", f"{path}.source", source)
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float)):
        return Problem("InvalidSpec", f"{path}.scale", "must be a number")
    return Adapter(name, source, None if scale is None else float(scale))


def _source(engine: Engine, text: str) -> Source | str:
    """The source, or what is wrong with it."""
    try:
        found = parse_source(text, engine.name)
    except BadSource as err:
        return str(err)
    if found.scheme not in engine.adapter_schemes:
        usable = ", ".join(f"{scheme}://" for scheme in sorted(engine.adapter_schemes))
        return f"{engine.name} cannot load adapters from {found.scheme}://; use {usable}"
    if found.scheme == "file" and any(mark in found.location for mark in ",:="):
        return "an adapter's path must have neither ',' nor ':' nor '='"
    return found
