"""Settings of ``flexinfer-dashboard``."""

from pathlib import Path

from flexinfer.config.common import BusSettings, Duration, Port, RecordSettings, setting


class DashboardSettings(RecordSettings, BusSettings):
    """One live page over the bus: fleet, models, benchmarks, placements, events. Read-only."""

    host: str = setting("", "address of the listener; empty: all")
    port: Port = setting(8088, "port of the page; 0: a free one")
    token: str = setting("", "ask viewers for this token; empty: open")
    tape: Path | None = setting(None, "show this tape, or all tapes of this directory, instead of the bus")
    history: Duration = setting(3600.0, "how far back the page looks in the log of the bus when it starts")
