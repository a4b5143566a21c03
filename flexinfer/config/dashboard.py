"""Settings of ``flexinfer-dashboard``."""

from flexinfer.config.common import BusSettings, Port, setting


class DashboardSettings(BusSettings):
    """One live page over the bus: fleet, models, benchmarks, placements, events. Read-only."""

    host: str = setting("", "address of the listener; empty: all")
    port: Port = setting(8088, "port of the page; 0: a free one")
    token: str = setting("", "ask viewers for this token; empty: open")
