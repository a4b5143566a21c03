"""The ASGI application: authentication, dispatch by verb, answers."""

import hmac
import logging
from collections.abc import Callable

from flexinfer.adapters.web.serve import Receive, Scope, Send, read_body, respond
from flexinfer.local.kubeapi import discovery, errors, subresources
from flexinfer.local.kubeapi.catalog import schema_for
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.faults import ConnectionCut, Faults
from flexinfer.local.kubeapi.objects import Json, meta
from flexinfer.local.kubeapi.patching import json_patch, merge_patch
from flexinfer.local.kubeapi.piping import Pipes
from flexinfer.local.kubeapi.reading import Lists, renderer, selection
from flexinfer.local.kubeapi.registry import Registry, WriteOptions
from flexinfer.local.kubeapi.requests import (
    PATCH_TYPES,
    STRATEGIC,
    Accepted,
    Request,
    Target,
    negotiate,
    resolve,
    type_of,
)
from flexinfer.local.kubeapi.responses import Response, answer, failure, success, warn
from flexinfer.local.kubeapi.store import Stored
from flexinfer.local.kubeapi.strategic import strategic_merge
from flexinfer.local.kubeapi.watching import DEFAULT_TIMEOUT, StreamCut, Watches, WatchRequest

log = logging.getLogger(__name__)

BODY_LIMIT = 3 * 1024 * 1024  # bytes, as the real server
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")

Verb = Callable[[Target, Request, Accepted], Response]


class Application:
    """Serves one registry. ``logs`` answers pods/log; see subresources.Logs."""

    def __init__(
        self,
        registry: Registry,
        watches: Watches,
        pipes: Pipes,
        faults: Faults,
        token: str,
        logs: subresources.Logs | None,
    ) -> None:
        self.registry = registry
        self.lists = Lists(registry)
        self._watches = watches
        self._pipes = pipes
        self._faults = faults
        self._token = token.encode()
        self._documents = discovery.Documents(registry.catalog)
        self.subresources = subresources.Subresources(registry, logs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        try:
            body = await read_body(receive, BODY_LIMIT)
            if body is None:
                raise errors.too_large(BODY_LIMIT)
            request = Request.read(scope, body)
            self._authenticate(request)
            await self._faults.strike(request, send)
            response = await self._answer(request, receive, send)
        except ApiError as err:
            response = failure(err)
        except StreamCut:
            self._faults.cut(send)
            return
        except ConnectionCut:
            return
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            log.exception("%s %s failed", scope["method"], scope["path"])
            response = failure(
                ApiError(500, "InternalError", "Internal error occurred: see the log of the embedded API")
            )
        if response is not None and response.parts is not None:
            await self._pipes.send(response.parts, response.content_type, receive, send)
        elif response is not None:
            await respond(send, response.status, response.body, response.content_type, response.headers)

    def _authenticate(self, request: Request) -> None:
        """By bearer token, or by the token as first segment of the path, which is taken off."""
        first, slash, rest = request.path[1:].partition("/")
        if slash and hmac.compare_digest(first.encode(), self._token):
            request.path = f"/{rest}"
            return
        if request.path in _OPEN_PATHS:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _answer(self, request: Request, receive: Receive, send: Send) -> Response | None:
        document = self._documents.answer(request)
        if document is not None:
            return document
        target = resolve(request.path, self.registry.catalog)
        accepted = negotiate(request.headers.get("accept", ""))
        if target.subresource and target.subresource != "status":
            return await self.subresources.answer(target, request)
        if request.method == "GET" and self._is_watch(target, request):
            watch = self._watch(target, request, accepted)
            await self._watches.serve(watch, self._watches.position(watch), receive, send)
            return None
        verb = self._verb(target, request)
        return verb(target, request, accepted)

    def _verb(self, target: Target, request: Request) -> Verb:
        if target.subresource == "status" and not target.kind.status:
            raise errors.no_such_path()
        if target.name:
            table = {"GET": self._get, "PUT": self._put, "PATCH": self._patch, "DELETE": self._delete}
            if target.subresource:
                table.pop("DELETE")
        else:
            table = {"GET": self._list, "POST": self._post, "DELETE": self._delete_collection}
        verb = table.get(request.method)
        if verb is None:
            raise errors.method_not_allowed()
        return verb

    @staticmethod
    def _is_watch(target: Target, request: Request) -> bool:
        if target.subresource:
            return False
        return request.flag("watch")

    # --- reading ---------------------------------------------------------------------------------------------

    def _get(self, target: Target, request: Request, accepted: Accepted) -> Response:
        return self._show(target, request, accepted, self.registry.get(target.kind, target.namespace, target.name))

    def _list(self, target: Target, request: Request, accepted: Accepted) -> Response:
        body = self.lists.answer(target.kind, target.namespace, request, accepted.form)
        return Response(200, body)

    def _watch(self, target: Target, request: Request, accepted: Accepted) -> WatchRequest:
        version = request.number("resourceVersion") or None
        initial = request.flag("sendInitialEvents")
        timeout = request.number("timeoutSeconds")
        return WatchRequest(
            kind=target.kind,
            version=None if initial else version,
            selected=selection(target.kind, target.namespace, target.name, request),
            render=renderer(target.kind, accepted.form, request, self.registry.clock.now),
            bookmarks=request.flag("allowWatchBookmarks"),
            initial_end=initial,
            timeout=timeout or DEFAULT_TIMEOUT,
        )

    def _show(
        self, target: Target, request: Request, accepted: Accepted, stored: Stored, status: int = 200
    ) -> Response:
        if accepted.yaml:
            return answer(self.registry.present(target.kind, stored.obj), status, as_yaml=True)
        write = renderer(target.kind, accepted.form, request, self.registry.clock.now)
        return Response(status, write(stored))

    # --- writing ---------------------------------------------------------------------------------------------

    def _post(self, target: Target, request: Request, accepted: Accepted) -> Response:
        options = request.write_options()
        stored = self.registry.create(target.kind, target.namespace, type_of(request.decode_body()), options)
        return warn(self._show(target, request, accepted, stored, 201), options.warnings)

    def _put(self, target: Target, request: Request, accepted: Accepted) -> Response:
        options = request.write_options()
        body = type_of(request.decode_body())
        name = meta(body).get("name")
        if name != target.name:
            raise errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            )
        stored = self.registry.update(target.kind, target.namespace, body, options, target.subresource)
        return warn(self._show(target, request, accepted, stored), options.warnings)

    def _patch(self, target: Target, request: Request, accepted: Accepted) -> Response:
        options = request.write_options()
        stored, created = self._patched(target, request, options)
        return warn(self._show(target, request, accepted, stored, 201 if created else 200), options.warnings)

    def _patched(self, target: Target, request: Request, options: WriteOptions) -> tuple[Stored, bool]:
        kind = target.kind
        key = self.registry.key(kind, target.namespace, target.name)
        form = request.content_type
        offered = [media for media in PATCH_TYPES if not (kind.custom and media == STRATEGIC)]
        if form not in offered:
            raise errors.unsupported_media(
                f"the body of the request was in an unknown format - accepted media types include: {', '.join(offered)}"
            )
        patch = request.decode_body()
        if form == "application/apply-patch+yaml":
            if not request.query.get("fieldManager"):
                raise _no_manager()
            return self.registry.apply(kind, key, type_of(patch), options, target.subresource)
        change = _patcher(form, patch, target)
        return self.registry.patch(kind, key, change, options, target.subresource), False

    # --- deleting --------------------------------------------------------------------------------------------

    def _delete(self, target: Target, request: Request, accepted: Accepted) -> Response:
        stored, gone = self.registry.delete(target.kind, target.namespace, target.name, _delete_options(request))
        if gone and target.kind.bucket != "pods":
            return answer(success(_details(target, stored.obj)))
        return self._show(target, request, accepted, stored)

    def _delete_collection(self, target: Target, request: Request, accepted: Accepted) -> Response:
        options = _delete_options(request)
        if accepted.yaml:
            raise errors.ApiError(406, "NotAcceptable", "a collection is deleted in JSON only")
        if target.kind.bucket == "namespaces" or (target.kind.namespaced and not target.namespace):
            raise errors.method_not_allowed()
        wanted = selection(target.kind, target.namespace, "", request)
        found = self.registry.store.list(target.kind.bucket, target.namespace if target.kind.namespaced else "")
        for stored in found:
            if wanted is None or wanted(stored.obj):
                metadata = meta(stored.obj)
                self.registry.delete(target.kind, metadata.get("namespace", ""), metadata["name"], options)
        return answer(success({"group": target.kind.group, "kind": target.kind.plural}))


def _delete_options(request: Request) -> DeleteOptions:
    body = type_of(request.decode_body()) if request.body else {}
    return DeleteOptions.parse(body, request.query)


def _details(target: Target, obj: Json) -> Json:
    details = {
        "name": meta(obj)["name"],
        "group": target.kind.group,
        "kind": target.kind.plural,
        "uid": meta(obj)["uid"],
    }
    return {key: value for key, value in details.items() if value}


def _no_manager() -> ApiError:
    why = "Required value: is required for apply patch"
    cause = {"reason": "FieldValueRequired", "message": why, "field": "fieldManager"}
    details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]}
    return ApiError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {why}', details=details)


def _patcher(form: str, patch: object, target: Target) -> Callable[[Json], Json]:
    if form == "application/json-patch+json":
        if not isinstance(patch, list):
            raise errors.bad_request("error decoding patch: a JSON patch is an array of operations")
        return lambda obj: type_of(json_patch(obj, patch))
    body = type_of(patch)
    if form == "application/merge-patch+json":
        return lambda obj: type_of(merge_patch(obj, body))
    return lambda obj: type_of(strategic_merge(obj, body, schema_for(target.kind)))
