"""The verbs over the store, the same for every kind: create, update, patch, apply, delete.

All methods are synchronous. Controllers call them directly, the HTTP layer calls them per request.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from flexinfer.local.kubeapi import errors
from flexinfer.local.kubeapi.apply import Owner, apply, owners_of, track_update
from flexinfer.local.kubeapi.catalog import Catalog, schema_for
from flexinfer.local.kubeapi.cel import available, rule_causes
from flexinfer.local.kubeapi.crds import BUCKET
from flexinfer.local.kubeapi.decoding import decode
from flexinfer.local.kubeapi.deletion import DeleteOptions, Marking, mark
from flexinfer.local.kubeapi.eventkinds import from_core, to_core
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.metadata import metadata_causes, settle_name, settle_namespace
from flexinfer.local.kubeapi.objects import Json, clone, meta, timestamp
from flexinfer.local.kubeapi.pruning import missing
from flexinfer.local.kubeapi.store import Key, Store, Stored
from flexinfer.local.kubeapi.strategies import strategy_of
from flexinfer.local.kubeapi.validation import NOT_CHECKED, scale_causes, validate
from flexinfer.ports import Clock

_KEPT = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


@dataclass(slots=True)
class WriteOptions:
    """Query parameters of a write; ``warnings`` collects texts for Warning headers."""

    dry_run: bool = False
    manager: str = "unknown"
    validation: str = "Ignore"
    force: bool = False
    warnings: list[str] = field(default_factory=list)


class Registry:
    """Reads and writes of objects under the API's rules. Everything that fails raises ApiError."""

    def __init__(self, store: Store, catalog: Catalog, clock: Clock) -> None:
        self.store = store
        self.catalog = catalog
        self.clock = clock
        self.admission: list[Callable[[Kind, Json], Sequence[errors.Cause]]] = []

    # --- reading ---------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """One object in storage form. Raises 404."""
        found = self.store.get(kind.bucket, self.key(kind, namespace, name))
        if found is None:
            raise errors.not_found(kind, name)
        return found

    @staticmethod
    def key(kind: Kind, namespace: str, name: str) -> Key:
        """Key of an object in its bucket."""
        return (namespace if kind.namespaced else "", name)

    @staticmethod
    def present(kind: Kind, obj: Json) -> Json:
        """An object in storage form as this version shows it."""
        if kind.group == "events.k8s.io":
            return from_core(obj)
        if obj.get("apiVersion") != kind.api_version:
            return obj | kind.head()
        return obj

    def storage_form(self, kind: Kind, obj: Json) -> Json:
        """The reverse of ``present``."""
        if kind.group == "events.k8s.io":
            return to_core(obj)
        if kind.version != kind.storage_version:
            version = f"{kind.group}/{kind.storage_version}" if kind.group else kind.storage_version
            return obj | {"apiVersion": version}
        return obj

    # --- writing ---------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, body: Json, options: WriteOptions | None = None) -> Stored:
        """POST. Raises 400, 403, 404 (namespace), 409, 422."""
        options = options or WriteOptions()
        obj = decode(kind, body, options.validation, options.warnings)
        if kind.bucket == BUCKET and not available():
            options.warnings.append("CEL rules are not enforced: the package common-expression-language is missing")
        if obj["metadata"].get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        return self._insert(kind, namespace, obj, options)

    def _insert(self, kind: Kind, namespace: str, obj: Json, options: WriteOptions) -> Stored:
        settle_namespace(kind, obj, namespace)
        settle_name(obj)
        obj = self.storage_form(kind, obj)
        self._identify(kind, obj)
        self._check_namespace(kind, obj)
        causes = metadata_causes(kind, obj) or self._prepare(kind, obj) or self._causes(kind, obj, None)
        name = meta(obj).get("name", "")
        if causes:
            raise errors.invalid(kind, name, causes)
        key = self.key(kind, meta(obj).get("namespace", ""), name)
        if self.store.get(kind.bucket, key) is not None:
            raise errors.already_exists(kind, name)
        return Stored(obj, 0) if options.dry_run else self.store.put(kind.bucket, key, obj)

    def _identify(self, kind: Kind, obj: Json) -> None:
        metadata = obj["metadata"]
        for name in _KEPT:
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = timestamp(self.clock.now())
        if kind.generation:
            metadata["generation"] = 1

    def _prepare(self, kind: Kind, obj: Json) -> list[errors.Cause]:
        """Defaults and initial status of a new object; what an admission hook objects to."""
        strategy = strategy_of(kind.bucket)
        if kind.status and not strategy.keeps_status:
            obj.pop("status", None)
        for prepare in (strategy.default, strategy.create):
            if prepare:
                prepare(obj)
        return [cause for admit in self.admission for cause in admit(kind, obj)]

    def _check_namespace(self, kind: Kind, obj: Json) -> None:
        if not kind.namespaced:
            return
        name = meta(obj).get("namespace", "")
        found = self.store.get("namespaces", ("", name))
        if found is None:
            raise errors.ApiError(
                404, "NotFound", f'namespaces "{name}" not found', details={"name": name, "kind": "namespaces"}
            )
        if meta(found.obj).get("deletionTimestamp") and kind.bucket != "events":
            why = f"unable to create new content in namespace {name} because it is being terminated"
            raise errors.forbidden(kind, meta(obj).get("name", ""), why, "NamespaceTerminating")

    def _causes(self, kind: Kind, obj: Json, before: Json | None) -> list[errors.Cause]:
        strategy = strategy_of(kind.bucket)
        if kind.custom:
            body = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
            schema = schema_for(kind)
            found: list[errors.Cause] = validate(body, schema, "") + scale_causes(kind, obj)
            if found and schema.has_rules:
                return [*found, NOT_CHECKED]
            return found or rule_causes(obj, before, schema)
        found = []
        spec = schema_for(kind).member("spec")
        if strategy.check is not None and spec is not None and isinstance(obj.get("spec"), dict):
            found = [errors.required(path) for path in missing(obj["spec"], spec, "spec")]
        if not found and strategy.check is not None:
            found = strategy.check(obj)
        if not found and before is not None and strategy.compare is not None:
            found = strategy.compare(before, obj)
        return found

    def update(
        self, kind: Kind, namespace: str, body: Json, options: WriteOptions | None = None, subresource: str = ""
    ) -> Stored:
        """PUT of an object or its status. Raises 400, 404, 409, 422."""
        options = options or WriteOptions()
        obj = decode(kind, body, options.validation, options.warnings)
        settle_namespace(kind, obj, namespace)
        name = obj["metadata"].get("name", "")
        before = self.get(kind, obj["metadata"].get("namespace", ""), name)
        if not obj["metadata"].get("resourceVersion") and not (kind.unconditional_update and not kind.custom):
            cause = errors.wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(kind, name, [cause])
        uid = obj["metadata"].get("uid")
        if uid and uid != meta(before.obj)["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta(before.obj)['uid']}"
            raise errors.conflict(kind, name, why)
        return self._replace(kind, before, self.storage_form(kind, obj), options, subresource)

    def patch(
        self,
        kind: Kind,
        key: Key,
        change: Callable[[Json], Json],
        options: WriteOptions | None = None,
        subresource: str = "",
    ) -> Stored:
        """Read, ``change`` the presented form, write. Raises what update raises."""
        options = options or WriteOptions()
        before = self.get(kind, *key)
        changed = change(self.present(kind, before.obj))
        obj = decode(kind, changed, options.validation, options.warnings)
        name, namespace = obj["metadata"].get("name"), obj["metadata"].get("namespace", "")
        if name != key[1] or (kind.namespaced and namespace != key[0]):
            raise errors.invalid(kind, key[1], [errors.wrong("metadata.name", name, "field is immutable")])
        return self._replace(kind, before, self.storage_form(kind, obj), options, subresource)

    def apply(
        self, kind: Kind, key: Key, body: Json, options: WriteOptions, subresource: str = ""
    ) -> tuple[Stored, bool]:
        """Server-side apply; (object, whether it was created). Raises 400, 404 (status of nothing), 409, 422."""
        if meta(body).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        if not body.get("apiVersion") or not body.get("kind"):
            raise errors.bad_request("apply needs apiVersion and kind in the body")
        wanted = decode_applied(kind, body, options)
        settle_namespace(kind, wanted, key[0])
        if wanted["metadata"].setdefault("name", key[1]) != key[1]:
            why = f"the name of the object ({wanted['metadata']['name']}) does not match the name on the URL ({key[1]})"
            raise errors.bad_request(why)
        owner = Owner(options.manager, "Apply", kind.api_version, subresource)
        now = timestamp(self.clock.now())
        schema = schema_for(kind)
        before = self.store.get(kind.bucket, key)
        if before is None:
            if subresource:
                raise errors.not_found(kind, key[1])
            blank = {**kind.head(), "metadata": {}}
            obj = apply(blank, wanted, schema, owner, force=True, now=now)
            return self._insert(kind, key[0], decode(kind, obj), options), True
        if subresource == "status":
            wanted = {**kind.head(), "metadata": wanted["metadata"], "status": wanted.get("status", {})}
        live = self.present(kind, before.obj)
        merged = apply(live, wanted, schema, owner, force=options.force, now=now)
        obj = self.storage_form(kind, decode(kind, merged))
        return self._replace(kind, before, obj, options, subresource, applied=True), False

    def _replace(
        self, kind: Kind, before: Stored, obj: Json, options: WriteOptions, subresource: str, *, applied: bool = False
    ) -> Stored:
        old, name = before.obj, meta(before.obj)["name"]
        self._check_versions(kind, before, obj)
        _carry_over(kind, old, obj, subresource)
        strategy = strategy_of(kind.bucket)
        if strategy.default:
            strategy.default(obj)
        added = set(meta(obj).get("finalizers") or ()) - set(meta(old).get("finalizers") or ())
        causes = metadata_causes(kind, obj)
        if added and meta(old).get("deletionTimestamp"):
            why = "no new finalizers can be added if the object is being deleted, found new finalizers "
            causes.append(errors.not_allowed("metadata.finalizers", why + str(sorted(added))))
        causes += self._causes(kind, obj, old)
        if causes:
            raise errors.invalid(kind, name, causes)
        if _spec_changed(kind, old, obj):
            obj["metadata"]["generation"] = meta(old).get("generation", 1) + 1
        if not applied:
            now = timestamp(self.clock.now())
            owner = Owner(options.manager, "Update", kind.api_version, subresource)
            track_update(old, obj, schema_for(kind), owner, now)
        if _unchanged(old, obj):
            return before
        if options.dry_run:
            return Stored(obj, before.version)
        return self.commit(kind, obj)

    @staticmethod
    def _check_versions(kind: Kind, before: Stored, obj: Json) -> None:
        wanted, current = meta(obj), meta(before.obj)
        version = wanted.get("resourceVersion")
        if version and version != "0" and version != current["resourceVersion"]:
            raise errors.conflict(kind, current["name"], errors.MODIFIED)
        if wanted.get("uid") and wanted["uid"] != current["uid"]:
            cause = errors.wrong("metadata.uid", wanted["uid"], "field is immutable")
            raise errors.invalid(kind, current["name"], [cause])

    def commit(self, kind: Kind, obj: Json) -> Stored:
        """Store a finished version; an object whose last finalizer went is removed instead."""
        metadata = meta(obj)
        key = self.key(kind, metadata.get("namespace", ""), metadata["name"])
        stored = self.store.put(kind.bucket, key, obj)
        pending = metadata.get("finalizers") or (kind.bucket == "namespaces" and obj["spec"].get("finalizers"))
        if metadata.get("deletionTimestamp") and not pending and not metadata.get("deletionGracePeriodSeconds"):
            return self.store.remove(kind.bucket, key)
        return stored

    def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions | None = None
    ) -> tuple[Stored, bool]:
        """(last or current version, whether it is gone). Raises 403, 404, 409."""
        options = options or DeleteOptions()
        before = self.get(kind, namespace, name)
        outcome: Marking = mark(kind, before.obj, options, self.clock.now())
        if options.dry_run:
            return before, outcome.gone
        if outcome.gone:
            return self.store.remove(kind.bucket, self.key(kind, namespace, name)), True
        if outcome.obj is None:
            return before, False
        return self.store.put(kind.bucket, self.key(kind, namespace, name), outcome.obj), False

    def edit(self, kind: Kind, stored: Stored, change: Callable[[Json], None]) -> Stored:
        """A controller's own write: ``change`` a copy in place, store it if that made a difference.

        Status, finalizers and bindings go this way; the rules for users' writes do not apply.
        """
        current = self.store.get(
            kind.bucket, self.key(kind, meta(stored.obj).get("namespace", ""), meta(stored.obj)["name"])
        )
        if current is None:
            raise errors.not_found(kind, meta(stored.obj)["name"])
        obj = clone(current.obj)
        change(obj)
        return current if obj == current.obj else self.commit(kind, obj)


def decode_applied(kind: Kind, body: Json, options: WriteOptions) -> Json:
    """The configuration of an apply, typed and pruned but without defaults: only what is said is owned."""
    if not kind.custom:
        return decode(kind, body, options.validation, options.warnings)
    return decode(replace(kind, schema=schema_for(kind).without_defaults()), body, options.validation, options.warnings)


def _carry_over(kind: Kind, old: Json, obj: Json, subresource: str) -> None:
    """Put back into ``obj`` what this write may not touch, in place."""
    metadata, previous = obj["metadata"], meta(old)
    for name in _KEPT:
        metadata.pop(name, None)
        if name in previous:
            metadata[name] = previous[name]
    metadata["resourceVersion"] = previous["resourceVersion"]
    if subresource == "status":
        _keep_all_but_status(kind, old, obj)
    elif kind.status:
        obj.pop("status", None)
        if "status" in old:
            obj["status"] = old["status"]
    if kind.bucket == "namespaces":
        obj["spec"] = old["spec"]


def _keep_all_but_status(kind: Kind, old: Json, obj: Json) -> None:
    status = obj.get("status")
    managed = meta(obj).get("managedFields")
    metadata = dict(old["metadata"])
    if kind.bucket in ("pods", "nodes"):
        # The real server lets a kubelet label and annotate through /status.
        metadata |= {name: obj["metadata"][name] for name in ("labels", "annotations") if name in obj["metadata"]}
    if managed is not None:
        metadata["managedFields"] = managed
    obj.clear()
    obj.update({name: value for name, value in old.items() if name != "status"})
    obj["metadata"] = metadata
    if status is not None:
        obj["status"] = status


def _spec_changed(kind: Kind, old: Json, obj: Json) -> bool:
    if kind.custom:
        skipped: Sequence[str] = ("metadata", "status", "apiVersion") if kind.status else ("metadata", "apiVersion")
        left = {name: value for name, value in old.items() if name not in skipped}
        return left != {name: value for name, value in obj.items() if name not in skipped}
    return kind.generation and old.get("spec") != obj.get("spec")


def _unchanged(old: Json, obj: Json) -> bool:
    if {**old, "metadata": None} != {**obj, "metadata": None}:
        return False
    bookkeeping = ("managedFields", "resourceVersion")
    left = {name: value for name, value in meta(old).items() if name not in bookkeeping}
    if left != {name: value for name, value in meta(obj).items() if name not in bookkeeping}:
        return False
    return owners_of(old)[0] == owners_of(obj)[0]
