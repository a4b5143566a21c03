"""The bus over NATS: core subjects for live copies, JetStream for state and the log."""

from flexinfer.adapters.bus.nats.bus import NatsBus
from flexinfer.adapters.bus.nats.provision import Limits

__all__ = ["Limits", "NatsBus"]
