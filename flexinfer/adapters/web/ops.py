"""``/healthz``, ``/readyz``, ``/metrics``: the same on every executable."""

from collections.abc import Callable

import msgspec

from flexinfer.adapters.web.serve import AsgiApp, Receive, Scope, Send, respond
from flexinfer.telemetry import metrics

Report = Callable[[], tuple[bool, dict[str, str]]]


async def answer_ops(path: str, send: Send, report: Report) -> bool:
    """Answer if ``path`` is one of the three; tells whether it was."""
    if path == "/healthz":
        await respond(send, 200, b"ok\n", b"text/plain; charset=utf-8")
    elif path == "/readyz":
        ready, lines = report()
        await respond(send, 200 if ready else 503, msgspec.json.encode({"ready": ready, "checks": lines}))
    elif path == "/metrics":
        await respond(send, 200, metrics.expose(), metrics.CONTENT_TYPE.encode())
    else:
        return False
    return True


def ops_app(report: Report) -> AsgiApp:
    """An ASGI app with only the ops endpoints."""

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if not await answer_ops(scope["path"], send, report):
            await respond(send, 404, b'{"error":"not found"}')

    return app
