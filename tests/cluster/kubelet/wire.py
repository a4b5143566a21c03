"""Who opens a connection to whom, seen on the wire: the first packet of TCP connections, and questions to a DNS."""

import ctypes
import socket
import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

# All protocols: what a bridge passes from one pod to another is shown to nobody who asks for IP alone.
ETH_P_ALL, SO_ATTACH_FILTER = 0x0003, 26
# Classic BPF on the packet: IPv4 without options (0). Of UDP (9) what goes to port 53 (22), of TCP those whose flags
# (33) are SYN but not ACK.
FIRST_PACKETS = (
    (0x30, 0, 0, 0), (0x15, 0, 9, 0x45), (0x30, 0, 0, 9), (0x15, 3, 0, 6), (0x15, 0, 6, 17), (0x28, 0, 0, 22),
    (0x15, 3, 4, 53), (0x30, 0, 0, 33), (0x54, 0, 0, 0x12), (0x15, 0, 1, 2), (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0),
)  # fmt: skip
PROTOCOLS = {6: "TCP", 17: "UDP"}


class Opened(NamedTuple):
    """Addresses as on the wire: the target may be that of a Service."""

    source: str
    target: str
    port: int
    protocol: str = "TCP"


class Wire:
    """Listens in the network of the thread that makes it, until ``close``."""

    def __init__(self) -> None:
        self._seen: set[Opened] = set()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._filter(FIRST_PACKETS)
        self._socket.settimeout(0.5)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def seen(self) -> set[Opened]:
        """So far."""
        return set(self._seen)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._socket.close()

    def _filter(self, program: Sequence[tuple[int, int, int, int]]) -> None:
        code = b"".join(struct.pack("HBBI", *line) for line in program)
        buffer = ctypes.create_string_buffer(code)
        self._socket.setsockopt(
            socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(buffer))
        )

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                packet = self._socket.recv(65536)
            except TimeoutError:
                continue
            protocol = PROTOCOLS.get(packet[9]) if len(packet) >= 34 and packet[0] == 0x45 else None
            if protocol is None:
                continue  # it came before there was a filter
            port = struct.unpack_from("!H", packet, 22)[0]
            if port == 53 if protocol == "UDP" else packet[33] & 0x12 == 2:
                ends = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
                self._seen.add(Opened(*ends, port, protocol))
