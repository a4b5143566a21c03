"""A decision in words, on one line, for ``flexinfer replay``."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from flexinfer.core.placement.explanation import sentence
from flexinfer.testing.replay import Step


def line(step: Step) -> str:
    """``12:34:56.789 placement  default/pod  n1 leads 2 of 3 nodes ...``, on one line."""
    when = datetime.fromtimestamp(step.at, UTC)
    text = " ".join(_WORDS[step.kind](step.data).split())
    return f"{when:%H:%M:%S}.{when.microsecond // 1000:03d} {step.kind:<10} {step.key}  {text}"


def _preemption(data: dict[str, Any]) -> str:
    names = sorted(data.get("NodeNameToMetaVictims") or {})
    return f"evictions would help on {', '.join(names)}" if names else "evictions would help nowhere"


def _phase(data: dict[str, Any]) -> str:
    if data.get("gone"):
        return "gone"
    change = f"{data['previous']} → {data['phase']}" if data.get("previous") else str(data["phase"])
    return f"{change} ({data['reason']}): {data['message']}"


def _effect(data: dict[str, Any]) -> str:
    match data.get("do"):
        case "Note":
            return f"{data['type']} event {data['reason']}: {data['message']}"
        case "Publish":
            return f"publish {data['type'].removeprefix('ai.flexinfer.')}{_published(data['data'])}"
        case "Error":
            return f"planning failed: {data['error']}"
        case _:
            meta = (data.get("body") or {}).get("metadata") or {}
            names = [data.get("namespace") or meta.get("namespace"), data.get("name") or meta.get("name")]
            part = f"/{data['subresource']}" if data.get("subresource") else ""
            return f"{data['do'].lower()} {data['resource']['kind']}{part} {'/'.join(filter(None, names))}"


def _published(data: dict[str, Any]) -> str:
    if data.get("gone"):
        return f" {data.get('namespace')}/{data.get('model')}: gone"
    if "endpoints" in data:
        return f" {data['namespace']}/{data['model']}: {_endpoints(data['endpoints'])}"
    return ""


def _endpoints(entries: list[dict[str, Any]]) -> str:
    return ", ".join(f"{entry['url']} {entry['state']}" for entry in entries) or "no endpoint"


def _route(spec: Any) -> str:
    if spec is None:
        return "gone"
    return ", ".join(f"{entry.url} {entry.state}" for entry in spec.endpoints) or "no endpoint, waits for demand"


def _placement(decided: Any) -> str:
    return f"{decided.outcome}: {sentence(decided)}"


_WORDS: dict[str, Callable[[Any], str]] = {
    "placement": _placement,
    "preemption": _preemption,
    "phase": _phase,
    "effect": _effect,
    "route": _route,
}
