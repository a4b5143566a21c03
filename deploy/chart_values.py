"""The chart's values.yaml as a JSON Schema and as a table: both come from its comments and defaults."""  # noqa: INP001 - beside a script

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

Schema = dict[str, Any]

_DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))+$"}
_QUANTITY = {"type": ["string", "integer", "number"], "pattern": r"^[0-9.]+(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"}
_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_NAME_OR_EMPTY = {"type": "string", "pattern": r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$"}
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
# helm --set gives fractions as text.
_FRACTION = {"type": ["number", "string"], "minimum": 0, "pattern": r"^[0-9]+(\.[0-9]+)?$"}
_AMOUNTS = {"type": "object", "additionalProperties": _QUANTITY}

# Path of a value, or the end of one -> what the default alone does not say.
_RULES: dict[str, Schema] = {
    "fullname": {"pattern": r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"},
    "clusterName": {"pattern": r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"},
    "logLevel": {"enum": ["debug", "info", "warning", "error"]},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.pullSecrets": {"items": {"type": "string", "pattern": _NAME}},
    "commonLabels": _STRINGS,
    "podSecurityContext": {"additionalProperties": True},
    "securityContext": {"additionalProperties": True},
    "agent.nodes": {"enum": ["all", "gpu"]},
    "agent.hostAccess": {"enum": ["files", "chroot", "privileged"]},
    "agent.hostPort": {"minimum": 0, "maximum": 65535},
    "agent.interval": _DURATION,
    "agent.telemetryInterval": _DURATION,
    "agent.labelPrefix": {"pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?$"},
    "agent.cloudNotices": {"enum": ["off", "aws", "azure", "gcp"]},
    "agent.maxUnavailable": {"type": ["integer", "string"], "pattern": r"^[0-9]{1,3}%$", "minimum": 1},
    "manager.watchNamespace": _NAME_OR_EMPTY,
    "manager.modelCachePath": {"pattern": "^/"},
    "manager.gateTimeout": _DURATION,
    "fetch.nodeCache": {"pattern": "^(/[^/]+.*)?$"},
    "fetch.limitGb": _FRACTION,
    "fetch.floorGb": _FRACTION,
    "benchmark.natsUrl": {"pattern": r"^(auto|off|(nats|tls)://.+)$"},
    "benchmark.jobDeadline": _DURATION,
    "scheduler.namespace": _NAME_OR_EMPTY,
    "scheduler.port": _PORT,
    "scheduler.metricsPort": _PORT,
    "scheduler.name": {"pattern": _NAME},
    "scheduler.reservationTtl": _DURATION,
    "scheduler.maxBody": {"minimum": 1024},
    "scheduler.weights.tps": _FRACTION,
    "scheduler.weights.util": _FRACTION,
    "scheduler.weights.cost": _FRACTION,
    "scheduler.weights.kvCache": _FRACTION,
    "scheduler.weights.vramFree": _FRACTION,
    "scheduler.weights.cache": _FRACTION,
    "scheduler.shadowWeights": {
        "propertyNames": {"enum": ["tps", "util", "cost", "kvCache", "vramFree", "cache"]},
        "additionalProperties": _FRACTION,
    },
    "scheduler.kubeScheduler.verbosity": {"minimum": 0, "maximum": 10},
    "scheduler.kubeScheduler.weight": {"minimum": 1, "maximum": 100},
    "scheduler.kubeScheduler.httpTimeout": _DURATION,
    "proxy.workers": {"minimum": 1, "maximum": 64},
    "proxy.queueLimit": {"minimum": 0},
    "proxy.drainTimeout": {"type": "string", "pattern": r"^([0-9]+(s|m|h))+$"},
    "globalProxy.clusters": {
        "additionalProperties": {"type": "string", "pattern": r"^https?://[^/?#@\s]+(/[^?#\s]*)?$"}
    },
    "globalProxy.strategy": {"enum": ["round-robin", "weighted", "failover", "latency", "headroom"]},
    "globalProxy.weights": {"additionalProperties": _FRACTION},
    "globalProxy.failoverOrder": {"items": {"type": "string"}, "uniqueItems": True},
    "webhook.failurePolicy": {"enum": ["Ignore", "Fail"]},
    "webhook.timeoutSeconds": {"minimum": 1, "maximum": 30},
    "nats.replicas": {"enum": [1, 3, 5]},
    "nats.domain": {"pattern": "^[A-Za-z0-9_-]*$"},
    "nats.persistence.size": {"pattern": "^[1-9][0-9]*(Mi|Gi|Ti)$"},
    "nats.tls.days": {"minimum": 1},
    "externalNats.url": {"pattern": r"^((nats|tls)://[^\s,]+(,(nats|tls)://[^\s,]+)*)?$"},
    "externalNats.replicas": {"minimum": 1, "maximum": 5},
    "priorityClasses.agent": {"maximum": 1000000000},
    "priorityClasses.controlPlane": {"maximum": 1000000000},
    "networkPolicies.apiServerPorts": {"items": _PORT, "minItems": 1},
    "networkPolicies.metricsNamespaceSelector": _STRINGS,
    "metrics.serviceMonitors.interval": _DURATION,
    "uninstall.timeout": {"type": "string", "pattern": r"^([0-9]+(s|m|h))+$"},
    ".labels": _STRINGS,
    ".annotations": _STRINGS,
    ".replicas": {"minimum": 0},
    ".service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    ".service.port": _PORT,
    ".existingSecret": _NAME_OR_EMPTY,
    ".nodeSelector": _STRINGS,
    ".podAnnotations": _STRINGS,
    ".tolerations": _OBJECTS,
    ".affinity": {"additionalProperties": True},
    ".extraEnv": {"items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
    ".extraArgs": {"items": {"type": "string"}},
    ".resources": {
        "properties": {"requests": _AMOUNTS, "limits": _AMOUNTS, "claims": _OBJECTS},
        "additionalProperties": False,
    },
}
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
# A person may write these in another form than the default's.
_NUMBERS = ("tag", "token")


@dataclass(frozen=True, slots=True)
class Value:
    """One documented value: dotted path, its text, its default."""

    path: str
    text: str
    default: Any


def _rule(path: str) -> Schema | None:
    if path in _RULES:
        return _RULES[path]
    ends = [end for end in _RULES if end.startswith(".") and path.endswith(end)]
    return _RULES[max(ends, key=len)] if ends else None


def _lookup(values: dict[str, Any], path: str) -> Any:
    found: Any = values
    for part in path.split("."):
        found = found[part]
    return found


def documented(text: str) -> list[Value]:
    """Every value with a ``# --`` comment, in the order of the file. Raises ValueError for a leaf without one."""
    values = yaml.safe_load(text)
    found = [Value(path, words, _lookup(values, path)) for path, words in _comments(text)]
    known = {value.path for value in found}
    bare = [path for path in _leaves(values) if not any(path == k or path.startswith(k + ".") for k in known)]
    if bare:
        raise ValueError(f"values without a comment: {', '.join(bare)}")
    return found


def _comments(text: str) -> Iterator[tuple[str, str]]:
    parents: list[tuple[int, str]] = []
    words: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# --"):
            words = [stripped.removeprefix("# --").strip()]
        elif stripped.startswith("#") and words:
            words.append(stripped.lstrip("# "))
        elif key := re.match(r"( *)([A-Za-z][A-Za-z0-9]*):", line):
            indent = len(key.group(1))
            parents = [(depth, name) for depth, name in parents if depth < indent] + [(indent, key.group(2))]
            if words:
                yield ".".join(name for _, name in parents), " ".join(words)
            words = []


def _leaves(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and value:
            yield from _leaves(value, path + ".")
        else:
            yield path


def schema(text: str) -> Schema:
    """The JSON Schema of the values: nothing unknown, nothing of another type."""
    texts = {value.path: value.text for value in documented(text)}
    found = _object(yaml.safe_load(text), "", texts)
    # Helm itself puts these beside a chart's own values.
    found["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of flexinfer", **found}


def _object(values: dict[str, Any], above: str, texts: dict[str, str]) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _one(value, f"{above}{name}", texts) for name, value in values.items()},
    }


def _one(value: Any, path: str, texts: dict[str, str]) -> Schema:
    rule = _rule(path)
    if isinstance(value, dict) and value and rule is None:
        return _object(value, path + ".", texts)
    found: Schema = {"type": _TYPES[type(value)]}
    if path in texts:
        found["description"] = texts[path]
    return found | (rule or {})


def table(text: str) -> str:
    """The values as a Markdown table."""
    rows = [f"| `{v.path}` | {v.text.replace('|', chr(92) + '|')} | {_cell(v.default)} |" for v in documented(text)]
    return "\n".join(("| Value | What it is | Default |", "|---|---|---|", *rows)) + "\n"


def _cell(default: Any) -> str:
    if default in ("", [], {}):
        return ""
    shown = yaml.safe_dump(default, default_flow_style=True, width=10_000).strip().removesuffix("...").strip()
    return f"`{shown}`"
