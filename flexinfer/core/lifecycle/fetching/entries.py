"""Where a model lies in the cache: a name that follows from its source alone, so that everybody finds it.

``entries/<name>/`` is whole and never changes; what is under way lies in ``parts/<name>/`` and is never read by an
engine. ``<name>`` tells people the model and ends in a digest of the source and of the form it is wanted in.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

from flexinfer.core.hardware.device_class import slug
from flexinfer.core.lifecycle.sources import Source

Form = Literal["folder", "gguf", "store"]
"""``folder``: the repository's files; ``gguf``: one file llama.cpp loads; ``store``: a model directory of ollama."""

FETCHED = frozenset({"hf", "ollama", "oci"})
"""Schemes whose weights are copied into the cache. The others lie on the node or on a claim already."""
ENTRIES, PARTS, LOCKS, USES = "entries", "parts", "locks", "uses"
ABOUT = ".flexinfer.json"
MODEL_LINK = "model.gguf"
_STEM = 60


@dataclass(frozen=True, slots=True)
class Entry:
    """One model in one form. ``path``: what the engine is given, relative to the cache's root."""

    name: str
    path: str


def entry_of(source: Source, form: Form) -> Entry:
    """The entry of a source.

    >>> entry_of(Source("hf", "o/m-GGUF", variant="Q4_K_M"), "gguf").path
    'entries/o-m-gguf-q4-k-m-2c8757c26de9/model.gguf'
    """
    digest = hashlib.sha256(f"{form} {source.text}".encode()).hexdigest()[:12]
    parts = (source.location, source.path, source.variant, source.revision)
    name = f"{slug(' '.join(filter(None, parts)), _STEM)}-{digest}"
    inner = {"folder": source.path, "gguf": source.path or MODEL_LINK, "store": ""}[form]
    return Entry(name, f"{ENTRIES}/{name}" + (f"/{inner}" if inner else ""))
