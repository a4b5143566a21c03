"""Small pages of engines on the same node: a time limit, a size limit, and no answer instead of an exception."""

from collections.abc import Mapping
from typing import Literal

import aiohttp


class PageReader:
    """One connection pool. Made on the running loop, ended with ``aclose``."""

    def __init__(self, *, seconds: float = 1.5, limit: int = 4 << 20) -> None:
        self._limit = limit
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=seconds),
            connector=aiohttp.TCPConnector(limit=64, limit_per_host=2),
            headers={"Accept-Encoding": "identity"},
        )

    async def read(
        self, url: str, headers: Mapping[str, str] | None = None, method: Literal["GET", "PUT"] = "GET"
    ) -> bytes | None:
        """The body of a 200, cut at the limit; None for everything else."""
        try:
            async with self._session.request(method, url, headers=headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    return None
                return await answer.content.read(self._limit)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()
