"""The compatibility promise: each released schema is kept, and what would break it is noticed."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from flexinfer.contracts.compatibility import breaks
from flexinfer.contracts.schemas import files

RELEASED = sorted((Path(__file__).resolve().parents[3] / "schemas" / "released").glob("*/*.v*.json"))
NOW = files()


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_released_schema_is_kept(path: Path) -> None:
    assert path.name in NOW, "a released version of an event is gone"

    assert breaks(json.loads(path.read_text()), json.loads(NOW[path.name])) == []


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_released_schema_is_a_schema(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_text()))


def telemetry() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["node"],
        "properties": {
            "node": {"type": "string", "minLength": 1},
            "state": {"enum": ["online", "offline"]},
            "ratio": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
            "devices": {"type": "array", "items": {"$ref": "#/$defs/Device"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "$defs": {"Device": {"type": "object", "required": ["uuid"], "properties": {"uuid": {"type": "string"}}}},
    }


def changed(change: str) -> dict[str, Any]:
    schema = copy.deepcopy(telemetry())
    exec(
        change, {"s": schema, "p": schema["properties"], "d": schema["$defs"]["Device"]}
    )  # the change is a test's text
    return schema


@pytest.mark.parametrize(
    "change",
    [
        "p['extra'] = {'type': 'string'}",
        "d['properties']['arch'] = {'type': 'string'}",
        "s['description'] = 'other words'",
        "p['ratio']['default'] = None",
    ],
)
def test_further_fields_and_words_are_no_break(change: str) -> None:
    assert breaks(telemetry(), changed(change)) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("del p['ratio']", "ratio: is gone"),
        ("p['node'] = {'type': 'integer'}", "node: was string, is integer"),
        ("p['ratio'] = {'type': 'number', 'minimum': 0}", "ratio: was null or number, is number"),
        ("p['extra'] = {'type': 'string'}; s['required'].append('extra')", "extra: must be there now"),
        ("s['required'] = []", "node: may be missing now"),
        ("p['state']['enum'].append('draining')", "state: may be draining, which released readers reject"),
        ("p['state']['enum'].remove('offline')", "state: no longer knows offline"),
        ("p['node']['minLength'] = 2", "node: minLength was 1, is 2"),
        ("d['properties']['uuid'] = {'type': 'integer'}", "devices[].uuid: was string, is integer"),
        ("d['required'] = []", "devices[].uuid: may be missing now"),
        ("p['labels']['additionalProperties'] = {'type': 'number'}", "labels{}: was string, is number"),
    ],
)
def test_a_break_is_named(change: str, sentence: str) -> None:
    assert breaks(telemetry(), changed(change)) == [sentence]


def test_a_schema_that_holds_itself_ends() -> None:
    tree = {"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {"sub": {"$ref": "#/$defs/T"}}}}}

    assert breaks(tree, copy.deepcopy(tree)) == []
