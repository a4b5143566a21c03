"""The header of a GGUF file: what tells exactly how much memory the model takes.

Format: ggml, ``docs/gguf.md``, versions 2 and 3, little endian.
"""

import math
import struct
from dataclasses import dataclass
from typing import Any

from flexinfer.core.lifecycle.vram import DEFAULT_CONTEXT, HEADROOM, OVERHEAD_MB

MAGIC = b"GGUF"
F16_BYTES = 2
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_KEYS, _MOST_ITEMS = 10_000, 100_000_000


class BadGguf(ValueError):
    """No GGUF header; the message says where it stops making sense."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``kv_heads`` per layer; ``key`` and ``value``: size of a head; ``context``: tokens it was trained for."""

    architecture: str
    kv_heads: tuple[int, ...]
    key: int
    value: int
    context: int

    @property
    def kv_bytes_per_token(self) -> int:
        """Of the key-value cache in 16 bits."""
        return sum(self.kv_heads) * (self.key + self.value) * F16_BYTES


def read_shape(head: bytes) -> Shape:
    """From the beginning of a file, as far as its metadata go. Raises BadGguf."""
    found = _Reader(head).metadata()
    name = str(found.get("general.architecture") or "")
    try:
        layers, heads = int(found[f"{name}.block_count"]), found[f"{name}.attention.head_count"]
        width = int(found[f"{name}.embedding_length"])
        kv = found.get(f"{name}.attention.head_count_kv", heads)
        per_layer = tuple(int(n) for n in kv) if isinstance(kv, list) else (int(kv),) * layers
        size = width // (max(int(n) for n in heads) if isinstance(heads, list) else int(heads))
        return Shape(
            name,
            per_layer,
            int(found.get(f"{name}.attention.key_length", size)),
            int(found.get(f"{name}.attention.value_length", size)),
            int(found.get(f"{name}.context_length", 0)),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as err:
        raise BadGguf(f"the metadata do not tell the model's shape: {err!r}") from err


def exact_mb(shape: Shape, file_bytes: int, context: int | None = None, streams: int = 1) -> int:
    """Memory of one replica in MB: the file, which is loaded as it is, and the cache; margins as in the estimate."""
    cache = shape.kv_bytes_per_token * (context or DEFAULT_CONTEXT) * streams
    return math.ceil((file_bytes + cache) / 1e6 * HEADROOM + OVERHEAD_MB)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def metadata(self) -> dict[str, Any]:
        if self._take(4) != MAGIC:
            raise BadGguf("it does not begin with GGUF")
        version = self._number("<I")
        if version not in {2, 3}:
            raise BadGguf(f"version {version} is not known")
        self._number("<Q")  # tensors
        count = self._number("<Q")
        if count > _MOST_KEYS:
            raise BadGguf(f"{count} keys")
        return {self._string(): self._value(self._number("<I")) for _ in range(count)}

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise BadGguf(f"it ends at byte {len(self._data)}, inside its metadata")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _string(self) -> str:
        return self._take(self._number("<Q")).decode(errors="replace")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(self._form(kind))
        inner, length = self._number("<I"), self._number("<Q")
        if length > _MOST_ITEMS:
            raise BadGguf(f"a list of {length}")
        if inner in _NUMBERS:
            form = _NUMBERS[inner]
            raw = self._take(length * struct.calcsize(form))
            return [one[0] for one in struct.iter_unpack(form, raw)]
        if inner != _STRING:
            raise BadGguf(f"a list of type {inner}")
        # The vocabulary: long, and of no use here.
        for _ in range(length):
            self._take(self._number("<Q"))
        return []

    def _form(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise BadGguf(f"a value of type {kind}")
        return _NUMBERS[kind]
