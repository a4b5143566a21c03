"""Pod addresses: one of 127.0.0.0/8 per pod, so that every pod can listen on the same port."""

import zlib

HOST = "127.0.0.1"
_PER_RUNNER = 254 * 256


class Addresses:
    """Hands out 127.x.y.z, where x comes from ``seed`` so that two runners on one machine rarely meet.

    Numbers go round before one is used again: connections to a pod that ended do not reach the next one.
    """

    def __init__(self, seed: str) -> None:
        self._net = 16 + zlib.crc32(seed.encode()) % 200
        self._next = 0
        self._taken: set[str] = set()

    def take(self, wanted: str = "") -> str:
        """A free address, ``wanted`` if that is free. Raises OSError when 65,000 pods hold one each."""
        if wanted.startswith("127.") and wanted not in self._taken and wanted != HOST:
            self._taken.add(wanted)
            return wanted
        for _ in range(_PER_RUNNER):
            self._next = (self._next + 1) % _PER_RUNNER
            address = f"127.{self._net}.{self._next // 254}.{1 + self._next % 254}"
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise OSError("no pod address is left")

    def free(self, address: str) -> None:
        """Nobody listens there any more."""
        self._taken.discard(address)
