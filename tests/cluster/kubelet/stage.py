"""Becomes a container: enters the pod's network namespace, sets up a root of its own, drops rights, executes.

``python -IS stage.py SPEC``: a JSON file or text, as house.py writes it. Only the standard library, because it starts
before anything of the container; the process keeps its number, so that whoever started it can signal it.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS = 0x0002_0000, 0x0400_0000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
# What container runtimes leave to a container that asks for nothing: chown, dac_override, fowner, fsetid, kill,
# setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap.
USUAL = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Raises OSError."""
    found = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode() or None)
    _check(found, f"mount {source} on {target}")


def join(path: str, kind: int = 0) -> None:
    """Enter the namespace behind ``path``. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(handle, kind), f"enter {path}")
    finally:
        os.close(handle)


def _bind(source: str, target: Path, *, read_only: bool) -> None:
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.touch()
    mount(source, str(target), flags=MS_BIND | MS_REC)
    if read_only:
        mount("", str(target), flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def _devices(root: Path) -> None:
    mount("tmpfs", str(root / "dev"), "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        _bind(f"/dev/{name}", root / "dev" / name, read_only=False)
    (root / "dev/shm").mkdir()
    mount("tmpfs", str(root / "dev/shm"), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (root / "dev" / name).symlink_to(target)


def _root(spec: dict) -> None:
    """The image's files read-only below a fresh root, then what the pod mounts, outer paths first."""
    root = Path(spec["root"])
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", str(root), "tmpfs", MS_NOSUID, "mode=755")
    for name in ("proc", "sys", "dev", "run", "var/tmp", "etc", "root"):
        (root / name).mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            (root / name).symlink_to(path.readlink())
        elif path.exists():
            _bind(str(path), root / name, read_only=True)
    mount("/proc", str(root / "proc"), flags=MS_BIND | MS_REC)
    mount("/sys", str(root / "sys"), flags=MS_BIND | MS_REC)
    _devices(root)
    for bind in sorted(spec["binds"], key=lambda bind: bind["to"].count("/")):
        _bind(bind["from"], root / bind["to"].lstrip("/"), read_only=bind["read_only"])
    if spec["read_only_root"]:
        mount("", str(root), flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID)
    os.chroot(root)


def _drop(spec: dict) -> None:
    for number in range(41):
        if number not in spec["capabilities"]:
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # an unknown one on an older kernel is refused: nothing lost
    os.setgroups(spec["groups"])
    os.setresgid(spec["gid"], spec["gid"], spec["gid"])
    os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    if spec["no_new_privileges"]:
        _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    # The kernel forgets the death signal when the user changes.
    parent = os.getppid()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _become(spec: dict) -> None:
    beside = spec.get("beside")
    if beside:
        for kind in ("net", "uts", "mnt"):
            join(f"/proc/{beside}/ns/{kind}")
        os.chroot(f"/proc/{beside}/root")
    else:
        join(spec["network"])
        _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWUTS), "unshare")
        _check(_libc.sethostname(spec["hostname"].encode(), len(spec["hostname"])), "sethostname")
        _root(spec)
    os.chdir("/")
    _drop(spec)
    os.chdir(spec["cwd"])
    os.execvpe(spec["argv"][0], spec["argv"], os.environ)


def main() -> None:
    """Does not return."""
    text = sys.argv[1]
    spec = json.loads(text if text.startswith("{") else Path(text).read_text())
    try:
        _become(spec)
    except OSError as err:
        sys.stderr.write(f"cannot start {spec['argv'][0]!r}: {err}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
