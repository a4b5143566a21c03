"""Many simulated agents in one process: a connection, a source and a sequence each, and little else.

Every agent says what the real one says: the state write with its acknowledgement, the live copy, and once a minute the
sampled copy for the log. The protocol is spoken over plain sockets, so that thousands of agents cost less than the
server they talk to. As a process of its own it sends at a steady rate until its standard input ends, and then prints
one line of JSON with what it sent.

    python benchmarks/scale_crowd.py URL NODES [--hertz 1] [--devices 2]
"""

import argparse
import json
import random
import resource
import selectors
import socket
import sys
import time
from urllib.parse import urlsplit

from flexinfer.adapters.bus.nats.writer import state_subject
from flexinfer.adapters.bus.outbound import SAMPLE_SECONDS, pack
from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import Device, DeviceTelemetry, EventData, NodeHardware, NodeTelemetry

MEMORY = 24564
STEPS = 100  # a second is sent in so many parts
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"name":"agent"}\r\nSUB %b 1\r\nPING\r\n'


class Agent:
    """The events of one node."""

    def __init__(self, name: str, devices: int, hertz: float) -> None:
        self.name = name
        self._devices = devices
        self._interval = 1 / hertz
        self._mint = EventMint.start("agent", name, "boot", time.time)
        self.sampled_at = 0.0

    def hardware(self) -> Event:
        cards = tuple(
            Device(
                index=index, uuid=f"GPU-{self.name}-{index}", vendor="NVIDIA", product="NVIDIA L4", arch="sm_89",
                memory_mib=MEMORY, int4=True,
            )
            for index in range(self._devices)
        )  # fmt: skip
        return self._mint.mint(NodeHardware(node=self.name, devices=cards))

    def telemetry(self, dice: random.Random) -> Event:
        def figures(index: int) -> DeviceTelemetry:
            used = dice.randrange(20000)
            return DeviceTelemetry(
                index=index, uuid=f"GPU-{self.name}-{index}", util_percent=round(dice.uniform(0, 100), 1),
                memory_used_mib=used, memory_free_mib=MEMORY - used, temperature_celsius=61.0, power_watts=70.0,
            )  # fmt: skip

        devices = tuple(figures(index) for index in range(self._devices))
        data: EventData = NodeTelemetry(
            node=self.name, interval_seconds=self._interval, devices=devices, cpu_util_percent=20.0,
            memory_free_mib=100_000, kv_cache_ratio=0.0,
        )  # fmt: skip
        return self._mint.mint(data)


def publication(subject: str, payload: bytes, reply: bytes = b"") -> bytes:
    """One message as the protocol writes it."""
    return b"PUB %b %b%d\r\n%b\r\n" % (subject.encode(), reply + b" " if reply else b"", len(payload), payload)


def messages(event: Event, inbox: bytes, *, sampled: bool) -> bytes:
    """All that is sent about an event."""
    parcel = pack(event, "default")
    assert parcel.bucket is not None
    found = publication(state_subject(parcel.bucket, parcel.key), parcel.raw, inbox)
    found += publication(parcel.subject, parcel.raw)
    if sampled and parcel.sampled:
        found += publication(parcel.sampled, parcel.raw)
    return found


class Crowd:
    """``nodes`` agents on as many connections."""

    def __init__(self, url: str, nodes: int, hertz: float, devices: int) -> None:
        address = urlsplit(url)
        self._address = (address.hostname or "127.0.0.1", address.port or 4222)
        self.agents = [Agent(f"gpu-node-{number:05d}", devices, hertz) for number in range(nodes)]
        self._hertz = hertz
        self._dice = random.Random(7)
        self._sockets: list[socket.socket] = []
        self._ready = selectors.DefaultSelector()
        self.sent = self.acknowledged = self.refused = self.bytes = 0
        self.late = 0.0  # most seconds behind
        self._turn = 0

    def connect(self) -> None:
        """Everybody, in turn."""
        for number in range(len(self.agents)):
            one = socket.create_connection(self._address)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.sendall(CONNECT % self._inbox(number))
            self._sockets.append(one)
            self._ready.register(one, selectors.EVENT_READ)
            self._read()

    def introduce(self) -> None:
        """Hardware and a first telemetry of everybody."""
        for number, agent in enumerate(self.agents):
            self._say(number, messages(agent.hardware(), self._inbox(number), sampled=False))
            self._tell(number, time.monotonic() - self._dice.uniform(0, SAMPLE_SECONDS))
            if number % 20 == 0:
                self._read()

    def hum(self, seconds: int) -> None:
        """Telemetry of everybody at the rate, spread evenly."""
        began = time.monotonic()
        per_step = len(self.agents) * self._hertz / STEPS
        for step in range(seconds * STEPS):
            due = began + step / STEPS
            while (now := time.monotonic()) < due:
                self._read(due - now)
            self.late = max(self.late, now - due)
            for number in range(round(per_step * step), round(per_step * (step + 1))):
                self._tell((self._turn + number) % len(self.agents), now)
            self._read()
        self._turn += round(per_step * seconds * STEPS)

    def _tell(self, number: int, now: float) -> None:
        agent = self.agents[number]
        sampled = now - agent.sampled_at >= SAMPLE_SECONDS
        if sampled:
            agent.sampled_at = now
        self._say(number, messages(agent.telemetry(self._dice), self._inbox(number), sampled=sampled))
        self.sent += 1

    def _say(self, number: int, frames: bytes) -> None:
        self._sockets[number].sendall(frames)
        self.bytes += len(frames)

    def _read(self, wait: float = 0.0) -> None:
        """Acknowledgements, and answers to the server's pings."""
        for key, _ in self._ready.select(wait):
            one = key.fileobj
            assert isinstance(one, socket.socket)
            data = one.recv(65536)
            if not data:
                raise ConnectionError("the server closed a connection")
            self.acknowledged += data.count(b'"seq":')
            self.refused += data.count(b'"error":') + data.count(b"-ERR")
            if b"PING\r\n" in data:
                one.sendall(b"PONG\r\n")

    @staticmethod
    def _inbox(number: int) -> bytes:
        return b"_INBOX.crowd.%d" % number

    def close(self) -> None:
        for one in self._sockets:
            one.close()


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("url")
    command.add_argument("nodes", type=int)
    command.add_argument("--hertz", type=float, default=1.0)
    command.add_argument("--devices", type=int, default=2)
    options = command.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * options.nodes + 1000), most))
    crowd = Crowd(options.url, options.nodes, options.hertz, options.devices)
    crowd.connect()
    crowd.introduce()
    print("ready", flush=True)
    ended = selectors.DefaultSelector()
    ended.register(sys.stdin, selectors.EVENT_READ)
    began, sent = time.monotonic(), crowd.sent
    while not ended.select(0):
        crowd.hum(1)
    seconds = time.monotonic() - began
    print(json.dumps({
        "events_per_second": round((crowd.sent - sent) / seconds, 1), "most_behind_seconds": round(crowd.late, 3),
        "acknowledged": crowd.acknowledged, "refused": crowd.refused,
        "bytes_per_event": round(crowd.bytes / max(crowd.sent, 1)),
    }), flush=True)  # fmt: skip
    crowd.close()


if __name__ == "__main__":
    main()
