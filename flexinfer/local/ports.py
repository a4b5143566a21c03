"""Free TCP ports that stay free between being found and being bound."""

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 15_000
_LOWEST_EPHEMERAL = 32_768  # Linux's default; other systems start higher
_TRIES = 200
_given: set[int] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that can be bound on ``host`` now, below those that outgoing connections are given; never the same twice.

    A port that the kernel hands out for port 0 may become the local end of anybody's next connection before its
    server binds it; and a client that keeps trying a dead port of that range can, in the end, connect to itself.
    Raises OSError if the host is no address of this machine or everything is taken.
    """
    for port in random.SystemRandom().sample(range(_LOWEST, _first_ephemeral()), _TRIES):
        if port not in _given and bindable(host, port):
            _given.add(port)
            return port
    raise OSError(f"no free port found on {host} in {_TRIES} tries")


def bindable(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
        return True


def _first_ephemeral() -> int:
    try:
        lowest = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _LOWEST_EPHEMERAL
    return lowest if lowest > _LOWEST + _TRIES else _LOWEST_EPHEMERAL
