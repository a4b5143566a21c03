"""Where pods live: the address of each, and how its processes get in there.

``Loopback`` is the house of one-machine mode. It needs no root, so there is neither a mount nor a network namespace,
and texts written for a container are rewritten instead. A house with namespaces implements the same two protocols.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flexinfer.contracts.kubernetes import Object
from flexinfer.local.runner.addresses import HOST, Addresses
from flexinfer.local.runner.environment import TERMINATION_LOG, Command, command
from flexinfer.local.runner.images import LocalImage
from flexinfer.local.runner.rewriting import Rewriter

# What a process needs to run at all; the rest of our own environment stays with us.
_INHERITED = ("HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True)
class Files:
    """Where a container's files are: volumes by name, its termination message, its scratch directory."""

    volumes: Mapping[str, Path]
    message: Path
    scratch: Path


@dataclass(frozen=True, slots=True)
class Wanted:
    """A container about to start. ``mounts``: path in the container → path here, its termination message included."""

    container: Object
    image: LocalImage
    env: Mapping[str, str]
    mounts: Mapping[str, str]
    files: Files


@dataclass(frozen=True, slots=True)
class Launch:
    """A process ready to start on this machine."""

    command: Command
    cwd: Path


class Home(Protocol):
    """Of one pod."""

    @property
    def ip(self) -> str:
        """The pod's address."""

    def variables(self, files: Files) -> Mapping[str, str]:
        """Variables that every container starts with."""

    def launch(self, wanted: Wanted) -> Launch:
        """The process that becomes the container. Raises BadReference for a container that may not start here."""

    def beside(self, launch: Launch, pid: int, argv: Sequence[str]) -> Launch:
        """A further process in the running container of ``launch``, whose process is ``pid``."""

    async def close(self) -> None:
        """Nothing of the pod runs any more."""


class Housing(Protocol):
    """Of all pods of one node."""

    @property
    def host_ip(self) -> str:
        """The node's own address."""

    async def enter(self, pod: Object, folder: Path) -> Home:
        """A home for the pod; ``folder`` is the pod's directory. Raises OSError, perhaps not for ever."""


@dataclass(slots=True)
class Loopback:
    """Pods have addresses of 127.0.0.0/8, ``hostNetwork`` ones 127.0.0.1; processes see this machine's files."""

    addresses: Addresses
    base_env: Mapping[str, str] = field(default_factory=lambda: base_environment(os.environ))

    @property
    def host_ip(self) -> str:
        """127.0.0.1."""
        return HOST

    async def enter(self, pod: Object, _folder: Path) -> Home:
        """Keeps the address an earlier runner gave. Raises OSError when no address is left."""
        if pod["spec"].get("hostNetwork"):
            return LoopbackHome(self, HOST, on_host=True)
        return LoopbackHome(self, self.addresses.take(str((pod.get("status") or {}).get("podIP") or "")))


@dataclass(slots=True)
class LoopbackHome:
    """An address and rewritten texts."""

    house: Loopback
    ip: str
    on_host: bool = False

    def variables(self, files: Files) -> Mapping[str, str]:
        """Those of this machine that a program needs, and where it may write."""
        return {**self.house.base_env, "TMPDIR": str(files.scratch), TERMINATION_LOG: str(files.message)}

    def launch(self, wanted: Wanted) -> Launch:
        """Mounted paths and "every address" are rewritten."""
        rewrite = Rewriter(wanted.mounts, None if self.on_host else self.ip)
        cwd = wanted.container.get("workingDir")
        started = command(wanted.container, wanted.image, wanted.env, rewrite)
        return Launch(started, Path(rewrite(str(cwd))) if cwd else wanted.files.scratch)

    def beside(self, launch: Launch, pid: int, argv: Sequence[str]) -> Launch:
        """With the container's environment; ``pid`` does not matter where all share one machine."""
        del pid
        return Launch(Command(tuple(argv), launch.command.env), launch.cwd)

    async def close(self) -> None:
        """Nobody listens there any more."""
        if not self.on_host:
            self.house.addresses.free(self.ip)


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables every container starts with. PATH begins with our own scripts, so that images' programs are found."""
    found = {name: environ[name] for name in _INHERITED if name in environ}
    search = [str(Path(sys.executable).parent), environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")]
    return found | {"PATH": os.pathsep.join(search)}
