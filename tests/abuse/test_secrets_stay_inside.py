"""Every secret that goes into the programs is looked for in everything that comes out of them: logs at debug, tapes,
events, metrics, errors, explanations, pages."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Endpoint, ModelEndpoint
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.nats_server import NatsServer
from flexinfer.runtime.clock import SystemClock
from flexinfer.testing.fake_engine import FakeEngine
from tests.abuse import raw
from tests.abuse.programs import Running, ended, listening, started
from tests.contract.proxy.rig import chat, until

MARK = "canary"  # every secret holds it, nothing else does


def secret(what: str) -> str:
    return f"{MARK}-{what}-8f2e"


class Ear:
    """Everything said on the bus, bytes as they come."""

    def __init__(self) -> None:
        self.heard = b""

    async def listen(self, port: int, password: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        login = msgspec.json.encode({"verbose": False, "user": "fi", "pass": password})
        writer.write(b"CONNECT " + login + b"\r\nSUB > 1\r\nPING\r\n")
        try:
            while piece := await reader.read(1 << 16):
                self.heard += piece
                if b"PING\r\n" in piece:
                    writer.write(b"PONG\r\n")
        finally:
            writer.transport.abort()


def pod(name: str) -> dict[str, object]:
    """A pod whose manifest holds secrets where people put them."""
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"u-{name}",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": secret("last-applied")},
        },
        "spec": {"containers": [{
            "name": "engine",
            "env": [{"name": "HF_TOKEN", "value": secret("pod-variable")}],
            "args": ["--api-key", secret("pod-flag"), f"--auth-token={secret('pod-flag-joined')}"],
        }]},
    }  # fmt: skip


def asked(path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: h", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def requests(key: str) -> Iterator[bytes]:
    """With secrets in every place a client may put one; some succeed, some are refused for each reason there is."""
    path = "/v1/chat/completions"
    hidden = (f"X-Api-Key: {secret('header')}", f"Cookie: session={secret('cookie')}",
              f"Proxy-Authorization: Basic {secret('proxy-header')}")  # fmt: skip
    prompt = chat().replace(b'"hi"', f'"{secret("prompt")}"'.encode())
    for model in ("m", "nobody"):
        body = prompt.replace(b'"m"', f'"{model}"'.encode())
        yield asked(f"{path}?api_key={secret('query')}", f"Authorization: Bearer {key}", *hidden, body=body)
    yield asked(path, f"Authorization: Bearer {secret('wrong-key')}", *hidden, body=prompt)
    yield asked(path, f"Authorization: Basic {secret('wrong-scheme')}", *hidden, body=prompt)
    yield asked(path, f"Authorization: Bearer {key}", *hidden, body=prompt[:-3])
    yield asked("/shutdown", f"Authorization: Bearer {key}", *hidden, body=prompt)
    yield asked(path, f"Authorization: Bearer {key}\0", *hidden, body=prompt)
    yield asked(f"{path}?token={secret('query')} x", *hidden, body=prompt)
    yield asked(path, f"Authorization: Bearer {key}", f"X-Request-ID: {secret('id')} x", body=prompt)


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[tuple[dict[str, Running], Ear]]:
    """Bus with a password, API, engine, and the programs, each with its secrets and a tape."""
    password = secret("bus-password")
    (folder / "bus").write_text(f"fi:{password}")
    (folder / "keys").write_text(secret("proxy-key"))
    (folder / "check").write_text(secret("check-key"))
    (folder / "wrong").write_text(f"fi:{secret('wrong-password')}")
    async with AsyncExitStack() as stack:
        nats = NatsServer(folder / "nats", options=f'authorization {{ user: fi, password: "{password}" }}\n')
        await nats.start()
        stack.push_async_callback(nats.stop)
        api = await EmbeddedApi().start()
        stack.push_async_callback(api.stop)
        kubeconfig = str(api.write_kubeconfig(folder / "kubeconfig"))
        engine = await FakeEngine().start()
        stack.push_async_callback(engine.stop)
        bus = await NatsBus.start(nats.url, name="manager m", cluster="default", credentials=folder / "bus")
        stack.push_async_callback(bus.close)
        up = asyncio.Event()
        bus.on_connect(up.set)
        await asyncio.wait_for(up.wait(), 60)
        await bus.ensure()
        mint = EventMint.start("manager", "m", "b", SystemClock().now)
        await bus.publish(mint.mint(ModelEndpoint(
            namespace="default", model="m", backend="vllm", endpoints=(Endpoint(url=engine.url, pod="p"),),
        )), durable=True)  # fmt: skip
        ear = Ear()
        ears = asyncio.create_task(ear.listen(nats.port, password))  # noqa: TID251 - cancelled below
        stack.callback(ears.cancel)
        common = ("--log-level", "debug")
        tape = (*common, "--record", str(folder / "tapes"))
        on_bus = ("--nats-url", nats.url, "--nats-credentials", str(folder / "bus"))
        with_url = ("--nats-url", nats.url.replace("://", f"://fi:{secret('url-password')}@"))
        running = {
            "proxy": await started("flexinfer-proxy", folder, *tape, *on_bus, "--api-keys-file", str(folder / "keys"),
                                   path=""),
            "sched": await started("flexinfer-sched", folder, *tape, *on_bus, "--kubeconfig", kubeconfig, path=""),
            "dashboard": await started("flexinfer-dashboard", folder, *tape, *on_bus, path="",
                                       environ={"FLEXINFER_TOKEN": secret("dashboard-token")}),
        }  # fmt: skip
        running["global-proxy"] = await started(
            "flexinfer-global-proxy", folder, *tape, *on_bus, "--check-key-file", str(folder / "check"),
            "--clusters", f"a=http://127.0.0.1:{running['proxy'].port}", path="",
        )  # fmt: skip
        (folder / "wrong-login").mkdir()
        wrong = ("--nats-url", nats.url, "--nats-credentials", str(folder / "wrong"))
        running["wrong login"] = await started("flexinfer-proxy", folder / "wrong-login", *common, *wrong, path="")
        (folder / "wrong-url").mkdir()
        running["wrong URL"] = await started("flexinfer-proxy", folder / "wrong-url", *common, *with_url, path="")
        for one in running.values():
            stack.push_async_callback(ended, one)
        await asyncio.gather(*(listening(one) for one in running.values()))
        for name in ("proxy", "sched", "dashboard"):
            await ready(running[name])
        yield running, ear
        for name in ("proxy", "sched", "dashboard", "global-proxy"):
            running[name].process.terminate()  # a tape is whole when its process has ended
        for name in ("proxy", "sched", "dashboard", "global-proxy"):
            await asyncio.wait_for(running[name].process.wait(), 120)


async def ready(one: Running) -> None:
    for _ in range(1200):
        if await one.status("/readyz") == 200:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(one.said())


async def test_no_secret_comes_out_anywhere(tmp_path: Path) -> None:
    out: dict[str, bytes] = {}
    async with stage(tmp_path) as (running, ear):
        for number, data in enumerate(requests(secret("proxy-key"))):
            for name in ("proxy", "global-proxy"):
                out[f"answer {number} of {name}"] = await raw.reply(running[name].port, data, end=False)
        body = msgspec.json.encode({"Pod": pod("p1"), "NodeNames": ["n1"]})
        for path in ("/filter", "/prioritize"):
            out[f"extender {path}"] = await raw.reply(running["sched"].port, asked(path, body=body), end=False)
        out["explain"] = await raw.reply(running["sched"].port, raw.get("/explain?namespace=default&pod=p1"), end=False)
        given = (f"Authorization: Bearer {secret('dashboard-token')}",)
        out["dashboard"] = await raw.reply(running["dashboard"].port, raw.get("/api/state", *given), end=False)
        wrong = raw.get(f"/api/state?token={secret('wrong-token')}")
        out["dashboard refused"] = await raw.reply(running["dashboard"].port, wrong, end=False)
        for name, one in running.items():
            for page in ("/metrics", "/readyz", "/healthz", "/debug", "/debug/vars", "/status"):
                out[f"{name} {page}"] = await raw.reply(one.port, raw.get(page), end=False)
        await until(lambda: ear.heard.count(b"request.served") >= 2)
        await until(lambda: "bus" in running["wrong URL"].said() and "bus" in running["wrong login"].said())
        out["events"] = ear.heard.partition(b"PONG\r\n")[2]

    assert b"200" in out["dashboard"][:20]
    assert b"401" in out["dashboard refused"][:20]
    assert out["events"].count(b"ai.flexinfer.")
    out |= {f"log of {name}": one.log.read_bytes() for name, one in running.items()}
    tapes = list((tmp_path / "tapes").iterdir())
    assert len(tapes) >= 3
    assert any(b"[redacted]" in tape.read_bytes() for tape in tapes if "scheduler" in tape.name)
    out |= {tape.name: tape.read_bytes() for tape in tapes}
    found = {where: _around(text) for where, text in out.items() if MARK.encode() in text}
    assert not found


def _around(text: bytes) -> bytes:
    at = text.index(MARK.encode())
    return text[max(0, at - 120) : at + 80]
