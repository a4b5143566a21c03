"""From an unbound pod to a binding, over real HTTP, a real bus and the embedded API."""

import msgspec

from flexinfer.contracts.kubernetes import EVENTS, PODS


async def test_pods_go_to_the_fast_card_first_then_to_the_next_and_then_wait(cluster):
    await cluster.gpu_node("slow", "3090")
    await cluster.gpu_node("fast", "4090")
    for kind, speed in (("4090", 58.0), ("3090", 10.0)):
        await cluster.measured("m-0123456789ab", kind, speed)
    url, _ = await cluster.extender()
    cluster.schedule(url)

    await cluster.pod("one", key="m-0123456789ab", vram="9000")
    await cluster.until(lambda: cluster.node_of("one"), "one bound")
    await cluster.pod("two", key="m-0123456789ab", vram="9000")
    await cluster.until(lambda: cluster.node_of("two"), "two bound")
    await cluster.pod("three", key="m-0123456789ab", vram="9000")

    async def condition():
        found = await cluster.api.get(PODS, "three", "default")
        return [c for c in found.get("status", {}).get("conditions", []) if c["type"] == "PodScheduled"]

    (scheduled,) = await cluster.until(condition, "three told that it does not fit")
    assert (await cluster.node_of("one"), await cluster.node_of("two")) == ("fast", "slow")
    assert scheduled["status"] == "False"
    assert scheduled["reason"] == "Unschedulable"
    assert scheduled["message"] == "0/2 nodes are available: 2 flexinfer: no free accelerator."

    await cluster.until(lambda: len(cluster.decisions) >= 3, "three decisions on the bus")
    assert [(d.pod, d.outcome) for d in cluster.decisions[:3]] == [
        ("one", "ranked"), ("two", "single"), ("three", "rejected"),
    ]  # fmt: skip
    explained = await cluster.get(f"{url}/explain?namespace=default&pod=one")
    assert [c["node"] for c in explained["candidates"]] == ["fast", "slow"]
    changed = await cluster.get(f"{url}/explain?namespace=default&pod=one&what-if=weights.tps=0")
    assert changed["candidates"][0]["sum"] == changed["candidates"][1]["sum"]

    async def events():
        found = await cluster.api.list(EVENTS, "default")
        return {(e["regarding"]["name"], e["reason"]) for e in found.items}

    wanted = {("one", "PlacementRanked"), ("one", "Scheduled"), ("three", "FailedScheduling")}
    await cluster.until(lambda: within(events, wanted), "events on the pods")

    await cluster.api.delete(PODS, "one", "default", grace_seconds=0)
    await cluster.until(lambda: cluster.node_of("three"), "three takes the place of one")
    assert await cluster.node_of("three") == "fast"


async def within(events, wanted) -> bool:
    return wanted <= await events()


async def test_flexinfer_explain_tells_the_decision_and_what_other_weights_would_do(cluster):
    await cluster.gpu_node("slow", "3090", util=0.0)
    await cluster.gpu_node("fast", "4090", util=60.0)
    for kind, speed in (("4090", 58.0), ("3090", 10.0)):
        await cluster.measured("m-0123456789ab", kind, speed)
    url, _ = await cluster.extender("--shadow-weights", "tps=0")
    cluster.schedule(url)
    await cluster.pod("one", key="m-0123456789ab")
    await cluster.until(lambda: cluster.decisions, "decided")

    async def ranked(*flags):
        text = await cluster.command("explain", "pod/one", "--output", "json", *flags)
        return [candidate["node"] for candidate in msgspec.json.decode(text)["candidates"]] if text else []

    assert await cluster.until(ranked, "in the log") == ["fast", "slow"]
    assert await ranked("--what-if", "weights.tps=0") == ["slow", "fast"]
    assert "1 of 1 decisions (100 %) would have led to another node" in await cluster.command("explain", "shadow")
