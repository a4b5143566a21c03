"""What is no request gets 4xx or the end of its connection, from every server, and the next client is served."""

import asyncio
import logging

import pytest

from tests.abuse import raw
from tests.abuse.servers import NAMES, serving

# Odd but valid, answered as what it is.
VALID = {"HTTP/0.9", "a star", "an absolute URI", "a websocket", "an upgrade", "noise behind a request"}
# A server whose answer needs no body may give it before it sees what is wrong with one; the connection ends.
LATE = {"a megabyte of trailer", "a megabyte of chunk extension", "a body cut short", "a chunk cut short"}
READS_NO_BODY = {"dashboard", "ops"}


@pytest.mark.parametrize("name", NAMES)
async def test_what_is_no_request_is_refused_and_the_next_client_is_served(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    allowed = VALID | (LATE if name in READS_NO_BODY else set())
    async with serving(name) as site:
        cases = raw.malformed(site.path)
        answers = await asyncio.gather(*(raw.reply(site.port, data) for data in cases.values()))
        for what, answer in zip(cases, answers, strict=True):
            found = raw.statuses(answer)
            assert 500 not in found, what
            assert what in allowed or all(400 <= status < 500 for status in found), (what, found)
        assert raw.statuses(await raw.reply(site.port, raw.get("/healthz"))) == [200]
    worst = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not worst


@pytest.mark.parametrize("name", ["extender", "admission", "embedded-api", "proxy", "global-proxy"])
async def test_an_ambiguous_length_is_refused_whatever_follows(name: str) -> None:
    """Two readers of one connection must never see different requests."""
    async with serving(name) as site:
        cases = raw.malformed(site.path)
        for what in ("two lengths", "the same length twice", "length and chunked", "chunked twice",
                     "a coding after chunked", "a coding with a tab", "a space before the colon", "a folded header",
                     "bare line feeds", "a header with a bare CR"):  # fmt: skip
            assert raw.statuses(await raw.reply(site.port, cases[what])) == [400], what
