"""What each ServiceAccount did, from the API server's audit log, beside what a release grants to it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Json = dict[str, Any]


class Right(NamedTuple):
    """One verb on one resource. ``group`` is empty for the core group; subresources as ``pods/log``."""

    account: str
    group: str
    resource: str
    verb: str


def entries(log: Path) -> list[Json]:
    """Finished requests, oldest first; a line still being written is left out."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _right(entry: Json, prefix: str) -> Right | None:
    user = str((entry.get("user") or {}).get("username", ""))
    target = entry.get("objectRef") or {}
    if not user.startswith(prefix) or not target.get("resource"):
        return None
    resource = target["resource"] + (f"/{target['subresource']}" if target.get("subresource") else "")
    return Right(user.removeprefix(prefix), target.get("apiGroup", ""), resource, entry["verb"])


def used(log: Iterable[Json], namespace: str) -> tuple[Mapping[Right, set[str]], list[str]]:
    """(right → programs that used it, sentences about what was refused). A patch that created also used ``create``."""
    prefix = f"system:serviceaccount:{namespace}:"
    found: dict[Right, set[str]] = defaultdict(set)
    refused = []
    for entry in log:
        right = _right(entry, prefix)
        if right is None:
            continue
        program = str(entry.get("userAgent", "")).partition("/")[0]
        code = (entry.get("responseStatus") or {}).get("code")
        if (entry.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid":
            refused.append(f"{right.account}: {right.verb} {right.group}/{right.resource} ({entry['requestURI']})")
            continue
        found[right].add(program)
        if right.verb == "patch" and code == 201:
            found[right._replace(verb="create")].add(program)
    return found, refused


def granted(manifest: str, namespace: str) -> Mapping[Right, set[str]]:
    """Right → names of the roles of the release that give it to a ServiceAccount of the release."""
    objects = [found for found in yaml.safe_load_all(manifest) if found]
    rules = {
        (found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]): found.get("rules") or []
        for found in objects
        if found["kind"] in {"Role", "ClusterRole"}
    }
    result: dict[Right, set[str]] = defaultdict(set)
    for binding in objects:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        role = binding["roleRef"]
        where = binding["metadata"].get("namespace", namespace) if role["kind"] == "Role" else ""
        for subject in binding.get("subjects") or ():
            for rule in rules.get((role["kind"], where, role["name"]), ()):
                for right in _of_rule(rule, subject["name"]):
                    result[right].add(role["name"])
    return result


def _of_rule(rule: Json, account: str) -> Iterable[Right]:
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                yield Right(account, group, resource, verb)
