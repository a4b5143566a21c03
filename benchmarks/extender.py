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

* tail: rounds without and with events in turn, cold requests; the ratio of the medians of the rounds' p99.

    python benchmarks/extender.py [--rounds 5] [--requests 30] [--output FOLDER]

writes extender.json and extender.svg.
"""

import argparse
import json
import multiprocessing as mp
import random
import socket
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from extender_chart import chart
from extender_server import WORKLOAD, Fleet, serve
from measuring import machine

from flexinfer.contracts.envelope import decode_event
from flexinfer.core.fleet.fold import STATE_TYPES, fold, replace_state
from flexinfer.core.fleet.view import FleetView

CAPTURE = Path(__file__).parents[1] / "tests" / "captures" / "extender"


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
        self._events(rate)
        ratios, ours_all, floor_all = [], [], []
        for _ in range(self._rounds):
            ours, floor = self._round(path, fresh=fresh, whole=whole, callers=callers)
            ratios.append(statistics.median(ours) / statistics.median(floor))
            ours_all += ours
            floor_all += floor
        self._events(0)
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

    def tail(self, rate: int, requests: int = 150) -> dict[str, Any]:
        """p99 of cold filter requests with events and without, in turn."""
        extender = Connection(self.ports["extender"])
        bodies = [self.requests.body(fresh=True) for _ in range(requests)]
        p99: dict[int, list[float]] = {0: [], rate: []}
        for _ in range(self._rounds):
            for now, found in p99.items():
                self._events(now)
                times = sorted(extender.post("/filter", body)[0] for body in bodies)
                found.append(times[int(requests * 0.99)] * 1e3)
        self._events(0)
        extender.close()
        idle, busy = statistics.median(p99[0]), statistics.median(p99[rate])
        return {
            "nodes": self.count, "events_per_second": rate, "p99_idle_ms": round(idle, 3),
            "p99_events_ms": round(busy, 3), "ratio": round(busy / idle, 2),
        }  # fmt: skip

    def _events(self, rate: int) -> None:
        self._pipe.send(rate)
        self._pipe.recv()
        time.sleep(0.05)  # the first events at the new rate

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


def cases(bench: Bench, callers: int) -> list[dict[str, Any]]:
    """All rows for one fleet and number of callers."""
    asked = [(True, 0), (True, 1000), (False, 0), (False, 1000)] if callers == 1 else [(True, 1000), (False, 1000)]
    if bench.count > 1000 and callers == 1:
        asked.append((True, bench.count))  # telemetry of every node at 1 Hz
    rows = []
    for path in ("/filter", "/prioritize"):
        for fresh, rate in asked:
            rows.append(bench.measure(path, fresh=fresh, rate=rate, callers=callers))
            show(rows[-1])
    if bench.count <= 1000 and callers == 1:
        rows.append(bench.measure("/filter", fresh=True, whole=True))
        show(rows[-1])
    return rows


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--rounds", type=int, default=5)
    command.add_argument("--requests", type=int, default=30)
    command.add_argument("--nodes", type=int, nargs="*", default=[100, 200, 1000, 5000])
    command.add_argument("--callers", type=int, nargs="*", default=[1, 8])
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found: dict[str, Any] = {
        "machine": machine(),
        "method": (__doc__ or "").strip(), "rows": [], "tails": [], "folding": folding(), "warm_seconds": {},
    }  # fmt: skip
    print(found["folding"], flush=True)
    for count in options.nodes:
        bench = Bench(count, options.rounds, options.requests)
        found["warm_seconds"][count] = round(bench.ports["warm_seconds"], 3)
        print(f"{count} nodes: decoded and folded in {bench.ports['warm_seconds']:.3f} s", flush=True)
        try:
            for callers in options.callers:
                found["rows"] += cases(bench, callers)
            found["tails"].append(bench.tail(1000))
            print(found["tails"][-1], flush=True)
        finally:
            bench.close()
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "extender.json").write_text(json.dumps(found, indent=1) + "\n")
        (options.output / "extender.svg").write_text(chart(found["rows"]))


if __name__ == "__main__":
    main()
