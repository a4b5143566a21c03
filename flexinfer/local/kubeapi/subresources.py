"""Subresources with code of their own: scale, binding, eviction, log, token, finalize."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from flexinfer.local.kubeapi import errors
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.objects import Json, at, meta, set_condition, timestamp
from flexinfer.local.kubeapi.patching import json_patch, merge_patch
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.requests import Request, Target, type_of
from flexinfer.local.kubeapi.responses import Response, answer
from flexinfer.local.kubeapi.selectors import selector_text
from flexinfer.local.kubeapi.store import Stored

Logs = Callable[[str, str, str, Mapping[str, str]], Awaitable[bytes | AsyncIterator[bytes]]]
"""(namespace, pod, container, query parameters of the request) -> text, or parts while ``follow`` is on.

Raises LookupError with a sentence when there is nothing to read.
"""


class Subresources:
    """Dispatch to them."""

    def __init__(self, registry: Registry, logs: Logs | None) -> None:
        self._registry = registry
        self.logs = logs

    async def answer(self, target: Target, request: Request) -> Response:
        """The answer to a request of a subresource other than status. Raises ApiError."""
        known = {
            "scale": self._scale,
            "binding": self._binding,
            "eviction": self._eviction,
            "token": self._token,
            "finalize": self._finalize,
        }
        name = target.subresource
        if name == "log" and "log" in target.kind.subresources:
            return await self._log(target, request)
        handler = known.get(name)
        offered = (name == "scale" and target.kind.scale is not None) or name in target.kind.subresources
        if handler is None or not offered:
            raise errors.no_such_path()
        return handler(target, request)

    # --- scale -----------------------------------------------------------------------------------------------

    def _scale(self, target: Target, request: Request) -> Response:
        stored = self._registry.get(target.kind, target.namespace, target.name)
        current = scale_of(target, stored.obj)
        if request.method == "GET":
            return answer(current)
        if request.method not in ("PUT", "PATCH"):
            raise errors.method_not_allowed()
        body = request.decode_body()
        if isinstance(body, list):
            wanted = type_of(json_patch(current, body))
        else:
            wanted = type_of(merge_patch(current, body) if request.method == "PATCH" else body)
        version = meta(wanted).get("resourceVersion")
        if version and version != meta(stored.obj)["resourceVersion"]:
            raise errors.conflict(target.kind, target.name, errors.MODIFIED)
        replicas = at(wanted, "spec", "replicas") or 0
        if not isinstance(replicas, int) or replicas < 0:
            cause = errors.wrong("spec.replicas", replicas, "must be greater than or equal to 0")
            raise errors.invalid(target.kind, target.name, [cause])
        changed = self._set_replicas(target, replicas, request)
        return answer(scale_of(target, changed.obj))

    def _set_replicas(self, target: Target, replicas: int, request: Request) -> Stored:
        paths = target.kind.scale
        if paths is None:
            raise errors.no_such_path()
        patch: Json = {}
        node = patch
        *parents, last = paths.spec.split(".")
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = replicas
        key = self._registry.key(target.kind, target.namespace, target.name)
        options = request.write_options()
        return self._registry.patch(target.kind, key, lambda obj: type_of(merge_patch(obj, patch)), options)

    # --- pods ------------------------------------------------------------------------------------------------

    def _binding(self, target: Target, request: Request) -> Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        body = type_of(request.decode_body())
        node = at(body, "target", "name")
        if not node:
            cause = errors.required("target.name")
            raise errors.invalid(target.kind, target.name, [cause])
        self.bind(target, str(node), meta(body))
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return answer(status, 201)

    def bind(self, target: Target, node: str, binding: Json) -> Stored:
        """Assign a pod to a node. Raises 404, 409 if it has one already or is being deleted."""
        stored = self._registry.get(target.kind, target.namespace, target.name)
        pod = stored.obj
        if binding.get("uid") and binding["uid"] != meta(pod)["uid"]:
            why = f"Precondition failed: UID in precondition: {binding['uid']}, UID in object meta: {meta(pod)['uid']}"
            raise errors.conflict(target.kind, target.name, why)
        if meta(pod).get("deletionTimestamp"):
            why = f"pod {target.name} is being deleted, cannot be assigned to a host"
            raise errors.conflict(target.kind, target.name, why)
        taken = at(pod, "spec", "nodeName")
        if taken:
            why = f'pod {target.name} is already assigned to node "{taken}"'
            raise errors.conflict(target.kind, target.name, why)
        now = self._registry.clock.now()

        def assign(obj: Json) -> None:
            obj["spec"]["nodeName"] = node
            if binding.get("annotations"):
                obj["metadata"].setdefault("annotations", {}).update(binding["annotations"])
            status = obj.setdefault("status", {})
            condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
            status["conditions"] = set_condition(status.get("conditions") or [], condition, now)

        return self._registry.edit(target.kind, stored, assign)

    def _eviction(self, target: Target, request: Request) -> Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        body = type_of(request.decode_body())
        options = DeleteOptions.parse(body.get("deleteOptions") or {}, request.query)
        self._registry.delete(target.kind, target.namespace, target.name, options)
        return answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    async def _log(self, target: Target, request: Request) -> Response:
        if request.method != "GET":
            raise errors.method_not_allowed()
        pod = self._registry.get(target.kind, target.namespace, target.name).obj
        container = request.query.get("container") or _only_container(pod, target.name)
        if self.logs is None:
            raise errors.ApiError(501, "NotImplemented", "no process runner is attached to this API")
        try:
            text = await self.logs(target.namespace, target.name, container, request.query)
        except LookupError as err:
            raise errors.bad_request(str(err.args[0]) if err.args else "no logs") from err
        if not isinstance(text, bytes):
            return Response(200, b"", b"text/plain", parts=text)
        return Response(200, text, b"text/plain")

    # --- others ----------------------------------------------------------------------------------------------

    def _token(self, target: Target, request: Request) -> Response:
        """A TokenRequest: an opaque token; this server knows one user only, so it opens nothing."""
        if request.method != "POST":
            raise errors.method_not_allowed()
        self._registry.get(target.kind, target.namespace, target.name)
        body = type_of(request.decode_body())
        seconds = at(body, "spec", "expirationSeconds") or 3600
        expires = timestamp(self._registry.clock.now() + seconds)
        status = {"token": secrets.token_urlsafe(32), "expirationTimestamp": expires}
        head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        metadata = {"name": target.name, "namespace": target.namespace}
        return answer({**head, "metadata": metadata, "spec": body.get("spec") or {}, "status": status}, 201)

    def _finalize(self, target: Target, request: Request) -> Response:
        if request.method != "PUT":
            raise errors.method_not_allowed()
        stored = self._registry.get(target.kind, "", target.name)
        finalizers = list(at(type_of(request.decode_body()), "spec", "finalizers") or ())

        def change(obj: Json) -> None:
            obj["spec"] = {"finalizers": finalizers} if finalizers else {}

        return answer(self._registry.edit(target.kind, stored, change).obj)


def _only_container(pod: Json, name: str) -> str:
    containers = at(pod, "spec", "containers") or []
    if len(containers) == 1:
        return str(containers[0]["name"])
    preferred = (meta(pod).get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if preferred:
        return str(preferred)
    names = " ".join(container["name"] for container in containers)
    raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{names}]")


def scale_of(target: Target, obj: Json) -> Json:
    """``autoscaling/v1 Scale`` of an object."""
    paths = target.kind.scale
    if paths is None:
        raise errors.no_such_path()
    selector = at(obj, *paths.selector.split(".")) if paths.selector else ""
    status: Json = {"replicas": at(obj, *paths.status.split(".")) or 0}
    text = selector if isinstance(selector, str) else selector_text(selector)
    if text:
        status["selector"] = text
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {key: value for key, value in meta(obj).items() if key in kept},
        "spec": {"replicas": at(obj, *paths.spec.split(".")) or 0},
        "status": status,
    }
