"""Lists: selectors, pages that stay consistent, and the forms in which objects are shown."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flexinfer.local.kubeapi import errors
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, encode, meta
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.requests import Form, Request
from flexinfer.local.kubeapi.selectors import Predicate, field_predicate, label_predicate
from flexinfer.local.kubeapi.store import Stored
from flexinfer.local.kubeapi.tables import table_of

Render = Callable[[Stored], bytes]
_PAGES_KEPT = 256
_PAGE_LIFE = 300.0  # seconds, the compaction interval of the real server


def selection(kind: Kind, namespace: str, name: str, request: Request) -> Predicate | None:
    """The conditions of a list or watch as one predicate over stored objects. Raises ApiError 400."""
    tests: list[Predicate] = []
    if namespace:
        tests.append(lambda obj: meta(obj).get("namespace") == namespace)
    if name:
        tests.append(lambda obj: meta(obj).get("name") == name)
    labels = label_predicate(request.query.get("labelSelector", ""))
    if labels:
        tests.append(labels)
    fields = field_predicate(request.query.get("fieldSelector", ""), kind.selectable)
    if fields:
        shown = fields
        if kind.group == "events.k8s.io":
            tests.append(lambda obj: shown(Registry.present(kind, obj)))
        else:
            tests.append(shown)
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda obj: all(test(obj) for test in tests)


def object_bytes(kind: Kind, stored: Stored) -> bytes:
    """One object as this version shows it."""
    shown = Registry.present(kind, stored.obj)
    return stored.raw if shown is stored.obj else encode(shown)


def partial(obj: Json) -> Json:
    """``PartialObjectMetadata`` of an object."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta(obj)}


def renderer(kind: Kind, form: Form, request: Request, now: Callable[[], float]) -> Render:
    """How single objects of a watch or a get are written in ``form``."""
    if form == "metadata":
        return lambda stored: encode(partial(stored.obj))
    if form == "table":
        include = request.query.get("includeObject", "Metadata")

        def rows(stored: Stored) -> bytes:
            shown = Registry.present(kind, stored.obj)
            return encode(table_of(kind, [shown], now(), include, {"resourceVersion": str(stored.version)}))

        return rows
    return lambda stored: object_bytes(kind, stored)


@dataclass(slots=True)
class Page:
    """What is left of a list."""

    kind: str
    version: int
    rest: list[Stored]
    expires: float


class Lists:
    """Answers lists; remembers the rest of paged ones so that all pages show the same moment."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._pages: OrderedDict[str, Page] = OrderedDict()

    def answer(self, kind: Kind, namespace: str, request: Request, form: Form) -> bytes:
        """The body of a list. Raises ApiError 400, 410, 504."""
        store = self._registry.store
        self._check_version(request)
        token = request.query.get("continue", "")
        if token:
            version, items = self._resume(kind, token)
        else:
            wanted = selection(kind, namespace, "", request)
            items = store.list(kind.bucket, namespace if kind.namespaced else "")
            if wanted:
                items = [item for item in items if wanted(item.obj)]
            version = store.version
        limit = request.number("limit") or 0
        head: Json = {"resourceVersion": str(version)}
        if limit > 0 and len(items) > limit:
            items, rest = items[:limit], items[limit:]
            head["continue"] = self._remember(kind, version, rest)
            if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
                head["remainingItemCount"] = len(rest)
        return self._render(kind, items, head, request, form)

    def _render(self, kind: Kind, items: Sequence[Stored], head: Json, request: Request, form: Form) -> bytes:
        present = self._registry.present
        if form == "table":
            include = request.query.get("includeObject", "Metadata")
            shown = [present(kind, item.obj) for item in items]
            return encode(table_of(kind, shown, self._registry.clock.now(), include, head))
        if form == "metadata":
            metas = [partial(item.obj) for item in items]
            list_head = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": head}
            return encode(list_head | {"items": metas})
        opening = encode({"kind": kind.list_name, "apiVersion": kind.api_version, "metadata": head})
        body = b",".join(_item(kind, item) for item in items)
        return opening[:-1] + b',"items":[' + body + b"]}"

    def _check_version(self, request: Request) -> None:
        text = request.query.get("resourceVersion", "")
        if not text or text == "0":
            return
        if not text.isdigit():
            raise errors.bad_request(f"invalid resource version {text!r}")
        asked, current = int(text), self._registry.store.version
        if asked > current:
            raise too_large_version(asked, current)
        if request.query.get("resourceVersionMatch") == "Exact" and asked != current:
            raise errors.expired(f"The provided resource version is too old to display: {asked} ({current})")

    def _remember(self, kind: Kind, version: int, rest: list[Stored]) -> str:
        token = secrets.token_urlsafe(12)
        self._pages[token] = Page(kind.bucket, version, rest, self._registry.clock.monotonic() + _PAGE_LIFE)
        while len(self._pages) > _PAGES_KEPT:
            self._pages.popitem(last=False)
        return token

    def _resume(self, kind: Kind, token: str) -> tuple[int, list[Stored]]:
        page = self._pages.get(token)
        if page is None or page.kind != kind.bucket or page.expires < self._registry.clock.monotonic():
            raise errors.expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a new"
                " list without the continue parameter."
            )
        return page.version, page.rest

    def forget(self) -> None:
        """Let all continue tokens expire."""
        self._pages.clear()


def too_large_version(asked: int, current: int) -> errors.ApiError:
    """504 for a resourceVersion of the future."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return errors.ApiError(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {current}",
        details={"causes": [cause]},
        retry_after=1,
    )


def _item(kind: Kind, stored: Stored) -> bytes:
    """An object inside a list: like the real server, built-in kinds leave out apiVersion and kind there."""
    raw = object_bytes(kind, stored)
    if kind.custom:
        return raw
    prefix = encode(kind.head())[:-1] + b","
    return b"{" + raw[len(prefix) :] if raw.startswith(prefix) else raw
