"""Why a fetch ended without a model, as a program, the manager and a person each need it."""

import json

CONTAINER = "fetch"
"""Name of the init step, and what the names of those for adapters begin with."""

REMEDIES = {
    "SourceNotFound": "check the source in the spec; it may have been moved, renamed or deleted",
    "SecretMissing": "create the Secret that spec.sourceSecret names, in the model's namespace",
    "AccessDenied": "accept the model's terms where it is published, and name a Secret with a token under "
    "spec.sourceSecret",
    "DigestMismatch": "what is sent differs from what was announced twice; ask who runs the source, or name another",
    "DiskFull": "free space on the node's cache, or raise its limit; see flexinfer status",
    "SourceUnavailable": "nothing to do: it is tried again, and goes on where it stopped",
    "RateLimited": "nothing to do: it is tried again; a token under spec.sourceSecret usually raises the limit",
    "SplitModel": "name the first file: hf://org/repo/name-00001-of-0000N.gguf",
    "AmbiguousModel": "name the file: hf://org/repo/file.gguf or oci://image!file.gguf",
    "BadArtifact": "publish the files with plain relative names, as oras push or ollama push do",
    "CacheNotWritable": "let the container's user write to the node's cache directory",
}
"""Reason → what a person can do. What is not final may pass by itself."""

_PASSING = frozenset({"SourceUnavailable", "RateLimited", "DiskFull"})
_MAX_BYTES = 2000


class FetchFailed(Exception):
    """The one error a fetch ends with: a CamelCase ``reason`` of REMEDIES and a ``message`` without secrets."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def remedy(self) -> str:
        """What to do."""
        return REMEDIES.get(self.reason, "")

    @property
    def final(self) -> bool:
        """Waiting will not help."""
        return self.reason not in _PASSING


def encode(failure: FetchFailed) -> str:
    """One line for the termination message of the container."""
    return json.dumps({"fetch": failure.reason, "message": failure.message[:_MAX_BYTES]}) + "\n"


def decode(text: str) -> FetchFailed | None:
    """The inverse; None for anything else."""
    try:
        found = json.loads(text.strip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        return None
    reason = str(found.get("fetch")) if isinstance(found, dict) else ""
    return FetchFailed(reason, str(found.get("message") or reason)) if reason in REMEDIES else None
