"""``flexinfer events tail`` when the bus is faster: every event is shown, counted as dropped, or told missing."""

from pathlib import Path

from benchmarks.events_tail import measure

BURST = 20_000


async def test_nothing_is_lost_without_a_word(bus_url: str, tmp_path: Path) -> None:
    found = await measure(tmp_path, bus_url, BURST, 0)

    shown, dropped = int(str(found["shown"])), int(str(found["said_dropped"]))
    assert 0 < shown <= BURST
    assert shown + dropped >= BURST or found["said_missing"]
    if not found["said_missing"] and not dropped:
        assert shown == BURST
