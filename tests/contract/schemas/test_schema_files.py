"""The generated files are those in the tree, and the AsyncAPI document holds together."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from flexinfer.contracts.schemas import files
from flexinfer.contracts.topics import TOPICS, log_subjects

FILES = files()
FOLDER = Path(__file__).resolve().parents[3] / "schemas"


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_schema_file_is_fresh(name):
    assert (FOLDER / name).read_text() == FILES[name], "run python schemas/generate.py"


def test_no_schema_of_a_type_that_is_no_more():
    present = {path.name for path in FOLDER.iterdir() if path.suffix in (".json", ".yaml")}
    assert present == set(FILES)


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return found + [ref for item in value.values() for ref in _refs(item)]
    if isinstance(value, list):
        return [ref for item in value for ref in _refs(item)]
    return []


def test_asyncapi_references_lead_somewhere():
    document = yaml.safe_load(FILES["asyncapi.yaml"])
    refs = _refs(document)
    assert len(refs) > 5 * len(TOPICS)
    for ref in refs:
        if ref.startswith("./"):
            assert ref[2:] in FILES
            continue
        at = document
        for part in ref.removeprefix("#/").split("/"):
            at = at[part]


def test_asyncapi_has_every_event_with_its_parameters():
    document = yaml.safe_load(FILES["asyncapi.yaml"])
    assert len(document["channels"]) == len(document["operations"]) == len(TOPICS)
    for channel in document["channels"].values():
        assert {f"{{{name}}}" for name in channel["parameters"]} == {
            part for part in channel["address"].split(".") if part.startswith("{")
        }


def test_the_index_tells_where_each_event_goes():
    index = msgspec.json.decode(FILES["index.json"])
    rows = {row["type"]: row for row in index["events"]}
    assert rows["ai.flexinfer.node.telemetry.v1"] == {
        "type": "ai.flexinfer.node.telemetry.v1",
        "schema": "ai.flexinfer.node.telemetry.v1.json",
        "subject": "flexinfer.v1.{cluster}.node.{node}.telemetry",
        "bucket": "flexinfer_nodes",
        "key": "{node}.telemetry",
        "log": "sampled",
        "producer": "agent",
        "when": "every interval, at once on a jump",
    }
    assert rows["ai.flexinfer.bench.completed.v1"]["key"] == "{key}"
    assert rows["ai.flexinfer.model.demand.v1"]["key"] == "{namespace}.{model}.demand.{proxy}"
    assert index["log"]["subjects"] == list(log_subjects())
    assert index["buckets"]["flexinfer_demand"]["ttlSeconds"] == 10
