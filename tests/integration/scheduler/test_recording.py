"""A recorded run replays: the same facts give the same decisions, to the byte."""

import msgspec

from flexinfer.runtime.journal import Webhook, read_tape
from flexinfer.testing.replay_scheduler import replay

KEY = "m-0123456789ab"


async def test_a_recorded_run_gives_the_same_decisions_when_replayed(cluster, tmp_path):
    await cluster.gpu_node("slow", "3090")
    await cluster.gpu_node("fast", "4090", util=20.0)
    for kind, speed in (("4090", 58.0), ("3090", 10.0)):
        await cluster.measured(KEY, kind, speed)
    url, process = await cluster.extender("--record", str(tmp_path / "tape"), "--weight-cost", "0.2")
    cluster.schedule(url)
    for number in range(3):
        await cluster.pod(f"pod-{number}", key=KEY, vram="9000")
    await cluster.until(lambda: len(cluster.decisions) >= 3, "three decisions")
    published = {decision.pod_uid: decision for decision in cluster.decisions}
    process.terminate()
    await process.wait()

    (path,) = (tmp_path / "tape").iterdir()
    tape = read_tape(path)
    found, again = replay(tape), replay(tape)

    assert tape.bad == ()
    assert {fact.path for _, fact in tape.facts if isinstance(fact, Webhook)} == {"filter", "prioritize"}
    replayed = {decision.pod_uid: decision for decision in found.decisions if decision.pod_uid in published}
    assert len(published) == 3
    for uid, decision in published.items():
        assert any(msgspec.json.encode(one) == msgspec.json.encode(decision) for one in found.decisions), uid
    assert replayed.keys() == published.keys()
    assert msgspec.json.encode(found.decisions) == msgspec.json.encode(again.decisions)
    assert found.answers == again.answers
