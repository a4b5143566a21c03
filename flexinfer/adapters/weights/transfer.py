"""One file over HTTP: goes on where an earlier try stopped, and counts only when its content is what was announced."""

import asyncio
import re
from pathlib import Path

import aiohttp

from flexinfer.adapters.weights.disk import Cache, Digest, told
from flexinfer.adapters.weights.web import BROKEN, CHUNK_BYTES, Again, Web, host_of
from flexinfer.core.lifecycle.fetching.failures import FetchFailed
from flexinfer.core.lifecycle.fetching.listing import RemoteFile

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


async def transfer(web: Web, cache: Cache, name: str, file: RemoteFile) -> None:
    """The file in place, verified. Raises FetchFailed; the partial copy stays for the next try."""
    if cache.done(name, file):
        return
    for last in (False, True):
        await web.patience.keep(lambda: _rest(web, cache, name, file))
        if await asyncio.to_thread(_right, cache.part(name, file), file):
            cache.place(name, file)
            return
        # A copy resumed over several tries may be spoiled by one of them, so the whole is tried once more.
        cache.discard(name, file)
        if last:
            raise FetchFailed(
                "DigestMismatch", f"{file.path or file.digest} from {host_of(file.url)} is not {file.digest}"
            )


def _right(part: Path, file: RemoteFile) -> bool:
    digest = Digest(file)
    digest.feed_file(part)
    return digest.right


async def _rest(web: Web, cache: Cache, name: str, file: RemoteFile) -> None:
    """What is missing of the partial copy. Raises Again when the answer ends early."""
    part = cache.part(name, file)
    have = _have(cache, name, file, part)
    if have == file.size:
        part.touch()
        return
    headers = {"Range": f"bytes={have}-"} if have else {}
    async with web.open(file.url, headers) as answer:
        if answer.status == 416 or (answer.status == 206 and not _continues(answer, have, file.size)):
            cache.discard(name, file)
            raise Again("SourceUnavailable", f"{host_of(file.url)} sends another part than the one asked for", 0.0)
        await _write(web, cache, name, answer, file)


def _have(cache: Cache, name: str, file: RemoteFile, part: Path) -> int:
    have = part.stat().st_size if part.exists() else 0
    if have > file.size:
        cache.discard(name, file)
        return 0
    return have


def _continues(answer: aiohttp.ClientResponse, have: int, size: int) -> bool:
    found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    return bool(found and int(found[1]) == have and found[2] in {str(size), "*"})


async def _write(web: Web, cache: Cache, name: str, answer: aiohttp.ClientResponse, file: RemoteFile) -> None:
    part = cache.part(name, file)
    with told(), part.open("ab" if answer.status == 206 else "wb") as out:
        written = out.tell()
        try:
            async for data in answer.content.iter_chunked(CHUNK_BYTES):
                written += len(data)
                if written > file.size:
                    break
                cache.append(out, data)
                web.patience.reached(file.identity, written)
        except BROKEN as err:
            raise Again("SourceUnavailable", f"{host_of(file.url)} broke off at {written:,} of {file.size:,}") from err
    if written > file.size:
        cache.discard(name, file)
        raise FetchFailed("DigestMismatch", f"{host_of(file.url)} sends more than the {file.size:,} bytes it announced")
    if written < file.size:
        raise Again("SourceUnavailable", f"{host_of(file.url)} broke off at {written:,} of {file.size:,}")
