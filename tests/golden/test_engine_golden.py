"""What is written for every engine on every vendor, word for word, and that its flags exist."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import engine_manifests as golden

from flexinfer.contracts.labels import GPU_RESOURCES
from flexinfer.core.lifecycle.engines import ENGINES

FLAGS = Path(__file__).parents[1] / "captures" / "engines" / "flags"
DOCUMENTED = sorted(path.stem for path in FLAGS.glob("*.txt"))


def documented(engine: str) -> set[str]:
    lines = (FLAGS / f"{engine}.txt").read_text().splitlines()
    assert lines[0].startswith("# "), "the first line says where the list comes from"
    return {line for line in lines if not line.startswith("#")}


def engine_container(docs: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = [doc for doc in docs if doc["kind"] == "Deployment"]
    container: dict[str, Any] = found["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize("case", golden.cases(), ids=lambda case: "-".join(map(str, case)))
def test_manifests_are_the_golden_ones(case: golden.Case) -> None:
    assert golden.file_of(case).read_text() == golden.rendered(case), "make regold, and look at the diff"


def test_no_golden_file_is_left_over() -> None:
    assert set(golden.FOLDER.glob("*.yaml")) == {golden.file_of(case) for case in golden.cases()}


@pytest.mark.parametrize("engine", DOCUMENTED)
def test_every_option_is_in_the_documented_command_line(engine: str) -> None:
    known = documented(engine)
    spelled = [option.flag for option in ENGINES[engine].options.values()]
    spelled += [option.off for option in ENGINES[engine].options.values()]

    assert {flag.partition(" ")[0] for flag in spelled if flag} - known == set()
    assert set(ENGINES[engine].own_flags) - known == set()


@pytest.mark.parametrize("case", golden.cases(), ids=lambda case: "-".join(map(str, case)))
def test_every_flag_written_is_in_the_documented_command_line(case: golden.Case) -> None:
    container = engine_container(list(yaml.safe_load_all(golden.file_of(case).read_text())))
    if case[0] == "custom":
        return
    if case[0] == "ollama":
        written = {entry["name"] for entry in container["env"] if entry["name"].startswith("OLLAMA_")}
    else:
        written = {arg.partition("=")[0] for arg in container["args"] if arg.startswith("--")}

    assert written - documented(case[0]) == set()
    assert written


@pytest.mark.parametrize("engine", sorted(set(DOCUMENTED) - {"ollama"}))
def test_flags_no_golden_manifest_has_are_documented_too(engine: str) -> None:
    """Every flag the engine's file names, whatever it takes to have it written."""
    source = Path(sys.modules[ENGINES[engine].launch.__module__].__file__ or "").read_text()
    named = set(re.findall(r'"(--[a-zA-Z][\w-]*)', source))

    assert named
    assert named - documented(engine) == set()


def test_fetched_weights_are_where_the_engine_is_told() -> None:
    for case in (one for one in golden.cases() if one[3]):
        for doc in yaml.safe_load_all(golden.file_of(case).read_text()):
            if doc["kind"] not in {"Deployment", "Job"}:
                continue
            spec = doc["spec"]["template"]["spec"]
            entry = doc["spec"]["template"]["metadata"]["annotations"].get("flexinfer.ai/cache-entry", "")
            first = spec["initContainers"][0]
            assert (first["name"], first["command"]) == ("fetch", ["flexinfer-fetch"])
            engine = next(c for c in [*spec["initContainers"], *spec["containers"]] if c["name"] == "engine")
            text = str(engine)
            assert all(f"/models/entries/{name}" in text for name in entry.split(",") if name)
            if entry:
                assert {"mountPath": "/models", "name": "models", "readOnly": True} in engine["volumeMounts"]
                assert {"mountPath": "/models", "name": "models"} in first["volumeMounts"]


def test_every_engine_has_a_list_of_its_flags() -> None:
    assert set(DOCUMENTED) == set(ENGINES) - {"custom"}


@pytest.mark.parametrize("case", golden.cases(), ids=lambda case: "-".join(map(str, case)))
def test_devices_runtime_class_and_tolerations_go_together(case: golden.Case) -> None:
    _, vendor, count, _ = case
    for doc in yaml.safe_load_all(golden.file_of(case).read_text()):
        if doc["kind"] not in {"Deployment", "Job"}:
            continue
        spec = doc["spec"]["template"]["spec"]
        engine = next(c for c in [*spec.get("initContainers", []), *spec["containers"]] if c["name"] == "engine")
        asked = {name: n for name, n in engine["resources"]["limits"].items() if "/" in name}
        assert asked == ({GPU_RESOURCES[vendor]: str(count)} if count else {})
        assert spec.get("runtimeClassName") == ("nvidia" if vendor == "NVIDIA" else None)
        tolerated = {entry["key"] for entry in spec.get("tolerations", [])}
        assert set(asked) <= tolerated
        assert bool(tolerated) == bool(count)
