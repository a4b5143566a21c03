"""The Node object of this machine and its heartbeat."""

import asyncio
import logging
import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from flexinfer import __version__
from flexinfer.adapters.kube.times import micro_time
from flexinfer.adapters.kube.times import time as rfc3339
from flexinfer.contracts.kubernetes import LEASES, NAMESPACES, NODES, Object
from flexinfer.local.runner.addresses import HOST
from flexinfer.ports import Clock, Conflict, KubeApi, KubeError, KubeUnavailable, NotFound

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40  # the kubelet's: renewed every quarter of it
STATUS_SECONDS = 60.0
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the node is reached. ``log_port``: of its HTTPS server for logs, None without one."""

    address: str = HOST
    log_port: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What the Node says about the machine."""

    cpus: int
    memory_kib: int
    disk_bytes: int
    architecture: str
    kernel: str
    boot_id: str
    extra: Mapping[str, str] = field(default_factory=dict)

    def capacity(self) -> dict[str, str]:
        """Resources as quantities."""
        return {
            "cpu": str(self.cpus),
            "memory": f"{self.memory_kib}Ki",
            "ephemeral-storage": str(self.disk_bytes),
            "pods": "110",
            **self.extra,
        }


def this_machine(work: Path, extra: Mapping[str, str]) -> Machine:
    """Read from the operating system. ``extra``: further resources, such as ``nvidia.com/gpu``."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    boot = Path("/proc/sys/kernel/random/boot_id")
    return Machine(
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_kib=pages * size // 1024,
        disk_bytes=shutil.disk_usage(work).total,
        architecture=ARCHITECTURES.get(platform.machine(), platform.machine()),
        kernel=platform.release(),
        boot_id=boot.read_text().strip() if boot.exists() else "",
        extra=extra,
    )


class NodeObject:
    """Creates the Node, keeps it Ready, renews its Lease."""

    def __init__(
        self, api: KubeApi, name: str, machine: Machine, clock: Clock, labels: Mapping[str, str], place: Place
    ) -> None:

        self._api = api
        self._name = name
        self._machine = machine
        self._clock = clock
        self._labels = labels
        self._place = place
        self._since = clock.now()
        self._uid = ""
        self._created = False

    async def ensure(self) -> None:
        """Create or update it. Raises KubeError, KubeUnavailable."""
        body = node_object(self._name, self._machine, self._labels)
        try:
            found = await self._api.create(NODES, body)
            self._created = True
        except Conflict:
            found = await self._api.patch(NODES, self._name, {"metadata": {"labels": body["metadata"]["labels"]}})
        self._uid = str(found["metadata"].get("uid") or "")
        await self._write_status()

    async def run(self) -> None:
        """Heartbeats until cancelled; a Node that was deleted is created again."""
        loop = asyncio.get_running_loop()
        told = float("-inf")
        while True:
            try:
                if not self._uid:
                    await self.ensure()
                    told = loop.time()
                elif loop.time() - told >= STATUS_SECONDS:
                    await self._write_status()
                    told = loop.time()
                await self._renew()
            except NotFound:
                self._uid = ""
            except (KubeError, KubeUnavailable) as err:
                log.warning("node heartbeat: %s", err)
            await asyncio.sleep(LEASE_SECONDS / 4 if self._uid else 1.0)

    async def remove(self) -> None:
        """Delete Node and Lease if this runner created the Node. Raises KubeError, KubeUnavailable."""
        if self._created:
            await self._api.delete(NODES, self._name, uid=self._uid or None)
            with suppress(NotFound):  # the garbage collector may have been quicker
                await self._api.delete(LEASES, self._name, LEASE_NAMESPACE)

    async def _write_status(self) -> None:
        status = node_status(self._name, self._machine, self._place, self._since, self._clock.now())
        await self._api.patch(NODES, self._name, {"status": status}, kind="strategic", subresource="status")

    async def _renew(self) -> None:
        spec = {
            "holderIdentity": self._name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro_time(self._clock.now()),
        }
        try:
            await self._api.patch(LEASES, self._name, {"spec": spec}, LEASE_NAMESPACE)
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._uid}
            meta = {"name": self._name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
            await self._ensure_namespace()
            await self._api.create(LEASES, {**head, "metadata": meta, "spec": spec}, LEASE_NAMESPACE)

    async def _ensure_namespace(self) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
        with suppress(Conflict):
            await self._api.create(NAMESPACES, body)


def node_object(name: str, machine: Machine, labels: Mapping[str, str]) -> Object:
    """The Node without its status."""
    own = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {**own, **labels}}, "spec": {}}


def node_status(name: str, machine: Machine, place: Place, since: float, now: float) -> Object:
    """Capacity, addresses, conditions, nodeInfo. ``since``: when this runner began."""
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [
        _condition(kind, "False", f"KubeletHasNo{kind}", "not measured by the process runner", since, now)
        for kind in pressures
    ]
    ready = _condition("Ready", "True", "KubeletReady", "process runner is ready", since, now)
    endpoints = {} if place.log_port is None else {"kubeletEndpoint": {"Port": place.log_port}}
    return {
        "daemonEndpoints": endpoints,
        "capacity": machine.capacity(),
        "allocatable": machine.capacity(),
        "addresses": [{"type": "InternalIP", "address": place.address}, {"type": "Hostname", "address": name}],
        "conditions": [*conditions, ready],
        "nodeInfo": {
            "architecture": machine.architecture,
            "bootID": machine.boot_id,
            "containerRuntimeVersion": f"process://{__version__}",
            "kernelVersion": machine.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": f"v{__version__}-flexinfer",
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "local processes",
            "systemUUID": "",
        },
    }


def _condition(kind: str, status: str, reason: str, message: str, since: float, now: float) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": rfc3339(now),
        "lastTransitionTime": rfc3339(since),
    }
