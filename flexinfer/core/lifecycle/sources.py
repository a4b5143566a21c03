"""Where model weights come from, as users write it."""

import re
from dataclasses import dataclass
from typing import Literal

Scheme = Literal["ollama", "hf", "file", "pvc", "oci"]
_SCHEMES: tuple[Scheme, ...] = ("ollama", "hf", "file", "pvc", "oci")
_FORMS = "ollama://name:tag, hf://org/repo, file:///path, pvc://claim/path or oci://image"


class BadSource(ValueError):
    """The text names no model; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Source:
    """``location`` depends on the scheme: a tag, a repository, an absolute path, a claim, an image.

    ``path`` is the file inside a repository, claim or image, ``variant`` what follows a colon after a repository
    (llama.cpp's quantisation), ``revision`` what follows an at sign.
    """

    scheme: Scheme
    location: str
    path: str = ""
    variant: str = ""
    revision: str = ""

    @property
    def text(self) -> str:
        """The source as one canonical string."""
        inner = f"/{self.path}" if self.path else ""
        variant = f":{self.variant}" if self.variant else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.scheme}://{self.location}{inner}{variant}{revision}"

    @property
    def name(self) -> str:
        """The last part, which is where people put size and quantisation."""
        last = (self.path or self.location).rstrip("/").rpartition("/")[2]
        return f"{last}:{self.variant}" if self.variant else last


def parse_source(text: str, backend: str) -> Source:
    """A source with a scheme, or the name the engine itself would use. Raises BadSource.

    >>> parse_source("llama3:8b", "ollama").text, parse_source("Qwen/Qwen3-8B", "vllm").text
    ('ollama://llama3:8b', 'hf://Qwen/Qwen3-8B')
    """
    scheme, mark, rest = text.strip().partition("://")
    if not mark:
        return _bare(text.strip(), backend)
    found = next((known for known in _SCHEMES if known == scheme.lower()), None)
    if found is None:
        raise BadSource(f"{text!r}: unknown scheme {scheme!r}; write {_FORMS}")
    return _SPLIT[found](rest, text)


def _bare(text: str, backend: str) -> Source:
    if text.startswith("/"):
        return _file(text, text)
    if backend == "ollama":
        return _ollama(text, text)
    if re.fullmatch(r"[\w.-]+/[\w.-]+([:@/].*)?", text):
        return _hf(text, text)
    raise BadSource(f"{text!r} names no model for {backend}; write {_FORMS}")


def _ollama(rest: str, text: str) -> Source:
    if not re.fullmatch(r"[\w./-]+(:[\w.-]+)?", rest):
        raise BadSource(f"{text!r}: write ollama://name:tag, for example ollama://llama3:8b")
    return Source("ollama", rest)


def _hf(rest: str, text: str) -> Source:
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/([\w./-]+))?(?::([\w.-]+))?(?:@([\w./-]+))?", rest)
    if not found:
        raise BadSource(f"{text!r}: write hf://org/repo, hf://org/repo/file.gguf or hf://org/repo:Q4_K_M")
    repo, path, variant, revision = (part or "" for part in found.groups())
    return Source("hf", repo, path, variant, revision)


def _file(rest: str, text: str) -> Source:
    if not rest.startswith("/") or rest == "/" or ".." in rest.split("/"):
        raise BadSource(f"{text!r}: write file:///absolute/path without '..'")
    return Source("file", rest)


def _pvc(rest: str, text: str) -> Source:
    found = re.fullmatch(r"([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?:/(.*))?", rest)
    if not found or ".." in (found.group(2) or "").split("/"):
        raise BadSource(f"{text!r}: write pvc://claim/path/in/the/volume without '..'")
    return Source("pvc", found.group(1), (found.group(2) or "").strip("/"))


def _oci(rest: str, text: str) -> Source:
    image, _, path = rest.partition("!")
    if not re.fullmatch(r"[\w./:@-]+", image) or ".." in path.split("/"):
        raise BadSource(f"{text!r}: write oci://registry/image:tag, or oci://image:tag!path/in/the/image")
    return Source("oci", image, path.strip("/"))


_SPLIT = {"ollama": _ollama, "hf": _hf, "file": _file, "pvc": _pvc, "oci": _oci}
