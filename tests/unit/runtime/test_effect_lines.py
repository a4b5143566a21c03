"""What became of an effect survives the tape."""

import msgspec
import pytest

from flexinfer.contracts.events import ModelPhase
from flexinfer.contracts.kubernetes import CONFIGMAPS, DEPLOYMENTS, MODELS
from flexinfer.core.effects import Apply, Create, Delete, Effect, Note, Patch, Publish, Refusal
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.runtime.interpreter import Outcome
from flexinfer.runtime.journal import BadLine, decode_line, encode_line

KEY = ModelKey("Model", "default", "m")
BODY = {"metadata": {"name": "m", "namespace": "default"}, "spec": {"replicas": 1}}
PHASE = ModelPhase(namespace="default", model="m", kind="Model", phase="Pending", reason="Accepted", message="")
EFFECTS: list[Effect] = [
    Apply(DEPLOYMENTS, BODY, "uid"),
    Create(CONFIGMAPS, BODY),
    Patch(MODELS, "default", "m", {"status": {}}, "status"),
    Delete(CONFIGMAPS, "default", "m", "uid"),
    Publish(PHASE, 12.5),
    Publish(PHASE),
    Note({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, "Warning", "R", "text"),
]


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: type(effect).__name__)
def test_a_success_gives_back_effect_and_object(effect: Effect) -> None:
    outcome = Outcome(KEY, effect, BODY)

    assert decode_line(encode_line(1.5, outcome)) == (1.5, outcome)


@pytest.mark.parametrize("effect", EFFECTS[:4], ids=lambda effect: type(effect).__name__)
def test_a_refusal_gives_back_its_reason(effect: Effect) -> None:
    assert not isinstance(effect, Publish | Note)
    outcome = Outcome(KEY, effect, refusal=Refusal(effect, "Forbidden", "exceeded quota", 4.0))

    assert decode_line(encode_line(1.5, outcome)) == (1.5, outcome)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"key": "Model/default/m", "effect": {"do": "Explode"}}, "unknown effect 'Explode'"),
        ({"key": "Model/default/m", "effect": {"do": "Publish", "type": "x", "data": {}}}, "unknown event type 'x'"),
        ({"key": "Model/m", "effect": {"do": "Create", "resource": {}, "body": {}}}, "required field"),
        ({"key": "m", "effect": {"do": "Note", "regarding": {}, "type": "Normal", "reason": "", "message": ""}},
         "'m' is not <kind>/<namespace>/<name>"),
    ],
)  # fmt: skip
def test_an_outcome_that_makes_no_sense_is_a_bad_line(body: object, reason: str) -> None:
    raw = msgspec.json.encode({"at": 1.0, "kind": "outcome", "body": body})

    with pytest.raises(BadLine, match=reason):
        decode_line(raw, 7)
