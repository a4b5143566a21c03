"""Network namespaces without names: nothing to clean up, each ends with the last process or descriptor in it."""

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

CLONE_NEWNET = 0x4000_0000
THIS_THREAD = "/proc/thread-self/ns/net"

_libc = ctypes.CDLL(None, use_errno=True)


def ip(*lines: str) -> None:
    """Run lines of ``ip -batch`` in the caller's namespace. Raises OSError with what ``ip`` says."""
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(["ip", "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip: {done.stderr.strip()} (in: {'; '.join(lines)})")


def _enter(handle: int) -> None:
    if _libc.setns(handle, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _leave_for_new() -> None:
    if _libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def private_network() -> Iterator[None]:
    """The calling thread, and what it starts, gets a network with nothing but a loopback device."""
    before = os.open(THIS_THREAD, os.O_RDONLY)
    try:
        _leave_for_new()
        try:
            ip("link set lo up")
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def new_namespace(*setup: str) -> int:
    """A descriptor of a new namespace, set up by lines of ``ip``. ``{parent}`` in a line is the caller's. Blocks."""
    parent = os.open(THIS_THREAD, os.O_RDONLY)
    made: list[int] = []
    failed: list[OSError] = []

    def work() -> None:  # a thread of its own, because a namespace belongs to a thread
        try:
            _leave_for_new()
            ip(*(line.format(parent=f"/proc/{os.getpid()}/fd/{parent}") for line in setup))
            # As container runtimes have it: no rights are needed to listen on a low port of one's own.
            Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")
            made.append(os.open(THIS_THREAD, os.O_RDONLY))
        except OSError as err:
            failed.append(err)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    os.close(parent)
    if failed:
        raise failed[0]
    return made[0]


@cache
def missing() -> str:
    """Why namespaces cannot be had here, empty if they can."""
    if os.geteuid() != 0:
        return "network and mount namespaces need root"
    if shutil.which("ip") is None:
        return "the `ip` command is missing (Debian package iproute2)"
    try:
        os.close(new_namespace("link set lo up", "link add eth0 type veth peer name other"))
    except OSError as err:
        return f"there are no network namespaces here: {err}"
    return ""
