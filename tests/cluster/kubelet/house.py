"""Pods in namespaces: an address on a bridge, a root of their own for each container, the rights it was given."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubelet import stage
from kubelet.dns import resolv_conf
from kubelet.netns import ip, new_namespace
from kubelet.services import relay

from flexinfer.local.runner.downward import BadReference
from flexinfer.local.runner.environment import Command, command
from flexinfer.local.runner.housing import Files, Home, Launch, Wanted
from flexinfer.local.runner.images import repository

GATEWAY, NETWORK, PREFIX = "10.244.0.1", "10.244", 16
BRIDGE = "pods"
# Parts of /etc that programs read and that hold nothing about this machine's people.
ETC = ("passwd", "group", "ssl", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "mime.types")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FILLED = ("configMap", "secret", "projected", "downwardAPI")

Json = dict[str, Any]


def bridge() -> None:
    """The node's end of all pods, and a way out that leads nowhere, without which no API server starts. Blocks."""
    ip(
        f"link add {BRIDGE} type bridge",
        f"addr add {GATEWAY}/{PREFIX} dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"route add default dev {BRIDGE}",
    )


@dataclass(slots=True)
class House:
    """The pods of all nodes of this kubelet.

    ``visible``: directories of this machine that every image contains at the same path. ``users``: image repository →
    uid that its USER line names, 0 unless listed. ``variables``: of one pod, about Services. ``register``: file that
    gets a line of JSON about each pod and its address.
    """

    visible: Sequence[Path]
    users: Mapping[str, int]
    dns: str
    variables: Callable[[Json], Mapping[str, str]]
    register: Path
    host_ip: str = GATEWAY
    _next: list[int] = field(default_factory=lambda: [9])

    async def enter(self, pod: Json, folder: Path) -> Home:
        """Raises OSError."""
        home = NamespacedHome(self, pod, folder)
        if pod["spec"].get("hostNetwork"):
            home.ip = self.host_ip
        else:
            self._next[0] += 1
            number = self._next[0]
            home.ip = f"{NETWORK}.{number // 250}.{number % 250 + 2}"
            home.network = await asyncio.to_thread(_plug_in, home.ip, f"pod{number}")
            try:
                await home.publish()
            except OSError:
                await home.close()
                raise
        await asyncio.to_thread(self._write_etc, pod, home.ip, folder)
        await asyncio.to_thread(self._tell, pod, home.ip)
        return home

    def _write_etc(self, pod: Json, address: str, folder: Path) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "resolv.conf").write_text(resolv_conf(self.dns, namespace))
        names = f"127.0.0.1 localhost\n::1 localhost\n{address} {pod['spec'].get('hostname') or name}\n"
        for alias in pod["spec"].get("hostAliases") or ():
            names += f"{alias['ip']} {' '.join(alias['hostnames'])}\n"
        (folder / "hosts").write_text(names)
        (folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")

    def _tell(self, pod: Json, address: str) -> None:
        """Addresses are not used twice, so that what was seen on the wire can be understood afterwards."""
        ports = {
            port["name"]: port["containerPort"]
            for container in pod["spec"]["containers"]
            for port in container.get("ports") or ()
            if port.get("name")
        }
        meta = pod["metadata"]
        line = {"ip": address, "namespace": meta["namespace"], "labels": meta.get("labels") or {}, "ports": ports}
        with self.register.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def etc(self, folder: Path) -> list[tuple[str, str]]:
        """(here, in the container)"""
        own = [(str(folder / name), f"/etc/{name}") for name in ("resolv.conf", "hosts", "nsswitch.conf")]
        return own + [(f"/etc/{name}", f"/etc/{name}") for name in ETC if Path("/etc", name).exists()]


def _plug_in(address: str, device: str) -> int:
    handle = new_namespace(
        "link set lo up",
        f"link add eth0 type veth peer name {device} netns {{parent}}",
        f"addr add {address}/{PREFIX} dev eth0",
        "link set eth0 up",
        f"route add default via {GATEWAY}",
    )
    ip(f"link set {device} master {BRIDGE} up")
    return handle


def _leads_to(address: str, port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner = await asyncio.open_connection(address, port)
        except OSError:
            writer.transport.abort()
            return
        await relay((reader, writer), inner)

    return serve


@dataclass(slots=True)
class NamespacedHome:
    """Of one pod."""

    house: House
    pod: Json
    folder: Path
    ip: str = ""
    network: int = -1
    _published: list[asyncio.Server] = field(default_factory=list)

    async def publish(self) -> None:
        """``hostPort``: a port of the node leads to one of the pod. Raises OSError, also when it is taken."""
        for container in self.pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                if port.get("hostPort"):
                    serve = _leads_to(self.ip, int(port["containerPort"]))
                    server = await asyncio.start_server(serve, self.house.host_ip, int(port["hostPort"]))
                    self._published.append(server)

    def variables(self, _files: Files) -> Mapping[str, str]:
        """What a container runtime sets, and the Services."""
        return {"PATH": PATH, **self.house.variables(self.pod)}

    def launch(self, wanted: Wanted) -> Launch:
        """Raises BadReference when it must not run as root and would."""
        name = wanted.container["name"]
        rights = self._rights(wanted.container)
        for volume in self.pod["spec"].get("volumes") or ():
            self._own(volume, wanted.files.volumes[volume["name"]])
        wanted.files.message.parent.mkdir(parents=True, exist_ok=True)
        wanted.files.message.touch()
        wanted.files.message.chmod(0o666)
        started = command(wanted.container, wanted.image, wanted.env, str)
        root = self.folder / "roots" / name
        root.mkdir(parents=True, exist_ok=True)
        spec = {
            **rights,
            "argv": started.argv,
            "cwd": wanted.container.get("workingDir") or "/",
            "root": str(root),
            "binds": self._binds(wanted),
            "network": f"/proc/{os.getpid()}/{'ns/net' if self.network < 0 else f'fd/{self.network}'}",
            "hostname": self.pod["spec"].get("hostname") or self.pod["metadata"]["name"],
        }
        file = self.folder / f"stage-{name}.json"
        file.write_text(json.dumps(spec))
        return Launch(Command((sys.executable, "-IS", stage.__file__, str(file)), started.env), self.folder)

    def beside(self, launch: Launch, pid: int, argv: Sequence[str]) -> Launch:
        """In the container's namespaces, with its rights."""
        spec = json.loads(Path(launch.command.argv[-1]).read_text()) | {"argv": list(argv), "beside": pid}
        return Launch(Command((*launch.command.argv[:-1], json.dumps(spec)), launch.command.env), launch.cwd)

    async def close(self) -> None:
        """The namespace ends with the last process in it."""
        for server in self._published:
            server.close()
        self._published.clear()
        if self.network >= 0:
            os.close(self.network)
            self.network = -1

    def _binds(self, wanted: Wanted) -> list[Json]:
        read_only = {m["mountPath"]: bool(m.get("readOnly")) for m in wanted.container.get("volumeMounts") or ()}
        filled = {v["name"] for v in self.pod["spec"].get("volumes") or () if any(kind in v for kind in FILLED)}
        read_only |= {m["mountPath"]: True for m in wanted.container.get("volumeMounts") or () if m["name"] in filled}
        system = [(str(path), str(path)) for path in (Path("/usr"), *self.house.visible)] + self.house.etc(self.folder)
        own = [{"from": here, "to": there, "read_only": True} for here, there in system]
        return own + [
            {"from": here, "to": there, "read_only": read_only.get(there, False)}
            for there, here in wanted.mounts.items()
        ]

    def _rights(self, container: Json) -> Json:
        of_pod, own = self.pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
        both = of_pod | own
        image = self.house.users.get(repository(str(container["image"])), 0)
        uid = int(image if both.get("runAsUser") is None else both["runAsUser"])
        if both.get("runAsNonRoot") and uid == 0:
            raise BadReference("container has runAsNonRoot and image will run as root")
        extra = [*(of_pod.get("supplementalGroups") or ()), *([of_pod["fsGroup"]] if "fsGroup" in of_pod else ())]
        wanted = own.get("capabilities") or {}
        kept = set() if "ALL" in (wanted.get("drop") or ()) else set(stage.USUAL)
        if own.get("privileged") or "ALL" in (wanted.get("add") or ()):
            kept = set(range(64))
        return {
            "uid": uid,
            "gid": int(both.get("runAsGroup") or 0),
            "groups": sorted({int(group) for group in extra}),
            "capabilities": sorted(kept),
            "no_new_privileges": own.get("allowPrivilegeEscalation") is False,
            "read_only_root": bool(own.get("readOnlyRootFilesystem")),
        }

    def _own(self, volume: Json, path: Path) -> None:
        """``fsGroup``, and emptyDirs open to every user."""
        group = (self.pod["spec"].get("securityContext") or {}).get("fsGroup")
        if "hostPath" in volume:
            return
        if "emptyDir" in volume:
            path.chmod(0o2777 if group is not None else 0o777)
        if group is None:
            return
        for item in (path, *path.rglob("*")):
            os.chown(item, -1, int(group))
            more = 0o2070 if item.is_dir() else (0o040 if any(kind in volume for kind in FILLED) else 0o060)
            item.chmod((item.stat().st_mode | more) & 0o7777)
