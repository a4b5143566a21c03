"""``EmbeddedApi``: the server as one object to start, stop and point clients at."""

import logging
import os
import secrets
from pathlib import Path

import yaml

from flexinfer.adapters.web.serve import WebServer, listen
from flexinfer.local.kubeapi import crds
from flexinfer.local.kubeapi.addresses import ClusterAddresses
from flexinfer.local.kubeapi.app import Application
from flexinfer.local.kubeapi.catalog import Catalog
from flexinfer.local.kubeapi.controllers import Controllers
from flexinfer.local.kubeapi.faults import Faults
from flexinfer.local.kubeapi.keeping import VERSION_GAP, Keeper, Kept
from flexinfer.local.kubeapi.piping import Pipes
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Store
from flexinfer.local.kubeapi.subresources import Logs
from flexinfer.local.kubeapi.watching import Watches
from flexinfer.local.ports import free_port
from flexinfer.ports import Clock
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

NAMESPACES = ("default", "kube-system", "flexinfer-system")


class EmbeddedApi:
    """A Kubernetes API in this process, on loopback, with one user who holds the token.

    The state is in memory and outlives ``stop``: a second ``start`` serves it again, on the same port.
    ``logs`` answers ``pods/log`` and may be set later. ``faults`` makes it misbehave, for tests.
    ``kept``: objects to begin with; ``folder``: where objects are kept from now on, until ``freeze``.
    """

    def __init__(  # noqa: PLR0913 - each is a knob of its own, all with defaults
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        *,
        logs: Logs | None = None,
        clock: Clock | None = None,
        history: int = 1000,
        controllers: bool = True,
        kept: Kept | None = None,
        folder: Path | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self.token = token or secrets.token_urlsafe(32)
        self.clock = clock or SystemClock()
        self.store = Store(history)
        self.catalog = Catalog()
        self.faults = Faults()
        self.registry = Registry(self.store, self.catalog, self.clock)
        self.registry.admission.append(ClusterAddresses(self.store).admit)
        self.store.hook(lambda change: crds.register(self.catalog, change))
        self._tasks = Supervisor("kubeapi")
        self._watches = Watches(self.store, self._tasks)
        self._pipes = Pipes(self._tasks)
        self._app = Application(self.registry, self._watches, self._pipes, self.faults, self.token, logs)
        self._controllers = Controllers(self.registry) if controllers else None
        self._server: WebServer | None = None
        if kept:
            self.store.load(kept.version + VERSION_GAP, kept.entries())
        self._make_namespaces()
        self._keeper = Keeper(self.store, folder) if folder else None

    def _make_namespaces(self) -> None:
        kind = self.catalog.by_kind("v1", "Namespace")
        if kind is None:
            raise RuntimeError("the table of kinds has no Namespace")
        for name in NAMESPACES:
            if self.store.get(kind.bucket, ("", name)) is None:
                self.registry.create(kind, "", {"metadata": {"name": name}})

    @property
    def port(self) -> int:
        """The port it listens on; the one asked for while it is stopped."""
        return self._port

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://{self._host}:{self._port}"

    @property
    def logs(self) -> Logs | None:
        """Who answers pods/log."""
        return self._app.subresources.logs

    @logs.setter
    def logs(self, source: Logs | None) -> None:
        self._app.subresources.logs = source

    async def start(self) -> "EmbeddedApi":
        """Listen and run the controllers. Raises PortBusy."""
        sock = listen(self._host, self._port or free_port(self._host))
        self._server = await WebServer(self._app, sock, drain=2.0).start()
        self._port = self._server.port
        if self._controllers:
            self._controllers.start(self._tasks)
        if self._keeper:
            self._tasks.forever("keeper", self._keeper.run)
        return self

    async def freeze(self) -> None:
        """Save the objects as they are now; what becomes of them later is not kept."""
        if self._keeper:
            await self._keeper.freeze()

    async def stop(self) -> None:
        """End watches cleanly, let requests finish, stop the controllers."""
        self.faults.clear()
        self._watches.end_all()
        self._pipes.end_all()
        if self._server:
            await self._server.stop()
            self._server = None
        await self._tasks.close()

    def drop_watches(self) -> None:
        """Cut the connection of every running watch."""
        self._watches.drop_all()

    def end_watches(self) -> None:
        """End every running watch cleanly, as if its time were up."""
        self._watches.end_all()

    def expire(self, plural_and_group: str | None = None) -> None:
        """Forget history, of one bucket such as ``pods`` or of all: old watches and continue tokens get 410."""
        self.store.forget(plural_and_group)
        self._app.lists.forget()

    def kubeconfig(self) -> dict[str, object]:
        """A kubeconfig with one context, ``flexinfer``.

        The token is in the path too: kubectl sends no credentials over plain HTTP.
        """
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "flexinfer",
            "clusters": [{"name": "flexinfer", "cluster": {"server": f"{self.url}/{self.token}"}}],
            "users": [{"name": "flexinfer", "user": {"token": self.token}}],
            "contexts": [
                {
                    "name": "flexinfer",
                    "context": {"cluster": "flexinfer", "user": "flexinfer", "namespace": "default"},
                }
            ],
        }

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig, readable by this user only."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # The token is in it: the mode must be right before the content is there.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            yaml.safe_dump(self.kubeconfig(), file, sort_keys=False)
        return path
