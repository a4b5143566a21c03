"""The admission webhook's two endpoints: ``/validate`` and ``/mutate``, AdmissionReview v1 in and out."""

import base64
import logging
from typing import Any

import msgspec

from flexinfer.adapters.web.ops import Report, answer_ops
from flexinfer.adapters.web.serve import Receive, Scope, Send, read_body, respond
from flexinfer.core.lifecycle.admission import completed, judge
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

MAX_BODY = 8 << 20  # an AdmissionReview holds the object twice, and an object is at most 1.5 MiB
_ANSWERED = metrics.counter("flexinfer_webhook_requests_total", "Admission reviews answered.", ("path", "result"))


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    operation: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _Meta(msgspec.Struct, rename="camel"):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Head(msgspec.Struct):
    """What the API server has checked before it asks; anybody else may send another shape."""

    kind: str = ""
    metadata: _Meta | None = None


class _Review(msgspec.Struct, rename="camel"):
    request: _Request
    api_version: str = "admission.k8s.io/v1"


_decoder = msgspec.json.Decoder(_Review)


def _decode(body: bytes) -> _Review:
    review = _decoder.decode(body)
    for found in (review.request.object, review.request.old_object):
        msgspec.convert(found, _Head | None)
    return review


class AdmissionApp:
    """ASGI application; ``report`` is that of the ops endpoints."""

    def __init__(self, report: Report) -> None:
        self._report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path not in ("/validate", "/mutate"):
            if not await answer_ops(path, send, self._report):
                await respond(send, 404, b'{"error":"not found"}')
            return
        body = await read_body(receive, MAX_BODY)
        if body is None:
            _ANSWERED.labels(path=path, result="large").inc()
            await respond(send, 413, b'{"error":"larger than %d bytes"}' % MAX_BODY)
            return
        try:
            review = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            _ANSWERED.labels(path=path, result="malformed").inc()
            log.warning("%s: no AdmissionReview: %s", path, err)
            await respond(send, 400, msgspec.json.encode({"error": f"not an AdmissionReview: {err}"}))
            return
        answer = _validated(review.request) if path == "/validate" else _mutated(review.request)
        _ANSWERED.labels(path=path, result="allowed" if answer["allowed"] else "denied").inc()
        await respond(
            send,
            200,
            msgspec.json.encode({"apiVersion": review.api_version, "kind": "AdmissionReview", "response": answer}),
        )


def _validated(request: _Request) -> dict[str, Any]:
    answer: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if request.object is None:
        return answer
    verdict = judge(request.object, request.old_object)
    if verdict.refusal:
        answer |= {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": verdict.refusal}}
    if verdict.warnings:
        answer["warnings"] = list(verdict.warnings)
    return answer


def _mutated(request: _Request) -> dict[str, Any]:
    answer: dict[str, Any] = {"uid": request.uid, "allowed": True}
    obj = request.object
    if obj is None or (obj.get("metadata") or {}).get("deletionTimestamp"):
        return answer
    spec = completed(obj)
    if spec != obj.get("spec"):
        patch = msgspec.json.encode([{"op": "replace", "path": "/spec", "value": spec}])
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return answer
