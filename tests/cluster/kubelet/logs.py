"""What the API server asks a kubelet for when somebody wants the log of a container."""

import ssl
from pathlib import Path

from aiohttp import web

from flexinfer.local.runner import ProcessRunner


async def serve(runner: ProcessRunner, host: str, port: int, chain: Path, key: Path) -> web.AppRunner:
    """``GET /containerLogs/<namespace>/<pod>/<container>`` over HTTPS; ``follow`` gives what there is so far."""

    async def logs(request: web.Request) -> web.Response:
        try:
            text = await runner.log_source(
                request.match_info["namespace"], request.match_info["pod"], request.match_info["container"],
                request.query,
            )  # fmt: skip
        except LookupError as err:
            return web.Response(status=404, text=str(err))
        return web.Response(body=text, content_type="text/plain")

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    server = web.AppRunner(app, access_log=None)
    await server.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    await web.TCPSite(server, host, port, ssl_context=context).start()
    return server
