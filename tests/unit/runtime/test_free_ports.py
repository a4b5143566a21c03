import socket
from pathlib import Path

from flexinfer.local.ports import free_port


def test_a_free_port_is_none_that_outgoing_connections_get():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < lowest for _ in range(50))


def test_no_port_is_given_twice_even_if_nobody_bound_it():
    ports = [free_port() for _ in range(300)]
    assert len(set(ports)) == len(ports)


def test_a_port_in_use_is_not_given(monkeypatch):
    with socket.socket() as held:
        held.bind(("127.0.0.1", free_port()))
        held.listen()
        taken = held.getsockname()[1]
        monkeypatch.setattr("random.SystemRandom.sample", lambda _self, _range, _count: [taken, taken + 1, taken + 2])
        assert free_port() != taken
