"""The header of a GGUF file: what tells exactly how much memory the model takes.

Format: ggml, ``docs/gguf.md``, versions 2 and 3, little endian.
"""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flexinfer.contracts.events import GgufFacts
from flexinfer.core.lifecycle.vram import DEFAULT_CONTEXT, HEADROOM, OVERHEAD_MB

MAGIC = b"GGUF"
F16_BYTES = 2
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_KEYS, _MOST_ITEMS, _MOST_TENSORS, _MOST_SIZES = 10_000, 100_000_000, 1_000_000, 8
# enum llama_ftype of llama.cpp's include/llama.h, without its prefix.
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip


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


class Head(Protocol):
    """The beginning of a file, in memory or mapped."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...


def read_shape(head: Head) -> Shape:
    """From the beginning of a file, as far as its metadata go. Raises BadGguf."""
    return _shape(_Reader(head).metadata())


def read_facts(files: Sequence[tuple[Head, int]]) -> GgufFacts:
    """From the beginning of each file of a model, as far as the list of its tensors goes, and the sizes of the files
    in bytes; the first part comes first. Raises BadGguf."""
    if not files:
        raise BadGguf("no file")
    readers = [_Reader(head) for head, _ in files]
    told = [reader.metadata() for reader in readers]
    found = told[0]
    shape, kind = _shape(found), found.get("general.file_type")
    return GgufFacts(
        architecture=shape.architecture,
        parameters=sum(reader.parameters() for reader in readers),
        quantization=_FILE_TYPES.get(kind) if isinstance(kind, int) else None,
        file_bytes=sum(size for _, size in files),
        layers=len(shape.kv_heads),
        kv_heads=max(shape.kv_heads, default=0),
        kv_bytes_per_token=shape.kv_bytes_per_token,
        context_tokens=shape.context or None,
    )


def parts_of_model(files: Mapping[str, int], path: str = "") -> list[str]:
    """Of GGUF files with their sizes those that are the model: ``path``, else the largest, with all its parts.

    >>> parts_of_model({"mmproj.gguf": 9, "m-00002-of-00002.gguf": 60, "m-00001-of-00002.gguf": 50})
    ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf']
    """
    if not files:
        return []
    model = path if path in files else max(sorted(files), key=lambda file: files[file])
    split = re.fullmatch(r"(.*-)\d{5}(-of-\d{5}\.gguf)", model)
    if not split:
        return [model]
    return [file for file in sorted(files) if file.startswith(split[1]) and file.endswith(split[2])]


def _shape(found: dict[str, Any]) -> Shape:
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
    return _mb(file_bytes, shape.kv_bytes_per_token, context, streams)


def needed_mb(facts: GgufFacts, context: int | None = None, streams: int = 1) -> int:
    """The same from what travels on the bus."""
    return _mb(facts.file_bytes, facts.kv_bytes_per_token, context, streams)


def _mb(file_bytes: int, per_token: int, context: int | None, streams: int) -> int:
    cache = per_token * (context or DEFAULT_CONTEXT) * streams
    return math.ceil((file_bytes + cache) / 1e6 * HEADROOM + OVERHEAD_MB)


class _Reader:
    def __init__(self, data: Head) -> None:
        self._data = data
        self._at = 0
        self._tensors = 0

    def metadata(self) -> dict[str, Any]:
        if self._take(4) != MAGIC:
            raise BadGguf("it does not begin with GGUF")
        version = self._number("<I")
        if version not in {2, 3}:
            raise BadGguf(f"version {version} is not known")
        self._tensors = self._number("<Q")
        count = self._number("<Q")
        if count > _MOST_KEYS:
            raise BadGguf(f"{count} keys")
        return {self._string(): self._value(self._number("<I")) for _ in range(count)}

    def parameters(self) -> int:
        """Elements of all tensors, which are listed after the metadata."""
        if self._tensors > _MOST_TENSORS:
            raise BadGguf(f"{self._tensors} tensors")
        return sum(self._elements() for _ in range(self._tensors))

    def _elements(self) -> int:
        self._string()
        sizes = self._number("<I")
        if sizes > _MOST_SIZES:
            raise BadGguf(f"a tensor of {sizes} dimensions")
        lengths: tuple[int, ...] = struct.unpack(f"<{sizes}Q", self._take(8 * sizes))
        self._take(4 + 8)  # type and offset
        return math.prod(lengths)

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
