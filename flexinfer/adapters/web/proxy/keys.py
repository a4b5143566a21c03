"""API keys from a file, reread when it changes.

One key per line; empty lines and lines that begin with ``#`` are skipped. A Secret mounted as a file changes in place.
"""

import asyncio
import logging
import secrets
from hashlib import blake2b
from pathlib import Path

from flexinfer.adapters.web.proxy import figures
from flexinfer.core.routing.refusal import Refusal

log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 20
_PACE_SECONDS = 1.0
_SCHEME = "bearer "


class ApiKeys:
    """The keys that open the door.

    Keys are kept and compared as digests under a secret of this process: how long a look-up takes then says nothing
    about a key, however many there are.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be read, ValueError if it holds no text: no file never means no check."""
        self._path = path
        self._secret = secrets.token_bytes(32)
        self._stamp = self._look()
        self._digests = self._read()

    def _look(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _digest(self, key: str) -> bytes:
        return blake2b(key.encode(), key=self._secret, digest_size=32).digest()

    def _read(self) -> frozenset[bytes]:
        with self._path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError(f"{self._path} is larger than {_MOST_BYTES} bytes")
        lines = (line.strip() for line in raw.decode().splitlines())
        return frozenset(self._digest(line) for line in lines if line and not line.startswith("#"))

    def check(self, authorization: str) -> None:
        """The value of an Authorization header. Raises Refusal 401."""
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            raise Refusal(401, "invalid_api_key", "send an API key: Authorization: Bearer <key>")
        given = self._digest(authorization[len(_SCHEME) :].strip())
        if given not in self._digests:
            raise Refusal(401, "invalid_api_key", "the API key is not valid")

    async def watch(self) -> None:
        """Reread the file when it changed, for ever; a file that cannot be read leaves the last keys in force."""
        while True:
            await asyncio.sleep(_PACE_SECONDS)
            self.refresh()

    def refresh(self) -> None:
        """Reread the file if it changed."""
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._digests = self._read()
        except (OSError, ValueError) as err:
            figures.KEY_FAILURES.inc()
            log.warning("API keys stay as they were: %s", err)
            return
        self._stamp = stamp
        log.info("API keys were read again: %d", len(self._digests))
