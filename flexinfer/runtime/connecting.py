"""Waiting for a bus, for commands that cannot do anything without one."""

import asyncio

from flexinfer.ports import Bus, BusUnavailable

PATIENCE = 5.0


async def wait_connected(bus: Bus, address: str, patience: float = PATIENCE) -> None:
    """Return once the bus is connected. Raises BusUnavailable with the address and what to do."""
    up = asyncio.Event()
    bus.on_connect(up.set)
    try:
        async with asyncio.timeout(patience):
            await up.wait()
    except TimeoutError:
        raise BusUnavailable(
            f"no bus answers at {address} within {patience:.0f} s; is it running, and is the address right?"
        ) from None
