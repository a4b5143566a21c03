"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902)."""

from collections.abc import Sequence
from typing import Any

from flexinfer.local.kubeapi.errors import ApiError, bad_request
from flexinfer.local.kubeapi.objects import Json, clone


def merge_patch(target: Any, patch: Any) -> Any:
    """The patched copy; neither argument is changed."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Json, operations: Sequence[Any]) -> Any:
    """The patched copy. Raises ApiError 400 for a malformed patch, 422 for one that does not apply."""
    document: Any = {"": clone(target)}
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("json patch: each operation needs op and path")
        try:
            _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as err:
            raise ApiError(
                422, "Invalid", f"the server rejected our request due to an error in our request: {err}"
            ) from err
    return document[""]


def _operate(document: Any, operation: Json) -> None:
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            _add(document, path, clone(operation["value"]))
        case "remove":
            _take(document, path)
        case "replace":
            _look(document, path)
            _put(document, path, clone(operation["value"]))
        case "move":
            _add(document, path, _take(document, _pointer(operation["from"])))
        case "copy":
            _add(document, path, clone(_look(document, _pointer(operation["from"]))))
        case "test":
            if _look(document, path) != operation.get("value"):
                raise ValueError(f"testing value {operation['path']} failed")
        case other:
            raise bad_request(f"json patch: unexpected kind: {other}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"{text!r} is not a JSON pointer")
    return [piece.replace("~1", "/").replace("~0", "~") for piece in text.split("/")]


def _index(container: list[Any], token: str) -> int:
    if not token.isdigit():
        raise ValueError(f"{token!r} is not an index")
    index = int(token)
    if index >= len(container):
        raise IndexError(f"index {index} is out of bounds")
    return index


def _step(container: Any, token: str) -> Any:
    if isinstance(container, list):
        return container[_index(container, token)]
    if not isinstance(container, dict) or token not in container:
        raise KeyError(f"path {token!r} is missing")
    return container[token]


def _look(document: Any, path: list[str]) -> Any:
    for token in path:
        document = _step(document, token)
    return document


def _put(document: Any, path: list[str], value: Any) -> None:
    parent = _look(document, path[:-1])
    if isinstance(parent, list):
        parent[_index(parent, path[-1])] = value
    else:
        parent[path[-1]] = value


def _add(document: Any, path: list[str], value: Any) -> None:
    parent = _look(document, path[:-1])
    last = path[-1]
    if isinstance(parent, list):
        position = len(parent) if last == "-" else int(last)
        if not 0 <= position <= len(parent):
            raise IndexError(f"index {last} is out of bounds")
        parent.insert(position, value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise KeyError(f"{last!r} has no container")


def _take(document: Any, path: list[str]) -> Any:
    parent = _look(document, path[:-1])
    last = path[-1]
    if isinstance(parent, list):
        return parent.pop(_index(parent, last))
    _step(parent, last)
    return parent.pop(last)
