"""Write ``builtin.jsonl`` from a directory with Kubernetes' ``api/openapi-spec/v3`` files."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flexinfer.local.kubeapi.kinds import BUILTINS, Kind


def references(value: Any) -> Iterator[str]:
    """Names of the definitions that ``value`` refers to."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rsplit("/", 1)[1]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def collect(source: Path, kind: Kind, found: dict[str, Any]) -> None:
    """Add the definition of ``kind`` and all it refers to."""
    stem = f"apis__{kind.group}__{kind.version}" if kind.group else f"api__{kind.version}"
    schemas = json.loads((source / f"{stem}_openapi.json").read_bytes())["components"]["schemas"]
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    todo = [name for name, schema in schemas.items() if wanted in schema.get("x-kubernetes-group-version-kind", ())]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = schemas[name]
            todo += references(schemas[name])


def main(source: Path, target: Path) -> None:
    """Collect and write, sorted by name."""
    found: dict[str, Any] = {}
    for kind in BUILTINS:
        collect(source, kind, found)
    lines = (
        json.dumps({"name": name, "schema": found[name]}, separators=(",", ":"), sort_keys=True)
        for name in sorted(found)
    )
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_name("builtin.jsonl"))
