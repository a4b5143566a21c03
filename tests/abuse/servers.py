"""Every HTTP server of ours over real sockets in this process, by name: its port, and a path that takes a body."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from flexinfer.adapters.web.admission import AdmissionApp
from flexinfer.adapters.web.dashboard.app import dashboard_app
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.dashboard.viewers import Broadcast
from flexinfer.adapters.web.extender import ExtenderApp, Process
from flexinfer.adapters.web.guard import DEFAULT_LIMITS, HttpLimits
from flexinfer.adapters.web.ops import ops_app
from flexinfer.adapters.web.serve import AsgiApp, WebServer, listen
from flexinfer.apps.global_proxy import GlobalProxy
from flexinfer.config.proxy import GlobalProxySettings
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.scoring import Weights
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.runtime.clock import SystemClock
from tests.contract.proxy.rig import rig_of

NAMES = ("extender", "admission", "dashboard", "ops", "embedded-api", "proxy", "global-proxy")
MAX_BODY = 1 << 20


@dataclass(frozen=True)
class Site:
    """Where a server listens; ``path`` takes a body there."""

    port: int
    path: str


def ready() -> tuple[bool, dict[str, str]]:
    return True, {}


def extender(now: float = 1_800_000_000.0) -> ExtenderApp:
    """One without any node."""
    return ExtenderApp(Desk(FleetView(), Weights()), Process(lambda: None, ready, lambda: now), MAX_BODY)


def _apps() -> dict[str, tuple[AsgiApp, str]]:
    board = Broadcast(Board(), SystemClock(), list)
    return {
        "extender": (extender(), "/filter"),
        "admission": (AdmissionApp(ready), "/validate"),
        "dashboard": (dashboard_app(board, ready), "/api/state"),
        "ops": (ops_app(ready), "/metrics"),
    }


@asynccontextmanager
async def serving(name: str, limits: HttpLimits = DEFAULT_LIMITS) -> AsyncIterator[Site]:
    """The server ``name`` until the end of the block; ``limits`` are those of uvicorn's servers."""
    async with AsyncExitStack() as stack:
        if name == "proxy":
            rig = await stack.enter_async_context(rig_of())
            engine = await rig.engine()
            await rig.start(max_body=MAX_BODY)
            await rig.route(engine)
            yield Site(rig.proxy.port, "/v1/chat/completions")
        elif name == "global-proxy":
            settings = GlobalProxySettings(
                host="127.0.0.1", port=0, clusters="a=http://127.0.0.1:9", health_interval=60, max_body=MAX_BODY,
                drain_timeout=2, accept_timeout=0,
            )  # fmt: skip
            proxy = await GlobalProxy(settings, None).start()
            stack.push_async_callback(proxy.stop)
            yield Site(proxy.port, "/v1/chat/completions")
        elif name == "embedded-api":
            api = await EmbeddedApi().start()
            stack.push_async_callback(api.stop)
            yield Site(api.port, f"/{api.token}/api/v1/namespaces/default/configmaps")
        else:
            app, path = _apps()[name]
            server = await WebServer(app, listen("127.0.0.1", 0), drain=1.0, limits=limits).start()
            stack.push_async_callback(server.stop)
            yield Site(server.port, path)
        await asyncio.sleep(0)
