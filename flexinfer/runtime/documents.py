"""Documents for scripts: the same as JSON, one a line, or as YAML, one after the other."""

from typing import Any, Literal

import msgspec
import yaml

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def document(value: Any, output: Literal["json", "yaml"]) -> str:
    """One document with its newline. YAML documents begin with ``---``, so that many are a stream."""
    plain = msgspec.to_builtins(value)
    if output == "json":
        return msgspec.json.encode(plain).decode() + "\n"
    text: str = yaml.dump(plain, Dumper=_DUMPER, sort_keys=False, explicit_start=True, allow_unicode=True, width=120)
    return text
