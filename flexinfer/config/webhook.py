"""Settings of ``flexinfer-webhook``."""

from pathlib import Path

from flexinfer.config.common import Port, Settings, setting


class WebhookSettings(Settings):
    """Validate models and fill in their defaults when they are written to the API."""

    host: str = setting("", "address of the listener; empty: all")
    port: Port = setting(9443, "port of the webhook; 0: a free one")
    metrics_port: Port = setting(8080, "plain port of /metrics, /healthz and /readyz; 0: a free one")
    tls_cert: Path | None = setting(None, "PEM certificate; the API server speaks HTTPS only")
    tls_key: Path | None = setting(None, "PEM key of --tls-cert")
