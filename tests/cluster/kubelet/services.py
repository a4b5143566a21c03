"""Services as a kube-proxy keeps them: which addresses stand behind each, and connections forwarded to those.

Each ClusterIP is an address of the node's own bridge, so pods and the host reach it by their routes alone. Connections
are copied in user space, without any wish to be clever: a backend that refuses is a refused connection.
"""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kubelet.netns import ip

from flexinfer.adapters.kube.informer import Informer
from flexinfer.contracts.kubernetes import SERVICES, Resource
from flexinfer.ports import KubeApi
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
API = ("default", "kubernetes")
DNS = ("kube-system", "kube-dns")

Address = tuple[str, int]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Front:
    """One TCP port of one ClusterIP."""

    namespace: str
    service: str
    ip: str
    port: int
    name: str


class ServiceTable:
    """What the API says. ``api_server`` stands behind the Service ``kubernetes``, which has no slice here."""

    def __init__(self, api: KubeApi, api_server: Address) -> None:
        self._services = Informer(api, SERVICES, self._changed)
        self._slices = Informer(api, SLICES, self._changed)
        self._api_server = api_server
        self.dirty = asyncio.Event()

    def start(self, tasks: Supervisor) -> None:
        tasks.forever("services", self._services.run)
        tasks.forever("slices", self._slices.run)

    async def wait_synced(self) -> None:
        await self._services.wait_synced()
        await self._slices.wait_synced()

    def _changed(self, _fact: object) -> None:
        self.dirty.set()

    def fronts(self) -> set[Front]:
        """Everything to listen on."""
        return {
            Front(namespace, name, spec["clusterIP"], int(port["port"]), str(port.get("name") or ""))
            for (namespace, name), service in self._services.cache.items()
            if (spec := service["spec"]).get("clusterIP") not in {None, "", "None"} and (namespace, name) != DNS
            for port in spec.get("ports") or ()
            if port.get("protocol", "TCP") == "TCP"
        }

    def backends(self, front: Front) -> list[Address]:
        """The ready addresses; those still serving while they end if no other is left."""
        if (front.namespace, front.service) == API:
            return [self._api_server]
        ready, ending = [], []
        for item in self._slices_of(front.namespace, front.service):
            port = next((p["port"] for p in item.get("ports") or () if (p.get("name") or "") == front.name), None)
            if port is None:
                continue
            for endpoint in item.get("endpoints") or ():
                conditions = endpoint.get("conditions") or {}
                if conditions.get("ready") is not False:
                    ready += [(address, int(port)) for address in endpoint["addresses"]]
                elif conditions.get("serving"):
                    ending += [(address, int(port)) for address in endpoint["addresses"]]
        return ready or ending

    def _slices_of(self, namespace: str, service: str) -> list[dict[str, Any]]:
        return [
            item
            for (where, _name), item in sorted(self._slices.cache.items())
            if where == namespace and item["metadata"].get("labels", {}).get("kubernetes.io/service-name") == service
        ]

    def resolve(self, namespace: str, service: str, host: str | None = None) -> list[str] | None:
        """Addresses of a Service, or of one host of a headless one; None for a name that does not exist."""
        found = self._services.cache.get((namespace, service))
        if found is None:
            return None
        if found["spec"].get("clusterIP") != "None":
            return None if host else [found["spec"]["clusterIP"]]
        addresses = [
            address
            for item in self._slices_of(namespace, service)
            for endpoint in item.get("endpoints") or ()
            if (endpoint.get("conditions") or {}).get("ready") is not False and host in {None, endpoint.get("hostname")}
            for address in endpoint["addresses"]
        ]
        return None if host and not addresses else addresses

    def links(self, namespace: str, *, all_of_namespace: bool) -> dict[str, str]:
        """The variables that a kubelet gives each container about Services."""
        found: dict[str, str] = {}
        for (where, name), service in sorted(self._services.cache.items()):
            address = service["spec"].get("clusterIP")
            wanted = (where, name) == API or (all_of_namespace and where == namespace)
            if wanted and address not in {None, "", "None"}:
                found |= _link(name, address, service["spec"].get("ports") or [])
        return found


def _link(name: str, address: str, ports: list[dict[str, Any]]) -> dict[str, str]:
    prefix = name.upper().replace("-", "_")
    found = {f"{prefix}_SERVICE_HOST": address}
    for index, port in enumerate(ports):
        number, protocol = str(port["port"]), str(port.get("protocol", "TCP"))
        url = f"{protocol.lower()}://{address}:{number}"
        if index == 0:
            found |= {f"{prefix}_SERVICE_PORT": number, f"{prefix}_PORT": url}
        if port.get("name"):
            found[f"{prefix}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = number
        one = f"{prefix}_PORT_{number}_{protocol}"
        found |= {one: url, f"{one}_PROTO": protocol.lower(), f"{one}_PORT": number, f"{one}_ADDR": address}
    return found


class Forwarder:
    """Listens on every front of the table."""

    def __init__(self, table: ServiceTable, device: str) -> None:
        self._table = table
        self._device = device
        self._servers: dict[Front, asyncio.Server] = {}
        self._addresses: dict[str, int] = {}
        self._turn = itertools.count()

    async def run(self) -> None:
        """Until cancelled."""
        await self._table.wait_synced()
        while True:
            self._table.dirty.clear()
            wanted = self._table.fronts()
            for front in self._servers.keys() - wanted:
                self._servers.pop(front).close()
            for front in wanted - self._servers.keys():
                self._servers[front] = await self._listen(front)
            await self._table.dirty.wait()

    async def _listen(self, front: Front) -> asyncio.Server:
        if front.ip not in self._addresses:
            await asyncio.to_thread(ip, f"addr add {front.ip}/32 dev {self._device}")
            self._addresses[front.ip] = 1

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(front, reader, writer)

        return await asyncio.start_server(serve, front.ip, front.port, backlog=512)

    async def _serve(self, front: Front, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backends = self._table.backends(front)
        try:
            if not backends:
                raise ConnectionRefusedError(f"{front.namespace}/{front.service} has no ready address")
            host, port = backends[next(self._turn) % len(backends)]
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
        except OSError as err:
            log.info("%s:%s: %s", front.service, front.port, err)
            writer.transport.abort()
            return
        asked, answered = await relay((reader, writer), (inner_reader, inner_writer))
        if asked and not answered:
            log.info("%s:%s: %s closed without an answer", front.service, front.port, host)


async def relay(outer: Ends, inner: Ends) -> tuple[int, int]:
    """Copy both ways until both are over; a broken side breaks the other, as one connection would. Bytes each way."""
    copied = [0, 0]
    try:
        await asyncio.gather(_copy(outer[0], inner[1], copied, 0), _copy(inner[0], outer[1], copied, 1))
    except OSError:
        for _reader, writer in (outer, inner):
            writer.transport.abort()
    finally:
        outer[1].close()
        inner[1].close()
    return copied[0], copied[1]


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, copied: list[int], way: int) -> None:
    while block := await source.read(65536):
        copied[way] += len(block)
        target.write(block)
        await target.drain()
    with suppress(OSError):
        if target.can_write_eof():
            target.write_eof()


def environment(table: ServiceTable, pod: Mapping[str, Any]) -> dict[str, str]:
    """Service variables of one pod."""
    every = pod["spec"].get("enableServiceLinks") is not False
    return table.links(str(pod["metadata"]["namespace"]), all_of_namespace=every)
