"""``flexinfer-webhook``: models are checked, and completed, when they are written to the API."""

import logging
from contextlib import AsyncExitStack

from flexinfer.adapters.web.admission import AdmissionApp
from flexinfer.adapters.web.ops import ops_app
from flexinfer.adapters.web.serve import TlsFiles, WebServer, listen
from flexinfer.config.webhook import WebhookSettings
from flexinfer.runtime.process import fail, stop_signals
from flexinfer.runtime.readiness import Readiness

log = logging.getLogger(__name__)


async def run(settings: WebhookSettings) -> int:
    """Serve until a signal; the exit code."""
    if settings.tls_cert is None or settings.tls_key is None:
        return fail("flexinfer-webhook: no certificate; give --tls-cert and --tls-key", 2)
    stop = stop_signals()
    ready = Readiness()
    tls = TlsFiles(str(settings.tls_cert), str(settings.tls_key))
    async with AsyncExitStack() as stack:
        plain = await WebServer(ops_app(ready.report), listen(settings.host, settings.metrics_port), drain=1.0).start()
        stack.push_async_callback(plain.stop)
        server = await WebServer(
            AdmissionApp(ready.report), listen(settings.host, settings.port), drain=5.0, tls=tls
        ).start()
        stack.push_async_callback(server.stop)
        log.info("webhook on port %d, ops on port %d", server.port, plain.port)
        await stop.wait()
        ready.draining = True
    return 0
