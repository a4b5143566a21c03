"""What users get wrong: each a condition and a Warning that name the field and the remedy, and others go on."""

from typing import Any

import pytest

from flexinfer.core.effects import Note

OFF = {"enabled": False}

# kind, spec, reason, what both texts hold: the field, then the remedy
CASES: dict[str, tuple[str, dict[str, Any], str, tuple[str, str]]] = {
    "unknown backend": (
        "ModelDeployment", {"backend": "mlc-llm"}, "UnknownBackend", ("spec.backend", "use one of ollama, vllm"),
    ),
    "impossible demand": (
        "ModelDeployment", {"gpu": {"vendor": "nvidia", "count": 64}}, "NoMatchingHardware",
        ("gpu.count is 64", "too few GPUs on one node"),
    ),
    "impossible memory": (
        "ModelDeployment", {"gpu": {"vendor": "nvidia", "vramEstimateMB": 900000}}, "NoMatchingHardware",
        ("gpu.vramEstimateMB is 900000", "GPU memory is too small"),
    ),
    "a source of an unknown kind": (
        "ModelDeployment", {"model": "s3://bucket/x"}, "InvalidSource", ("spec.model", "write ollama"),
    ),
    "a source the engine cannot load": (
        "Model", {"backend": "vllm", "source": "ollama://llama3"}, "SourceNotSupported", ("spec.source", "use "),
    ),
    "no image": ("ModelDeployment", {"backend": "custom"}, "ImageMissing", ("spec.image", "name one")),
    "a wrong type": ("Model", {"config": {"args": "x"}}, "InvalidSpec", ("spec.config.args", "must be a list")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_where_people_look(sim: Any, gpu: Any, case: str) -> None:
    kind, spec, reason, texts = CASES[case]
    sim.node("n1", gpu())
    sim.apply("bad", kind=kind, **spec)
    sim.apply("good", benchmark=OFF)
    sim.run()

    available = sim.condition("Available", "bad", kind)
    assert (available["status"], available["reason"]) == ("False", reason)
    [note] = [e for e in sim.log if isinstance(e, Note) and e.reason == reason]
    assert note.type == "Warning"
    assert note.regarding["metadata"]["name"] == "bad"
    for text in texts:
        assert text in available["message"]
        assert text in note.message
    assert sim.phase_event("bad").reason == reason
    assert sim.status("good")["phase"] == "Running"


def test_a_source_that_does_not_exist_is_what_the_engine_says(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF, model="file:///models/nowhere.gguf")
    sim.settle()
    ended = {"exitCode": 1, "message": "loading ...\ngguf_init_from_file: failed to open '/models/nowhere.gguf'"}
    entry = {"name": "engine", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": ended}}  # fmt: skip
    sim.set_pod(sim.pods()[0], phase="Running", containerStatuses=[entry])
    sim.settle()

    assert sim.status()["phase"] == "Failed"
    assert "/models/nowhere.gguf" in sim.condition("Available")["message"]
    assert any(isinstance(e, Note) and e.type == "Warning" and "nowhere.gguf" in e.message for e in sim.log)


def test_a_claim_that_does_not_exist_is_named_with_the_field(one_node: Any) -> None:
    sim = one_node
    sim.apply(kind="Model", source="pvc://weights/x.gguf", benchmark=OFF)
    sim.settle()
    text = '0/1 nodes are available: persistentvolumeclaim "weights" not found. not found'
    sim.set_pod(sim.pods()[0], conditions=[{"type": "PodScheduled", "status": "False", "message": text}])
    sim.settle()

    available = sim.condition("Available", kind="Model")
    assert (sim.status(kind="Model")["phase"], available["reason"]) == ("Pending", "ClaimMissing")
    assert available["message"].startswith("claim weights does not exist; create it, or name another in spec.source")
    [note] = [e for e in sim.log if isinstance(e, Note) and e.reason == "ClaimMissing"]
    assert note.type == "Warning"

    sim.run_pod(sim.pods()[0])
    sim.settle()
    assert sim.status(kind="Model")["phase"] == "Running"


def test_a_manifest_of_an_earlier_release_runs_and_says_what_it_does_not_use(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF, gpuGroupRef="g", modelCacheRef="c", comfyui={"modelsPath": "/x"}, serviceLabels=["a"])
    sim.run()

    told = [e for e in sim.log if isinstance(e, Note) and e.reason == "FieldIgnored"]
    assert {note.message.split()[0] for note in told} == {
        "spec.gpuGroupRef", "spec.modelCacheRef", "spec.comfyui", "spec.serviceLabels",
    }  # fmt: skip
    assert all(note.type == "Warning" and note.message.partition(": ")[2] for note in told)
    assert sim.status()["phase"] == "Running"
