"""What a request is for: which path at the engine, and which model it names where.

The order is ``X-Model-ID``, then ``/model/<name>/v1/…``, then the body's ``model`` (JSON, then multipart). Paths are
checked before anything is sent on: whatever an engine's own router makes of dots, doubled slashes or encoded
separators, it does not get to see them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from flexinfer.core.routing.refusal import Refusal

MAX_NAME: Final = 256
_PREFIX: Final = "/model/"
_API: Final = "/v1/"
MODELS: Final = "/v1/models"
_BAD_PATH: Final = "the path holds dot segments, doubled slashes or encoded separators"
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._~%:@!$&'()*+,;=-]*")
_SUSPECT = re.compile(r"//|/\.{1,2}(?:/|$)|%(?![0-9A-Fa-f]{2})|%(?:2[eE]|5[cC]|[01][0-9A-Fa-f]|7[fF]|25)")
# vLLM's and SGLang's own administration that lies below /v1/.
_ADMINISTRATION: Final = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
_SLASH = re.compile(r"%2[fF]")
_COLON = re.compile(r"%3[aA]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")
_PART_NAME = re.compile(rb'^content-disposition:[^\r\n]*\bname="?([^";\r\n]+)"?', re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Target:
    """A checked path: ``path`` is what the engine gets, ``model`` the name in front of it (empty: none)."""

    path: str
    model: str = ""


def read_target(path: str) -> Target:
    """Check and split a raw request path (without its query). Raises Refusal 400 or 404."""
    if not _PLAIN_PATH.fullmatch(path) or _SUSPECT.search(path):
        raise Refusal(400, "invalid_path", _BAD_PATH)
    name = ""
    if path.startswith(_PREFIX):
        name, api, rest = path.removeprefix(_PREFIX).partition(_API)
        path = api + rest if name else path
    if not path.startswith(_API):
        raise Refusal(404, "invalid_path", "unknown path; the API lives below /v1/ and /model/<name>/v1/")
    if unquote(path).rstrip("/").lower() in _ADMINISTRATION:
        raise Refusal(404, "invalid_path", "an engine's administration is not reached through the proxy")
    if _SLASH.search(path) and not path.startswith(MODELS + "/"):
        raise Refusal(400, "invalid_path", _BAD_PATH)
    return Target(path, checked_name(plain(name), "path") if name else "")


def plain(name: str) -> str:
    """A model name out of a path: the separators names may hold are written percent-encoded by some clients."""
    return _COLON.sub(":", _SLASH.sub("/", name))


def checked_name(name: str, where: str) -> str:
    """A model name as a client may write it. Raises Refusal 400."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise Refusal(
            400, "invalid_model", f"the model name in the {where} holds characters no name has", param="model"
        )
    return name


class _Model(msgspec.Struct):
    model: Raw = Raw()


_model_only = msgspec.json.Decoder(_Model)
_fields = msgspec.json.Decoder(dict[str, Raw])


def json_model(body: bytes) -> str:
    """The ``model`` of a JSON body; empty if it names none. Raises Refusal 400 for what is no JSON object."""
    try:
        raw = bytes(_model_only.decode(body).model)
    except msgspec.ValidationError as err:
        raise Refusal(400, "invalid_body", "the request body must be a JSON object") from err
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise Refusal(400, "invalid_json", f"the request body is not valid JSON: {err}") from err
    if not raw or raw == b"null":
        return ""
    try:
        name = msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise Refusal(400, "invalid_model", "'model' must be a string", param="model") from err
    return checked_name(name, "body") if name else ""


def with_model(body: bytes, name: str) -> bytes:
    """The same JSON object with ``model`` replaced; every other value keeps its bytes. Raises Refusal 400."""
    return with_fields(body, {"model": name})


def with_fields(body: bytes, values: Mapping[str, Any]) -> bytes:
    """The same JSON object with these fields set; every other value keeps its bytes. Raises Refusal 400."""
    try:
        fields = _fields.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise Refusal(400, "invalid_json", f"the request body is not valid JSON: {err}") from err
    for name, value in values.items():
        fields[name] = Raw(msgspec.json.encode(value))
    return msgspec.json.encode(fields)


def is_json(content_type: str) -> bool:
    """Whether a body of this type is read as JSON; clients that name no type send JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind in {"", "application/json", "text/json"} or kind.endswith("+json")


def boundary_of(content_type: str) -> bytes | None:
    """The boundary of a multipart type, None for other types. Raises Refusal 400 if it is missing."""
    kind, _, rest = content_type.partition(";")
    if kind.strip().lower() != "multipart/form-data":
        return None
    found = re.search(r'boundary="?([^";,]{1,70})"?', rest, re.IGNORECASE)
    if not found:
        raise Refusal(400, "invalid_body", "multipart/form-data without a boundary")
    return found.group(1).strip().encode("latin-1", "replace")


def multipart_model(body: bytes, boundary: bytes) -> str:
    """The value of the form field ``model``; empty if there is none. Raises Refusal 400."""
    span = _model_part(body, boundary)
    if span is None:
        return ""
    text = body[span[0] : span[1]].strip().decode("utf-8", "replace")
    return checked_name(text, "form") if text else ""


def with_multipart_model(body: bytes, boundary: bytes, name: str) -> bytes:
    """The same form with the value of ``model`` replaced; unchanged if it has none."""
    span = _model_part(body, boundary)
    return body if span is None else body[: span[0]] + name.encode() + body[span[1] :]


def _model_part(body: bytes, boundary: bytes) -> tuple[int, int] | None:
    """Where the value of the field ``model`` starts and ends."""
    mark = b"--" + boundary
    at = body.find(mark)
    while at >= 0:
        start = at + len(mark)
        gap = body.find(b"\r\n\r\n", start, start + 8192)
        following = body.find(b"\r\n" + mark, start)
        if gap < 0 or following < 0:
            return None
        head = _PART_NAME.search(body[start:gap]) if gap < following else None
        if head and head.group(1).strip() == b"model":
            return gap + 4, following
        at = following + 2
    return None
