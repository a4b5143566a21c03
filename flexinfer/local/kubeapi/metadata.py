"""Names, namespaces, labels: what ``metadata`` may hold."""

import random
import re
import string
from typing import Any

from flexinfer.local.kubeapi.errors import Cause, bad_request, required, wrong
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, meta

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_ALPHABET = "".join(sorted(set(string.ascii_lowercase + string.digits) - set("aeiou013l")))

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start"
    " and end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SHORT_NAMES = ("services", "namespaces")  # DNS labels of at most 63 characters
_FREE_NAMES = ("rbac.authorization.k8s.io",)


def random_suffix(length: int = 5) -> str:
    """Characters as the real server appends to ``generateName``: no vowels, nothing that looks alike."""
    return "".join(random.choices(_ALPHABET, k=length))  # noqa: S311 - a name, not a secret


def settle_name(obj: Json) -> None:
    """Turn ``generateName`` into a name, in place."""
    metadata = obj["metadata"]
    prefix = metadata.get("generateName")
    if not metadata.get("name") and prefix:
        metadata["name"] = f"{prefix[:58]}{random_suffix()}"


def settle_namespace(kind: Kind, obj: Json, namespace: str) -> None:
    """Put the namespace of the URL into the object, in place. Raises ApiError 400 if they differ."""
    own = obj["metadata"].get("namespace", "")
    if not kind.namespaced:
        obj["metadata"].pop("namespace", None)
        return
    if own and namespace and own != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    obj["metadata"]["namespace"] = namespace or own


def metadata_causes(kind: Kind, obj: Json) -> list[Cause]:
    """What is wrong with the metadata of an object about to be stored."""
    metadata = meta(obj)
    name = metadata.get("name", "")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    found = _name_causes(kind, name)
    found += _label_causes(metadata.get("labels") or {})
    for key in metadata.get("annotations") or {}:
        found += _key_causes("metadata.annotations", key.lower())
    found += [
        wrong("metadata.finalizers", finalizer, "name is neither a standard finalizer name nor is it fully qualified")
        for finalizer in metadata.get("finalizers") or ()
        if "/" not in finalizer
        and finalizer not in ("orphan", "foregroundDeletion", "kubernetes")
        and "." not in finalizer
    ]
    for index, reference in enumerate(metadata.get("ownerReferences") or ()):
        found += [
            required(f"metadata.ownerReferences[{index}].{field}", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not reference.get(field)
        ]
    return found


def _name_causes(kind: Kind, name: str) -> list[Cause]:
    if kind.group in _FREE_NAMES:
        bad = name in (".", "..") or "/" in name or "%" in name
        return [wrong("metadata.name", name, "may not be '.', '..' or contain '/' or '%'")] if bad else []
    if kind.plural in _SHORT_NAMES and not kind.custom:
        limit, pattern = 63, _DNS_LABEL
    else:
        limit, pattern = 253, _SUBDOMAIN
    if len(name) > limit:
        return [wrong("metadata.name", name, f"must be no more than {limit} characters")]
    return [] if pattern.fullmatch(name) else [wrong("metadata.name", name, _SUBDOMAIN_RULE)]


def _label_causes(labels: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    for key, value in labels.items():
        found += _key_causes("metadata.labels", key)
        if len(value) > 63:
            found.append(wrong("metadata.labels", value, "must be no more than 63 characters"))
        elif not _LABEL_VALUE.fullmatch(value):
            found.append(wrong("metadata.labels", value, _LABEL_RULE))
    return found


def _key_causes(field: str, key: str) -> list[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not (_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253):
        return [wrong(field, key, f"prefix part {_SUBDOMAIN_RULE}")]
    if not name or len(name) > 63 or not _QUALIFIED.fullmatch(name):
        return [wrong(field, key, "name part must consist of alphanumeric characters, '-', '_' or '.'")]
    return []
