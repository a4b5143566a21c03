"""Every credential of the bus tries everything, on a real server with the rights the chart gives: what it may not say
or hear is refused, and nothing else is."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flexinfer.adapters.bus.broker import matches
from flexinfer.contracts.envelope import decode_event
from flexinfer.contracts.permissions import permissions
from flexinfer.contracts.topics import (
    BUCKETS,
    LOG_STREAM,
    TOPIC_OF,
    TOPICS,
    bucket_name,
    key_pattern,
    sampled_subject,
    subject_of,
)
from flexinfer.local.nats_server import NatsServer

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "tests/contract/schemas/samples").glob("*.json"))
DEADLINE = 60.0

Rights = dict[str, dict[str, list[str]]]


def granted() -> Rights:
    """Every user of the chart's file, and one agent and one benchmark as the auth callout lets them in."""
    text = (ROOT / "charts/flexinfer/files/nats-permissions.json").read_text().replace("@cluster@", "default")
    found: Rights = json.loads(text)
    for user, component, client, entity in (
        ("agent-n1", "agent", "flexinfer-agent n1", "n1"), ("bench-k1", "bench", "flexinfer-bench k1", "k1"),
    ):  # fmt: skip
        rights = permissions(component, client, entity)
        found[user] = {"publish": list(rights.publish), "subscribe": list(rights.subscribe)}
    return found


RIGHTS = granted()
STREAMS = [LOG_STREAM, *(f"KV_{bucket_name(bucket)}" for bucket in BUCKETS)]


def filled(pattern: str, name: str) -> str:
    return pattern.replace("*", name)


def said() -> list[str]:
    """Subjects somebody may want to publish on: every fact about n1 and n2 and of samples, its state, its copy in the
    log, and everything that changes or destroys what the server keeps."""
    found = [subject_of(decode_event(path.read_bytes()).data) for path in SAMPLES]
    for topic in TOPICS.values():
        for name in ("n1", "n2", "k1", "k2"):
            subject = f"flexinfer.v1.default.{filled(topic.wildcard, name)}"
            found += [subject, sampled_subject(subject), subject.replace(".default.", ".other.")]
            if topic.bucket is not None:
                found.append(f"$KV.{bucket_name(topic.bucket)}.{filled(key_pattern(topic), name)}")
    for stream in STREAMS:
        found += [
            f"$JS.API.{verb}.{stream}"
            for verb in (
                "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.INFO",
                "STREAM.MSG.GET", "STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.LEADER.STEPDOWN", "DIRECT.GET",
                "STREAM.PEER.REMOVE", "CONSUMER.LIST", "CONSUMER.NAMES",
            )
        ]  # fmt: skip
        found += [
            f"$JS.API.CONSUMER.CREATE.{stream}.c", f"$JS.API.CONSUMER.CREATE.{stream}.c.$KV.flexinfer_nodes.>",
            f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.c", f"$JS.API.CONSUMER.DELETE.{stream}.c",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c",
        ]  # fmt: skip
    found += [
        "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.X.CLAIMS.UPDATE", "$SYS.REQ.USER.AUTH", "$JS.API.STREAM.CREATE.evil",
        "$JS.API.ACCOUNT.PURGE.X", "$JS.API.META.LEADER.STEPDOWN", "$JS.API.STREAM.NAMES", "$JS.API.INFO", "anything",
        "_INBOX_scheduler.x", "_INBOX_flexinfer-manager.m.x", "_INBOX_flexinfer-agent.n2.x", "_INBOX.x",
        "$JS.ACK.FLEXINFER_LOG.c.1.1.1.1.1",
    ]  # fmt: skip
    return list(dict.fromkeys(found))


def heard() -> list[str]:
    """Subscriptions somebody may want: everything, other clusters, the inboxes of others, the server's own."""
    return [
        ">", "*", "*.>", "flexinfer.>", "flexinfer.v1.>", "flexinfer.v1.*.>", "flexinfer.v1.default.>",
        "flexinfer.v1.other.>", "flexinfer.v1.default.node.n1.telemetry", "flexinfer.v1.default.node.n2.telemetry",
        "$KV.>", "$JS.>", "$JS.API.>", "$SYS.>", "$SYS.REQ.USER.AUTH", "_INBOX.>", "_INBOX_scheduler.>", "_INBOX_*.>",
        "_INBOX_flexinfer-manager.>", "_INBOX_flexinfer-manager.m.>", "_INBOX_flexinfer-agent.>",
        "_INBOX_flexinfer-agent.n1.>", "_INBOX_flexinfer-agent.n2.>", "_INBOX_flexinfer-proxy.p.>", "_INBOX_status.>",
        "_INBOX_flexinfer-bench.k1.>", "_INBOX_flexinfer-bench.k2.>", "_INBOX_dashboard.>",
        "_INBOX_flexinfer-global-proxy.>",
    ]  # fmt: skip


def covers(pattern: str, asked: str) -> bool:
    """Whether everything that ``asked`` stands for is within ``pattern``."""
    left, right = pattern.split("."), asked.split(".")
    for index, part in enumerate(left):
        if part == ">":
            return len(right) > index
        if index >= len(right) or right[index] == ">" or (part != "*" and part != right[index]):
            return False
    return len(left) == len(right)


class Line:
    """The protocol spoken by hand: the library would hold back what it knows to be wrong."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, port: int, **login: str) -> "Line":
        line = cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))
        await line.reader.readline()
        line.writer.write(b"CONNECT " + json.dumps({"verbose": False, "pedantic": False, **login}).encode() + b"\r\n")
        return line

    async def refused(self, commands: list[bytes]) -> list[str]:
        """Send, and collect what the server objects to."""
        self.writer.write(b"".join(commands) + b"PING\r\n")
        return await self.objections()

    async def objections(self) -> list[str]:
        """Until it answers the ping or hangs up. Who writes to a server that hung up may lose its last words."""
        found = []
        async with asyncio.timeout(DEADLINE):
            while line := await self.reader.readline():
                if line.startswith(b"PONG"):
                    return found
                if line.startswith(b"-ERR"):
                    found.append(line.decode().strip())
        return found


def quoted(errors: list[str], what: str) -> set[str]:
    """The subjects of ``Permissions Violation for <what> to "<subject>"``."""
    return {error.split('"')[1] for error in errors if f"for {what} to" in error}


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    users = ", ".join(
        f"{{user: {json.dumps(user)}, password: secret, permissions: {json.dumps(rights)}}}"
        for user, rights in RIGHTS.items()
    )
    server = NatsServer(tmp_path, options=f"authorization {{ users: [{users}] }}\n")
    await server.start()
    yield server.port
    await server.stop()


async def test_a_credential_says_and_hears_what_its_rights_name_and_nothing_else(port: int) -> None:
    for user, rights in RIGHTS.items():
        line = await Line.to(port, user=user, **{"pass": "secret"})

        errors = await line.refused([b"PUB %b 0\r\n\r\n" % subject.encode() for subject in said()])
        wrong = {subject for subject in said() if not any(matches(right, subject) for right in rights["publish"])}
        assert quoted(errors, "Publish") == wrong, user

        errors = await line.refused([b"SUB %b %d\r\n" % (subject.encode(), i) for i, subject in enumerate(heard())])
        deaf = {subject for subject in heard() if not any(covers(right, subject) for right in rights["subscribe"])}
        assert quoted(errors, "Subscription") == deaf, user
        line.writer.close()


async def test_nobody_else_gets_in(port: int) -> None:
    for login in (
        {}, {"user": "agent", "pass": "wrong"}, {"user": "nobody", "pass": "secret"}, {"auth_token": "secret"},
        {"jwt": "a.b.c", "sig": "x"},
    ):  # fmt: skip
        line = await Line.to(port, **login)
        assert await line.objections() == ["-ERR 'Authorization Violation'"], login
        line.writer.close()


def test_an_agent_of_one_node_speaks_for_no_other() -> None:
    allowed = [s for s in said() if any(matches(right, s) for right in RIGHTS["agent-n1"]["publish"])]

    assert any(".n1." in subject for subject in allowed)
    assert not [subject for subject in allowed if ".n2" in subject or "k1" in subject or ".other." in subject]


def test_a_benchmark_speaks_for_its_own_key() -> None:
    allowed = [s for s in said() if any(matches(right, s) for right in RIGHTS["bench-k1"]["publish"])]

    assert any("k1" in subject for subject in allowed)
    assert not [subject for subject in allowed if ".k2" in subject and not subject.startswith("$JS.API.CONSUMER")]


def test_what_the_server_keeps_is_made_by_the_manager_and_destroyed_by_nobody() -> None:
    for user, rights in RIGHTS.items():
        allowed = {s for s in said() if any(matches(right, s) for right in rights["publish"])}
        destroying = {s for s in allowed if any(verb in s for verb in (
            ".STREAM.DELETE.", ".PURGE", ".MSG.DELETE.", ".RESTORE.", "STEPDOWN", ".PEER.", ".DURABLE."))}  # fmt: skip
        making = {s for s in allowed if ".STREAM.CREATE." in s or ".STREAM.UPDATE." in s}
        system = {s for s in allowed if s.startswith("$SYS")}
        assert not destroying, user
        assert not making or user == "manager"
        assert not system, user
        assert not {s for s in allowed if s.startswith("_INBOX")}, user
    only_readers = [s for s in said() if any(matches(right, s) for right in RIGHTS["viewer"]["publish"])]
    assert not [s for s in only_readers if s.startswith(("flexinfer.", "$KV."))]


def test_every_kind_of_fact_is_tried() -> None:
    assert {type(decode_event(path.read_bytes()).data) for path in SAMPLES} == set(TOPIC_OF)
