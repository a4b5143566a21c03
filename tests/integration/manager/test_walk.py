"""One model from create to delete on the embedded API."""


async def test_walk(world):
    await world.node()
    world.manage()
    await world.apply()
    await world.phase("Running")
