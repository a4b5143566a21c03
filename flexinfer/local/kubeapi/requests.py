"""An HTTP request taken apart: what it addresses, what it asks for, in which form it wants the answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

import orjson
import yaml

from flexinfer.local.kubeapi import errors
from flexinfer.local.kubeapi.catalog import Catalog
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json
from flexinfer.local.kubeapi.registry import WriteOptions

Form = Literal["object", "table", "metadata"]


@dataclass(slots=True)
class Request:
    """One request; header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @staticmethod
    def read(scope: Mapping[str, Any], body: bytes) -> "Request":
        """From an ASGI scope."""
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))
        return Request(scope["method"], scope["path"], query, headers, body)

    def flag(self, name: str) -> bool:
        """A boolean parameter as Go's ParseBool reads it; anything else is false."""
        return self.query.get(name, "") in ("1", "t", "T", "true", "TRUE", "True")

    def number(self, name: str) -> int | None:
        """An integer parameter. Raises ApiError 400."""
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError as err:
            raise errors.bad_request(f"invalid value for parameter {name}: {text!r}") from err

    @property
    def content_type(self) -> str:
        """Media type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def decode_body(self) -> Any:
        """The body as JSON data, from JSON or YAML. Raises ApiError 400, 415."""
        kind = self.content_type
        if kind not in ("", "application/json", "application/yaml", "text/plain", *PATCH_TYPES):
            raise errors.unsupported_media(
                f"the body of the request was in an unknown format ({kind}): this server reads application/json and"
                " application/yaml, not protobuf or CBOR (with kubectl: create -f, apply or run instead)"
            )
        try:
            if kind.endswith("yaml"):
                return load_yaml(self.body)
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as err:
            raise errors.bad_request(f"couldn't decode the body as JSON: {err}") from err

    def write_options(self) -> WriteOptions:
        """dryRun, fieldManager, fieldValidation, force. Raises ApiError 400."""
        dry = self.query.get("dryRun", "")
        if dry not in ("", "All"):
            raise errors.bad_request(f'invalid dryRun value "{dry}": only All is supported')
        agent = self.headers.get("user-agent", "unknown").partition("/")[0].strip() or "unknown"
        return WriteOptions(
            dry_run=dry == "All",
            manager=self.query.get("fieldManager") or agent,
            # The real server warns by default; clients that want errors say Strict, as kubectl does.
            validation=self.query.get("fieldValidation") or "Warn",
            force=self.flag("force"),
        )


STRATEGIC = "application/strategic-merge-patch+json"
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    STRATEGIC,
    "application/apply-patch+yaml",
)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: bytes) -> Any:
    """YAML, most often JSON that calls itself YAML. Raises ApiError 400."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader, the compiled one where there is one
    except yaml.YAMLError as err:
        raise errors.bad_request(f"error decoding YAML: {err}") from err


@dataclass(frozen=True, slots=True)
class Target:
    """What a resource URL addresses; empty ``name``: the collection."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


def resolve(path: str, catalog: Catalog) -> Target:
    """The resource behind ``/api/...`` or ``/apis/...``. Raises ApiError 404."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise errors.no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    kind = catalog.find(group, version, rest[0])
    if kind is None or len(rest) > 3 or bool(namespace) > kind.namespaced:
        raise errors.no_such_path()
    if len(rest) > 1 and kind.namespaced and not namespace:
        raise errors.no_such_path()
    return Target(kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")


@dataclass(frozen=True, slots=True)
class Accepted:
    """How the client wants the answer."""

    form: Form = "object"
    yaml: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)


def negotiate(accept: str) -> Accepted:
    """The first media type of ``Accept`` that can be served. Raises ApiError 406."""
    if not accept:
        return Accepted()
    for choice in accept.split(","):
        media, *pairs = (piece.strip() for piece in choice.split(";"))
        parameters = dict(pair.partition("=")[::2] for pair in pairs)
        if media not in ("application/json", "application/yaml", "*/*", "application/*", "text/plain", "text/*"):
            continue
        shape = parameters.get("as", "")
        if shape in ("", "APIGroupDiscoveryList"):
            return Accepted("object", media == "application/yaml", parameters)
        if shape == "Table" and parameters.get("v", "v1") == "v1":
            return Accepted("table", media == "application/yaml", parameters)
        if shape.startswith("PartialObjectMetadata"):
            return Accepted("metadata", media == "application/yaml", parameters)
    raise errors.ApiError(
        406, "NotAcceptable", "only the following media types are accepted: application/json, application/yaml"
    )


def type_of(body: Any) -> Json:
    """``body`` if it is a JSON object. Raises ApiError 400."""
    if not isinstance(body, dict):
        raise errors.bad_request("the body must be a JSON object")
    return body
