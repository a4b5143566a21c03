"""A DNS server that knows the Services of the cluster and nothing else."""

import asyncio
import struct
from typing import cast

from kubelet.services import ServiceTable

ZONE = "cluster.local"
A, AAAA, ANY = 1, 28, 255
NO_ERROR, NO_SUCH_NAME, NOT_IMPLEMENTED = 0, 3, 4
TTL = 5


def question(message: bytes) -> tuple[str, int, int]:
    """(lower-case name without the last dot, type, where the question ends). Raises ValueError for anything odd."""
    labels, at = [], 12
    try:
        while length := message[at]:
            if length > 63:
                raise ValueError("a compressed name in a question")
            labels.append(message[at + 1 : at + 1 + length].decode("ascii").lower())
            at += 1 + length
        kind = struct.unpack_from("!H", message, at + 1)[0]
    except (IndexError, struct.error) as err:
        raise ValueError("the question is cut off") from err
    return ".".join(labels), kind, at + 5


def answer(message: bytes, table: ServiceTable) -> bytes:
    """The reply to one query. Raises ValueError for what is not a query with one question."""
    if len(message) < 17 or message[2] & 0x80 or message[4:6] != b"\0\1":
        raise ValueError("not a query with one question")
    name, kind, end = question(message)
    found = lookup(name, table)
    code = NO_SUCH_NAME if found is None else NO_ERROR
    records = b""
    addresses = found if found and kind in {A, ANY} else []
    for address in addresses:
        octets = bytes(map(int, address.split(".")))
        records += struct.pack("!HHHIH", 0xC00C, A, 1, TTL, 4) + octets
    flags = 0x8580 | code | (struct.unpack_from("!H", message, 2)[0] & 0x0100)
    return message[:2] + struct.pack("!HHHHH", flags, 1, len(addresses), 0, 0) + message[12:end] + records


def lookup(name: str, table: ServiceTable) -> list[str] | None:
    """``<service>.<namespace>.svc.cluster.local``, or ``<host>.`` before it for a headless Service."""
    if not name.endswith(f".svc.{ZONE}"):
        return None
    parts = name.removesuffix(f".svc.{ZONE}").split(".")
    if len(parts) == 2:
        return table.resolve(parts[1], parts[0])
    if len(parts) == 3:
        return table.resolve(parts[2], parts[1], parts[0])
    return None


class Server(asyncio.DatagramProtocol):
    """Over UDP."""

    def __init__(self, table: ServiceTable) -> None:
        self._table = table
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        try:
            self._transport.sendto(answer(data, self._table), addr)
        except (ValueError, UnicodeDecodeError):
            return  # silence, as for noise


def resolv_conf(server: str, namespace: str) -> str:
    """What a kubelet writes for ``dnsPolicy: ClusterFirst``."""
    return f"search {namespace}.svc.{ZONE} svc.{ZONE} {ZONE}\nnameserver {server}\noptions ndots:5\n"
