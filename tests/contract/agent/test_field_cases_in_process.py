"""Every field case, through the real sources, with the machine replayed in process."""

from typing import Any


async def test_the_node_is_described_as_it_is(case: dict[str, Any], replay_of: Any, differences_of: Any) -> None:
    found = await replay_of(case).document()

    assert differences_of(case, found) == []
