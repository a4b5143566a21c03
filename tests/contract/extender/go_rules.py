"""What kube-scheduler's Go decoder and its checks accept, as measured on 1.36.2.

Keys match whatever their case; numbers of a score must be integers on the wire, for ``10.0`` voids the whole list;
a name that was not asked about fails the whole attempt.
"""

import json
from typing import Any

SCORE_RANGE = range(11)


def _object(found: Any, fields: set[str]) -> dict[str, Any]:
    assert isinstance(found, dict)
    assert {key.lower() for key in found} <= {field.lower() for field in fields}, "a field Go would ignore"
    assert set(found) <= fields, "PascalCase"
    return found


def _no_floats(text: str) -> float:
    raise AssertionError(f"{text} on the wire: Go reads no float into an int64")


def _parse(raw: bytes) -> Any:
    return json.loads(raw, parse_float=_no_floats, parse_constant=_no_floats)


def filter_result(raw: bytes, asked: set[str], *, whole: bool = False) -> tuple[set[str], dict[str, str], str]:
    """(passed, reasons, error), checked."""
    found = _object(_parse(raw), {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"})
    assert isinstance(found["Error"], str)
    reasons: dict[str, str] = {}
    for field in ("FailedNodes", "FailedAndUnresolvableNodes"):
        assert isinstance(found[field], dict)
        assert all(isinstance(key, str) and isinstance(text, str) for key, text in found[field].items())
        assert not reasons.keys() & found[field].keys(), "a node fails once"
        reasons |= found[field]
    if found["Error"]:
        return set(), reasons, found["Error"]
    if whole:
        assert found["NodeNames"] is None
        names = [item["metadata"]["name"] for item in found["Nodes"]["items"]]
    else:
        assert found["Nodes"] is None
        names = found["NodeNames"]
        assert isinstance(names, list), "null hides the reasons"
    assert len(names) == len(set(names)), "a name given twice gets its score twice"
    assert set(names) <= asked, "claims a node that was not asked about"
    assert set(names) | reasons.keys() == asked, "every node passes or has a reason"
    assert not set(names) & reasons.keys()
    return set(names), reasons, ""


def priorities(raw: bytes, asked: set[str]) -> dict[str, int]:
    """Scores by node, checked."""
    found = _parse(raw)
    assert isinstance(found, list)
    for one in found:
        _object(one, {"Host", "Score"})
        assert type(one["Score"]) is int
        assert one["Score"] in SCORE_RANGE
    hosts = [one["Host"] for one in found]
    assert len(hosts) == len(set(hosts)), "kube-scheduler sums up repeats"
    assert set(hosts) <= asked
    return {one["Host"]: one["Score"] for one in found}


def preemption(raw: bytes, asked: set[str]) -> dict[str, Any]:
    """Victims by node, checked."""
    found = _object(_parse(raw), {"NodeNameToMetaVictims"})["NodeNameToMetaVictims"]
    assert isinstance(found, dict)
    assert set(found) <= asked
    for victims in found.values():
        _object(victims, {"Pods", "NumPDBViolations"})
        assert type(victims["NumPDBViolations"]) is int
        assert all(isinstance(pod["UID"], str) for pod in victims["Pods"])
    return found
