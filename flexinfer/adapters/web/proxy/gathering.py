"""The metrics of all workers of one port as one: whoever is asked asks its siblings."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from flexinfer.adapters.web.proxy.workers import socket_path

log = logging.getLogger(__name__)

_SECONDS = 2.0
_MOST_BYTES = 64 << 20


def merge(texts: list[bytes]) -> bytes:
    """Texts in the Prometheus format with equal samples added up; ``_created`` stamps keep the oldest."""
    lines: dict[str, float | None] = {}
    for text in texts:
        for line in text.decode().splitlines():
            if not line or line.startswith("#"):
                lines.setdefault(line, None)
                continue
            name, _, number = line.rpartition(" ")
            value, known = float(number), lines.get(name)
            if known is None:
                lines[name] = value
            elif name.partition("{")[0].endswith("_created"):
                lines[name] = min(known, value)
            else:
                lines[name] = known + value
    ordered = _by_family(lines)
    return "".join(f"{line}\n" if value is None else f"{line} {value!r}\n" for line, value in ordered).encode()


def _by_family(lines: dict[str, float | None]) -> list[tuple[str, float | None]]:
    """Samples a later worker added go to the family they belong to: the format wants families in one piece."""
    families: dict[str, list[tuple[str, float | None]]] = {}
    for line, value in lines.items():
        if value is None:
            name = line.split(" ", 3)[2] if line.startswith("# ") else ""
            families.setdefault(name, [])
        else:
            name = _family(line.partition("{")[0], families)
        families.setdefault(name, []).append((line, value))
    return [row for name in families for row in families[name]]


def _family(sample: str, families: dict[str, list[tuple[str, float | None]]]) -> str:
    for ending in ("", "_bucket", "_sum", "_count", "_total", "_created"):
        if sample.endswith(ending) and (name := sample.removesuffix(ending)) in families:
            return name
    return sample


async def siblings(folder: Path, own: int, count: int) -> list[bytes]:
    """The metrics of the other workers; one that does not answer in time is left out."""
    asked = (_ask(socket_path(folder, index)) for index in range(count) if index != own)
    return [text for text in await asyncio.gather(*asked) if text]


async def _ask(path: Path) -> bytes:
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=_MOST_BYTES)
            try:
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError) as err:
        log.warning("worker at %s did not tell its metrics: %s", path.name, err)
        return b""


async def tell_siblings(folder: Path, own: int, text: Callable[[], bytes]) -> asyncio.Server:
    """Answer each connection to our socket with our own metrics."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text())
        writer.close()

    path = socket_path(folder, own)
    path.unlink(missing_ok=True)
    return await asyncio.start_unix_server(answer, str(path))
