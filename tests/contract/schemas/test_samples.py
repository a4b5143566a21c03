"""Every event version ever released stays readable, and the published schemas say the same as the decoder.

A sample is never changed or removed. A new field gets a new sample; a new major version gets its own files.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from referencing import Registry, Resource

from flexinfer.contracts.envelope import SCHEMA_BASE, MalformedEvent, decode_event, encode_event, schema_uri
from flexinfer.contracts.topics import TOPICS, subject_of

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.json"))
SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"


def _load(path: Path) -> dict[str, Any]:
    return msgspec.json.decode(path.read_bytes())


DOCUMENTS = {path.name: _load(path) for path in SCHEMAS.glob("*.json") if path.name != "index.json"}
REGISTRY = Registry().with_resources(
    (f"{SCHEMA_BASE}/{name}", Resource.from_contents(document)) for name, document in DOCUMENTS.items()
)


FORMATS = jsonschema.FormatChecker()


@FORMATS.checks("date-time", raises=ValueError)
def is_time(value: object) -> bool:
    return not isinstance(value, str) or bool(datetime.fromisoformat(value))


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(DOCUMENTS[name], registry=REGISTRY, format_checker=FORMATS)


ENVELOPE = validator("envelope.v1.json")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_decodes_and_its_schema_accepts_it(path):
    document = _load(path)
    event = decode_event(path.read_bytes())
    assert event.type == path.name.rsplit(".", 2)[0]
    ENVELOPE.validate(document)
    validator(f"{event.type}.json").validate(document["data"])


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_what_we_write_again_means_the_same(path):
    event = decode_event(path.read_bytes())
    again = encode_event(event)
    assert decode_event(again) == event
    ENVELOPE.validate(msgspec.json.decode(again))
    assert subject_of(event.data).startswith("flexinfer.v1.default.")


@pytest.mark.parametrize("path", [path for path in SAMPLES if ".full" in path.name], ids=lambda path: path.stem)
def test_a_full_sample_survives_unchanged(path):
    assert msgspec.json.decode(encode_event(decode_event(path.read_bytes()))) == _load(path)


@pytest.mark.parametrize("name", sorted(TOPICS))
def test_the_samples_of_a_type_use_every_field(name):
    """A renamed or removed field would go unnoticed if no sample had it."""
    mine = [_load(path)["data"] for path in SAMPLES if path.name.startswith(f"{name}.")]
    assert len(mine) >= 2
    used = set().union(*(_paths(data) for data in mine))
    assert _schema_paths(DOCUMENTS[f"{name}.json"], DOCUMENTS[f"{name}.json"]) <= used


def _paths(value: Any, at: str = "") -> set[str]:
    if isinstance(value, dict):
        return {at, *(path for key, item in value.items() for path in _paths(item, f"{at}/{key}"))}
    if isinstance(value, list):
        return {at, *(path for item in value for path in _paths(item, f"{at}/*"))}
    return {at}


def _schema_paths(schema: dict[str, Any], root: dict[str, Any], at: str = "") -> set[str]:
    found: set[str] = set()
    if "$ref" in schema:
        found |= _schema_paths(root["$defs"][schema["$ref"].rpartition("/")[2]], root, at)
    for option in schema.get("anyOf", ()):
        found |= _schema_paths(option, root, at)
    if "items" in schema:
        found |= _schema_paths(schema["items"], root, f"{at}/*")
    for name, part in schema.get("properties", {}).items():
        found |= {f"{at}/{name}", *_schema_paths(part, root, f"{at}/{name}")}
    return found


ODD = [None, True, -1, 0, 1, 101, 1.5, "", "x", "x" * 300, [], {}, [None], ["x"], {"x": 1}, "2025-06-01T08:30:00Z"]


def _mutants(value: Any) -> list[Any]:
    """Copies of a document with one place changed or left out."""
    found: list[Any] = list(ODD)
    if isinstance(value, dict):
        for key, item in value.items():
            found.append({k: v for k, v in value.items() if k != key})
            found += [{**value, key: mutant} for mutant in _mutants(item)]
        found.append({**value, "fieldOfTheFuture": 1})
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += [[*value[:index], mutant, *value[index + 1 :]] for mutant in _mutants(item)]
    return found


@pytest.mark.parametrize("name", sorted(TOPICS))
def test_schema_and_decoder_agree_on_every_small_change(name):
    """The schema accepts exactly what the decoder accepts, one changed place at a time."""
    check = validator(f"{name}.json")
    for path in SAMPLES:
        if not path.name.startswith(f"{name}."):
            continue
        document = _load(path)
        for mutant in _mutants(document["data"]):
            if not isinstance(mutant, dict):
                continue  # the envelope demands an object
            raw = msgspec.json.encode({**document, "data": mutant})
            try:
                decode_event(raw)
                decoded = True
            except MalformedEvent:
                decoded = False
            assert check.is_valid(mutant) == decoded, mutant


def test_every_schema_is_valid_and_has_its_address():
    for name, document in DOCUMENTS.items():
        jsonschema.Draft202012Validator.check_schema(document)
        assert document["$id"] == f"{SCHEMA_BASE}/{name}"
    assert {schema_uri(name) for name in TOPICS} <= {document["$id"] for document in DOCUMENTS.values()}


@pytest.mark.parametrize("missing", ["specversion", "id", "source", "type", "time", "bootid", "seq", "data"])
def test_envelope_schema_and_decoder_agree_on_what_is_required(missing):
    document = _load(SAMPLES[0])
    del document[missing]
    assert not ENVELOPE.is_valid(document)
    with pytest.raises(MalformedEvent):
        decode_event(msgspec.json.encode(document))
