"""The extender's answers in time, as ratios to a raw ASGI echo of the same bytes on the same server.

One server process (uvloop, httptools) holds the extender over a fleet of virtual nodes and, on another port, an app
that sends the request body back. The client (another process, plain sockets, HTTP/1.1 keep-alive) asks both in turn,
one request each, so that whatever else the machine does meets both; figures are medians over all rounds of the ratio
of the rounds' medians. The ratio of the fastest tenths of all requests is given beside it: on a machine that others
use too, it says what the code costs. Telemetry events arrive in the server as encoded bytes at the stated rate and
are decoded and folded there, spread over the second.

* cold: each request has its own order of nodes, its own pod and its own size of model; nothing can be reused. The
  order is kube-scheduler's: the list rotated to a random start, the nearest names mixed by its parallel workers.
* repeat: the replicas of one Deployment ask about the same nodes in the same order.
* prioritize asks about the survivors of the filter request before it, as kube-scheduler does.

    python benchmarks/extender.py [--rounds 7] [--requests 40] [--output FILE.json]
"""

import argparse
import asyncio
import gc
import json
import multiprocessing as mp
import os
import platform
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from flexinfer.adapters.web.extender import ExtenderApp, Process
from flexinfer.adapters.web.serve import Receive, Scope, Send, WebServer, listen, read_body, respond
from flexinfer.contracts.envelope import EventMint, decode_event, encode_event
from flexinfer.contracts.events import BenchCompleted, Device, DeviceTelemetry, NodeHardware, NodeTelemetry
from flexinfer.core.fleet.fold import STATE_TYPES, fold, replace_state
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.hardware.device_class import device_class
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.scoring import Weights
from flexinfer.runtime.heap import keep_freed_memory
from flexinfer.runtime.process import run_app

CAPTURE = Path(__file__).parents[1] / "tests" / "captures" / "extender"
WORKLOAD = "llama3-8b-0123456789ab"
CARDS = (
    ("NVIDIA GeForce RTX 4090", "sm_89", 58.0),
    ("NVIDIA GeForce RTX 3090", "sm_86", 40.0),
    ("NVIDIA T4", "sm_75", 9.0),
)
MEMORY = 24564


class Fleet:
    """``count`` virtual nodes with one card each, and their telemetry as bytes."""

    def __init__(self, count: int) -> None:
        self.names = [f"gpu-node-{number:05d}.example" for number in range(count)]
        self._random = random.Random(7)
        self._used = {name: 20000 if number % 10 == 9 else 4000 for number, name in enumerate(self.names)}
        self._mints = {name: EventMint.start("agent", name, "boot", time.time) for name in self.names}

    def state(self) -> list[bytes]:
        """Everything a fresh replica reads."""
        found = []
        for number, name in enumerate(self.names):
            product, arch, _ = CARDS[number % 3]
            card = Device(
                index=0, uuid=f"GPU-{name}", vendor="NVIDIA", product=product, arch=arch, memory_mib=MEMORY, int4=True
            )
            found.append(encode_event(self._mints[name].mint(NodeHardware(node=name, devices=(card,)))))
            found.append(self.telemetry(name))
        for product, arch, speed in CARDS:
            card = Device(index=0, uuid="x", vendor="NVIDIA", product=product, arch=arch, memory_mib=MEMORY)
            result = BenchCompleted(
                key=f"k-{arch}", namespace="default", model="m", workload=WORKLOAD, source="s", backend="vllm",
                device_class=device_class(card, 1), tokens_per_second=speed, iterations=5, duration_seconds=30.0,
            )  # fmt: skip
            found.append(encode_event(EventMint.start("bench", arch, "boot", time.time).mint(result)))
        return found

    def telemetry(self, name: str) -> bytes:
        """One node, somewhat busy; one in ten has little memory left."""
        used = self._used[name] + self._random.randrange(500)
        live = DeviceTelemetry(
            index=0, uuid=f"GPU-{name}", util_percent=round(self._random.uniform(0, 100), 1),
            memory_used_mib=used, memory_free_mib=MEMORY - used,
            temperature_celsius=61.0, power_watts=210.0, throttle=(),
        )  # fmt: skip
        data = NodeTelemetry(node=name, interval_seconds=60.0, devices=(live,), cpu_util_percent=20.0)
        return encode_event(self._mints[name].mint(data))


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await respond(send, 200, await read_body(receive, 1 << 30) or b"")


class Server:
    """The child process."""

    def __init__(self, count: int, pipe: Any) -> None:
        self._fleet = Fleet(count)
        self._pipe = pipe
        self._view = FleetView()
        self._rate = 0

    async def run(self) -> int:
        keep_freed_memory()  # as the executable does
        state = self._fleet.state()
        began = time.perf_counter()
        replace_state(self._view, STATE_TYPES, [decode_event(raw) for raw in state], time.time())
        warm = time.perf_counter() - began
        desk = self._desk = Desk(self._view, Weights())

        def written() -> None:
            # What the executable publishes is bounded per second; here it is only written up.
            if desk.waiting > 50:
                while desk.take():
                    pass

        app = ExtenderApp(desk, Process(lambda: None, lambda: (True, {}), time.time, written), 64 << 20)
        servers = [await WebServer(one, listen("127.0.0.1", 0)).start() for one in (app, echo)]
        desk.warm(time.time())
        gc.collect()
        gc.freeze()
        self._pipe.send({"extender": servers[0].port, "echo": servers[1].port, "warm_seconds": warm})
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._command, stop)
        feeding = asyncio.get_running_loop().create_task(self._feed())
        await stop.wait()
        feeding.cancel()
        return 0

    def _command(self, stop: asyncio.Event) -> None:
        command = self._pipe.recv()
        if command is None:
            stop.set()
        else:
            self._rate = command

    async def _feed(self) -> None:
        names = self._fleet.names
        ready: list[bytes] = []
        turn = 0
        owed = 0.0
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            owed += (now - last) * self._rate
            last = now
            while owed >= 1:
                owed -= 1
                if not ready:
                    ready = [self._fleet.telemetry(names[(turn + step) % len(names)]) for step in range(20)]
                    turn += 20
                fold(self._view, decode_event(ready.pop()), time.time())
                self._desk.keep_up(time.time())


def serve(count: int, pipe: Any) -> None:
    run_app(Server(count, pipe).run)


class Connection:
    """HTTP/1.1 with keep-alive over one blocking socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, body: bytes) -> tuple[float, bytes]:
        """Seconds from the first byte sent to the last byte received, and the answer."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        ).encode()
        began = time.perf_counter()
        self._socket.sendall(head + body)
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        headers = bytes(received[:end]).lower()
        length = int(headers.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(received) < end + 4 + length:
            received += self._receive()
        return time.perf_counter() - began, bytes(received[end + 4 :])

    def _receive(self) -> bytes:
        part = self._socket.recv(1 << 20)
        if not part:
            raise ConnectionError("the server closed the connection")
        return part

    def close(self) -> None:
        self._socket.close()


class Requests:
    """Bodies as kube-scheduler sends them."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._random = random.Random(11)
        self._pod = json.loads((CAPTURE / "filter-names.json").read_bytes())["Pod"]
        item = json.loads((CAPTURE / "filter-nodes.json").read_bytes())["Nodes"]["items"][0]
        # The captured nodes are small; real ones carry images and conditions: 6 kB each.
        item["status"]["images"] = [
            {"names": [f"registry.example/image-{n}:tag"], "sizeBytes": 10**9} for n in range(45)
        ]
        self._item = item
        self._number = 0

    def body(self, *, fresh: bool, whole: bool = False) -> bytes:
        """``fresh``: a pod, an order and a size not seen before."""
        self._number += 1
        pod = self._pod
        number = self._number if fresh else 0
        pod["metadata"]["uid"] = f"00000000-0000-0000-0000-{self._number:012d}"
        pod["metadata"]["name"] = f"model-{self._number}"
        pod["metadata"]["annotations"] = {
            "flexinfer.ai/backend": "vllm", "flexinfer.ai/model": "llama3:8b",
            "flexinfer.ai/benchmark-key": WORKLOAD, "flexinfer.ai/gpu.vram-estimate-mb": str(9000 + number % 3000),
        }  # fmt: skip
        names = self._as_found(self._names) if fresh else self._names
        if not whole:
            return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
        items = [self._item | {"metadata": self._item["metadata"] | {"name": name}} for name in names]
        return msgspec.json.encode({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None})

    def _as_found(self, names: list[str]) -> list[str]:
        start = self._random.randrange(len(names))
        rotated = names[start:] + names[:start]
        # 16 workers take chunks of √n nodes; a node can overtake about as many others.
        reach = 16 * int(len(names) ** 0.5)
        keyed = [(position + self._random.random() * reach, name) for position, name in enumerate(rotated)]
        return [name for _, name in sorted(keyed)]


Case = Callable[[], Iterator[tuple[str, bytes]]]


class Bench:
    """One server, one count of nodes."""

    def __init__(self, count: int, rounds: int, requests: int) -> None:
        self.count = count
        self._rounds = rounds
        self._requests = requests
        self._pipe, theirs = mp.Pipe()
        self._process = mp.get_context("spawn").Process(target=serve, args=(count, theirs), daemon=True)
        self._process.start()
        self.ports = self._pipe.recv()
        self.names = Fleet(count).names
        self.requests = Requests(self.names)

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join(10)

    def measure(
        self, path: str, *, fresh: bool, rate: int = 0, whole: bool = False, callers: int = 1
    ) -> dict[str, Any]:
        """Medians over rounds; each round asks echo and extender in turn."""
        self._pipe.send(rate)
        time.sleep(0.05)  # the first events at the new rate
        ratios, ours_all, floor_all = [], [], []
        for _ in range(self._rounds):
            ours, floor = self._round(path, fresh=fresh, whole=whole, callers=callers)
            ratios.append(statistics.median(ours) / statistics.median(floor))
            ours_all += ours
            floor_all += floor
        self._pipe.send(0)
        ours_all.sort()
        floor_all.sort()
        return {
            "nodes": self.count, "path": path, "case": "cold" if fresh else "repeat", "events_per_second": rate,
            "form": "Nodes" if whole else "NodeNames", "callers": callers,
            "ratio_to_echo": round(statistics.median(ratios), 2), "rounds": [round(ratio, 2) for ratio in ratios],
            "ratio_of_fastest_tenths": round(ours_all[len(ours_all) // 10] / floor_all[len(floor_all) // 10], 2),
            "p50_ms": round(statistics.median(ours_all) * 1e3, 3),
            "p99_ms": round(ours_all[int(len(ours_all) * 0.99)] * 1e3, 3),
            "echo_p50_ms": round(statistics.median(floor_all) * 1e3, 3),
            "echo_p99_ms": round(floor_all[int(len(floor_all) * 0.99)] * 1e3, 3),
        }  # fmt: skip

    def _round(self, path: str, *, fresh: bool, whole: bool, callers: int) -> tuple[list[float], list[float]]:
        if callers == 1:
            return self._caller(path, fresh=fresh, whole=whole)
        found: list[tuple[list[float], list[float]]] = []
        threads = [
            threading.Thread(target=lambda: found.append(self._caller(path, fresh=fresh, whole=whole)))
            for _ in range(callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [value for ours, _ in found for value in ours], [value for _, floor in found for value in floor]

    def _caller(self, path: str, *, fresh: bool, whole: bool) -> tuple[list[float], list[float]]:
        extender, floor = Connection(self.ports["extender"]), Connection(self.ports["echo"])
        times: tuple[list[float], list[float]] = ([], [])
        # Made beforehand: a client that works between requests leaves the server's caches to others.
        count = self._requests if fresh else 1
        filters = [self.requests.body(fresh=fresh, whole=whole) for _ in range(count)]
        try:
            body = filters[0] if path == "/filter" else _for_survivors(filters[0], extender)
            for number in range(self._requests):
                if fresh:
                    body = filters[number] if path == "/filter" else _for_survivors(filters[number], extender)
                times[1].append(floor.post("/", body)[0])
                times[0].append(extender.post(path, body)[0])
        finally:
            extender.close()
            floor.close()
        return times


def _for_survivors(body: bytes, extender: Connection) -> bytes:
    """The prioritize request that follows this filter request."""
    answer = extender.post("/filter", body)[1]
    names = answer.partition(b'"NodeNames":')[2].partition(b',"FailedNodes":')[0]
    return body.partition(b',"Nodes":')[0] + b',"Nodes":null,"NodeNames":' + names + b"}"


def folding(count: int = 5000) -> dict[str, Any]:
    """Events per second through decoding and the fold, and through the fold alone."""
    fleet = Fleet(count)
    view = FleetView()
    replace_state(view, STATE_TYPES, [decode_event(raw) for raw in fleet.state()], time.time())
    raws = [fleet.telemetry(name) for name in fleet.names for _ in range(4)]
    began = time.perf_counter()
    events = [decode_event(raw) for raw in raws]
    decoded = time.perf_counter()
    for event in events:
        fold(view, event, 1.0)
    folded = time.perf_counter()
    return {
        "nodes": count, "fold_events_per_second": round(len(raws) / (folded - decoded)),
        "decode_and_fold_events_per_second": round(len(raws) / (folded - began)),
    }  # fmt: skip


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['nodes']:>5} {row['form']:<9} {row['path']:<11} {row['case']:<6} {row['events_per_second']:>4} ev/s "
        f"{row['callers']} caller(s): {row['ratio_to_echo']:>6.2f} × echo "
        f"(fastest tenths {row['ratio_of_fastest_tenths']:.2f}), p50 {row['p50_ms']:.3f} ms "
        f"(echo {row['echo_p50_ms']:.3f}), p99 {row['p99_ms']:.3f} ms",
        flush=True,
    )


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--rounds", type=int, default=7)
    command.add_argument("--requests", type=int, default=40)
    command.add_argument("--nodes", type=int, nargs="*", default=[100, 200, 1000, 5000])
    command.add_argument("--callers", type=int, nargs="*", default=[1, 8])
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "rows": [], "folding": folding(), "warm": {},
    }  # fmt: skip
    print(found["folding"], flush=True)
    for count in options.nodes:
        bench = Bench(count, options.rounds, options.requests)
        found["warm"][count] = round(bench.ports["warm_seconds"], 3)
        print(f"{count} nodes: decoded and folded in {bench.ports['warm_seconds']:.3f} s", flush=True)
        try:
            for callers in options.callers:
                for path in ("/filter", "/prioritize"):
                    for fresh, rate in ((True, 0), (True, 1000), (False, 0), (False, 1000)):
                        row = bench.measure(path, fresh=fresh, rate=rate, callers=callers)
                        found["rows"].append(row)
                        show(row)
                if count <= 1000 and callers == 1:
                    row = bench.measure("/filter", fresh=True, whole=True)
                    found["rows"].append(row)
                    show(row)
        finally:
            bench.close()
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
