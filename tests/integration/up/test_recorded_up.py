"""What a recorded system did is what its tapes decide again: effect by effect, placement by placement."""

import json
from pathlib import Path

import msgspec
from driving import Up

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted, NodeHardware, PlacementDecided
from flexinfer.ports import Relisted
from flexinfer.runtime.effect_lines import effect_body
from flexinfer.runtime.interpreter import Outcome
from flexinfer.testing.replay import load, replay

EXAMPLES = Path(__file__).resolve().parents[3] / "flexinfer" / "local" / "examples"

encode = msgspec.json.Encoder(order="deterministic").encode


def test_tapes_of_the_home_lab_give_what_was_done(tmp_path: Path) -> None:
    tmp, folder = tmp_path / "tmp", tmp_path / "tapes"
    tmp.mkdir()
    args = ("--fake-nodes", str(EXAMPLES / "home-lab.yaml"), "--example", str(EXAMPLES / "home-lab-model.yaml"))
    up = Up(tmp, (*args, "--check", "--record", str(folder))).start()

    assert up.ended() == 0
    assert up.leftovers() == []
    tapes = {tape.header.component: tape for tape in map(load, folder.iterdir())}
    assert tapes.keys() == {"manager", "scheduler", "proxy", "agent", "bench", "global-proxy", "dashboard"}
    assert [bad for tape in tapes.values() for bad in tape.bad] == []
    said = {
        name: {type(fact.data) for _, fact in tape.facts if isinstance(fact, Event)} for name, tape in tapes.items()
    }
    assert NodeHardware in said["agent"]
    assert BenchCompleted in said["bench"]
    assert PlacementDecided in said["dashboard"]
    assert any(isinstance(fact, Relisted) and fact.plural == "nodes" for _, fact in tapes["agent"].facts)

    steps = list(replay(tapes["manager"]))
    decided = {encode(step.data) for step in steps}
    phases = {encode(step.data) for step in steps if step.kind == "phase"}
    outcomes = [fact for _, fact in tapes["manager"].facts if isinstance(fact, Outcome)]
    done = [effect_body(outcome.effect) for outcome in outcomes]
    strange = [effect for effect in done if encode(effect) not in decided and encode(effect.get("data")) not in phases]
    assert strange == []
    assert len(done) > 20

    placements = {encode(step.data) for step in replay(tapes["scheduler"]) if step.kind == "placement"}
    facts = [fact for _, fact in tapes["manager"].facts if isinstance(fact, Event)]
    published = [encode(fact.data) for fact in facts if isinstance(fact.data, PlacementDecided)]
    assert [data for data in published if data not in placements] == []
    assert published

    [path] = folder.glob("manager-*")
    told = up.run("replay", str(path), "--output", "json")
    assert told.returncode == 0
    assert [json.loads(line)["at"] for line in told.stdout.splitlines()] == [step.at for step in steps]
