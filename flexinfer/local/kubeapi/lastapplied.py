"""The annotation in which client-side ``kubectl apply`` keeps its last configuration.

Server-side apply by kubectl keeps it up to date and may take over what it lists, so that people can change over and
back, as on the real server.
"""

from typing import Any

import orjson

from flexinfer.local.kubeapi.objects import Json, encode, meta

KUBECTL = "kubectl"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_LIMIT = 256 * 1024  # bytes of all annotations of an object


def last_applied(obj: Json) -> Json | None:
    """The configuration in the annotation, None if there is none that can be read."""
    text = (meta(obj).get("annotations") or {}).get(ANNOTATION)
    if not text:
        return None
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def write_last_applied(obj: Json, wanted: Json) -> None:
    """Renew the annotation of an object that has one, in place."""
    annotations = meta(obj).get("annotations") or {}
    if ANNOTATION not in annotations:
        return
    text = encode(wanted).decode() + "\n"
    if len(text) <= _LIMIT:
        obj["metadata"]["annotations"] = {**annotations, ANNOTATION: text}
