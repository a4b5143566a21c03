"""JSON Schemas of all events, an index, and an AsyncAPI document: what other programs need to read and write ours.

Generated from the payload structs and the topic table, so that they cannot disagree with the code. Everything
here returns text by file name; ``schemas/generate.py`` writes it and a test fails when a file is stale.

Schemas are open: readers ignore unknown fields, so within a major version fields are only added.
"""

import json
from typing import Any

import msgspec
import yaml

from flexinfer.contracts.envelope import CONTENT_TYPE, MAX_EVENT_BYTES, SCHEMA_BASE, schema_uri
from flexinfer.contracts.topics import (
    BUCKETS,
    DEFAULT_CLUSTER,
    DEMAND_TTL_SECONDS,
    LOG_STREAM,
    PREFIX,
    TOPICS,
    Topic,
    bucket_name,
    key_pattern,
    log_subjects,
    sampled_subject,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ENVELOPE = "envelope.v1"
_VERSION = "1.0.0"
_KEPT = {"all": "every event", "sampled": "one event per subject and minute", "none": "not logged"}


def files() -> dict[str, str]:
    """Text of every generated file by name inside ``schemas/``."""
    found = {f"{topic.name}.json": _json(payload(topic)) for topic in TOPICS.values()}
    found[f"{ENVELOPE}.json"] = _json(envelope())
    found["index.json"] = _json(index())
    found["asyncapi.yaml"] = _yaml(asyncapi())
    return found


def payload(topic: Topic) -> dict[str, Any]:
    """JSON Schema of the ``data`` of one event type."""
    made = msgspec.json.schema(topic.data)
    root = made["$defs"].pop(topic.data.__name__)
    found = {"$schema": DIALECT, "$id": schema_uri(topic.name), **root}
    if made["$defs"]:
        found["$defs"] = {name: made["$defs"][name] for name in sorted(made["$defs"])}
    return found


def envelope() -> dict[str, Any]:
    """JSON Schema of the CloudEvents document around every payload; ``dataschema`` names the payload's schema."""
    text = {"type": "string", "minLength": 1}
    properties = {
        "specversion": {"type": "string", "pattern": "^1\\."},
        "id": {**text, "maxLength": 1024, "description": "Unique within source; also the Nats-Msg-Id."},
        "source": {**text, "maxLength": 512, "description": "/clusters/<cluster>/<component>/<instance>"},
        "type": {"type": "string", "pattern": r"^ai\.flexinfer\.[a-z]+\.[a-z]+\.v[0-9]+$"},
        "subject": {"type": "string", "description": "The node, model, pod, benchmark key or proxy it is about."},
        "time": {"type": "string", "format": "date-time", "description": "When it was observed, UTC."},
        "datacontenttype": {"const": "application/json"},
        "dataschema": {"type": "string", "format": "uri"},
        "bootid": {**text, "maxLength": 128, "description": "New at each start of the source."},
        "seq": {"type": "integer", "minimum": 0, "description": "Grows by one per source, boot and type."},
        "data": {"type": "object"},
    }
    return {
        "$schema": DIALECT,
        "$id": f"{SCHEMA_BASE}/{ENVELOPE}.json",
        "title": "Event",
        "description": f"CloudEvents 1.0, structured mode, at most {MAX_EVENT_BYTES} bytes.",
        "type": "object",
        "properties": properties,
        "required": ["specversion", "id", "source", "type", "time", "bootid", "seq", "data"],
        "allOf": [
            {
                "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                "then": {"properties": {"data": {"$ref": schema_uri(name)}}},
            }
            for name in sorted(TOPICS)
        ],
    }


def index() -> dict[str, Any]:
    """Which event goes where, for programs."""
    events = [
        {
            "type": topic.name,
            "schema": f"{topic.name}.json",
            "subject": subject_template(topic),
            "bucket": bucket_name(topic.bucket) if topic.bucket else None,
            "key": key_template(topic) or None,
            "log": topic.log,
            "producer": topic.producer,
            "when": topic.when,
        }
        for topic in TOPICS.values()
    ]
    return {
        "envelope": f"{ENVELOPE}.json",
        "contentType": CONTENT_TYPE,
        "events": events,
        "buckets": {
            bucket_name(bucket): {"ttlSeconds": DEMAND_TTL_SECONDS if bucket == "demand" else None, "history": 1}
            for bucket in BUCKETS
        },
        "log": {"stream": LOG_STREAM, "subjects": list(log_subjects())},
    }


class _Placeholders:
    """Stands for a payload: every name is its own placeholder."""

    def __getattr__(self, name: str) -> str:
        return f"{{{name}}}"


def subject_template(topic: Topic) -> str:
    """``flexinfer.v1.{cluster}.node.{node}.hardware``; names are written with ``_`` for ``.``."""
    return ".".join((PREFIX, "{cluster}", *topic.tokens(_Placeholders())))


def key_template(topic: Topic) -> str:
    """``{node}.hardware``; empty without state."""
    return topic.key(_Placeholders()) if topic.key else ""


def asyncapi() -> dict[str, Any]:
    """AsyncAPI 3.0 document of the bus."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "FlexInfer events",
            "version": _VERSION,
            "description": (
                "Facts of a FlexInfer cluster on NATS. Each message is one CloudEvents 1.0 document. State is also "
                "kept in JetStream key-value buckets, and a log stream keeps the recent past; see x-jetstream."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "bus": {"host": "{host}:4222", "protocol": "nats", "variables": {"host": {"default": "localhost"}}}
        },
        "channels": {_channel_name(topic): _channel(topic) for topic in TOPICS.values()},
        "operations": {f"publish{_noun(topic)}": _operation(topic) for topic in TOPICS.values()},
        "components": {
            "messages": {_noun(topic): _message(topic) for topic in TOPICS.values()},
            "messageTraits": {
                "cloudEvent": {
                    "headers": {
                        "type": "object",
                        "properties": {"Nats-Msg-Id": {"type": "string", "description": "The event's id."}},
                    }
                }
            },
            "parameters": {name: {"description": text} for name, text in _PARAMETERS.items()},
        },
        "x-jetstream": {
            "buckets": index()["buckets"],
            "log": index()["log"],
        },
    }


_PARAMETERS = {
    "cluster": f"Name of the cluster, {DEFAULT_CLUSTER!r} unless set.",
    "node": "Kubernetes node, '.' written as '_'.",
    "key": "Benchmark key.",
    "namespace": "Kubernetes namespace, '.' written as '_'.",
    "model": "Name of the Model or ModelDeployment, '.' written as '_'.",
    "pod": "Pod name, '.' written as '_'.",
    "proxy": "Instance of the proxy, '.' written as '_'.",
}


def _channel_name(topic: Topic) -> str:
    return topic.name.removeprefix("ai.flexinfer.")


def _noun(topic: Topic) -> str:
    return topic.data.__name__


def _channel(topic: Topic) -> dict[str, Any]:
    address = subject_template(topic)
    names = [part[1:-1] for part in address.split(".") if part.startswith("{")]
    jetstream: dict[str, Any] = {"log": _KEPT[topic.log]}
    if topic.log == "sampled":
        jetstream["sampledSubject"] = sampled_subject(address)
    if topic.bucket:
        jetstream |= {"bucket": bucket_name(topic.bucket), "key": key_template(topic), "keys": key_pattern(topic)}
    return {
        "address": address,
        "description": f"{topic.producer}: {topic.when}" if topic.when else topic.producer,
        "messages": {_noun(topic): {"$ref": f"#/components/messages/{_noun(topic)}"}},
        "parameters": {name: {"$ref": f"#/components/parameters/{name}"} for name in names},
        "x-jetstream": jetstream,
    }


def _operation(topic: Topic) -> dict[str, Any]:
    channel = f"#/channels/{_channel_name(topic)}"
    return {
        "action": "send",
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{_noun(topic)}"}],
        "x-component": topic.producer,
    }


def _message(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "contentType": CONTENT_TYPE,
        "traits": [{"$ref": "#/components/messageTraits/cloudEvent"}],
        "payload": {
            "allOf": [
                {"$ref": f"./{ENVELOPE}.json"},
                {"properties": {"type": {"const": topic.name}, "data": {"$ref": f"./{topic.name}.json"}}},
            ]
        },
    }


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class _Plain(yaml.SafeDumper):
    """Repeated parts are written out, not aliased."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's signature
        return True


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=_Plain, sort_keys=False, width=110, allow_unicode=True)
    return "# Generated by schemas/generate.py.\n" + text
