"""Limits of the proxies' HTTP; times in seconds, sizes in bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a client may do. A head or body that comes slower than this is a slowloris, not a user."""

    head_bytes: int = 64 << 10
    head_seconds: float = 15.0
    body_bytes: int = 64 << 20
    buffered_bytes: int = 1 << 30  # all bodies together
    body_seconds: float = 30.0  # before the least rate counts
    body_rate: float = 2048.0  # bytes/s on average, after that
    idle_seconds: float = 75.0  # between requests
    write_seconds: float = 300.0  # a client that reads nothing for so long is gone
    pipelined: int = 16  # requests read ahead on one connection before reading pauses
    queued: int = 1024  # and at most: one read may hold many
    connections: int = 20_000


@dataclass(slots=True)
class Budget:
    """Bytes of request bodies held at once; one per listener."""

    limit: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """What an engine may do."""

    connect_seconds: float = 5.0
    first_byte_seconds: float = 600.0
    idle_seconds: float = 300.0  # longest silence inside an answer
    head_bytes: int = 256 << 10
    idle_connections: int = 256  # kept open per engine
    # Engines close kept-alive connections after 5 s (uvicorn, cpp-httplib): give them up first.
    keep_seconds: float = 4.0
