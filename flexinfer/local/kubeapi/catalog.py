"""Which resource types exist right now: the built-in table and what CRDs have added."""

from collections.abc import Iterable

from flexinfer.local.kubeapi import builtin_schemas
from flexinfer.local.kubeapi.kinds import BUILTINS, Kind
from flexinfer.local.kubeapi.schema import Schema


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Sort key by Kubernetes' version priority, best last: v2 over v1 over v1beta2 over v1alpha1 over others."""
    body = version.removeprefix("v")
    for word, rank in (("alpha", 0), ("beta", 1)):
        major, found, minor = body.partition(word)
        if found and major.isdigit() and minor.isdigit():
            return (rank, int(major), int(minor), "")
    return (2, int(body), 0, "") if body.isdigit() else (-1, 0, 0, version)


class Catalog:
    """Lookup of kinds by URL, by apiVersion and kind, and by group for discovery."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_kind: dict[tuple[str, str], Kind] = {}
        self.revision = 0  # grows with each change, for cached discovery documents
        for kind in BUILTINS:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Register or replace one version of a resource."""
        self._by_path[kind.group, kind.version, kind.plural] = kind
        self._by_kind[kind.api_version, kind.kind] = kind
        self.revision += 1

    def remove(self, group: str, plural: str, keep: Iterable[str] = ()) -> None:
        """Forget the versions of a resource except ``keep``."""
        kept = set(keep)
        for path, kind in list(self._by_path.items()):
            if kind.group == group and kind.plural == plural and kind.version not in kept:
                del self._by_path[path]
                self._by_kind.pop((kind.api_version, kind.kind), None)
        self.revision += 1

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """By URL."""
        return self._by_path.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """By what an object says of itself."""
        return self._by_kind.get((api_version, kind))

    def by_bucket(self, bucket: str) -> Kind | None:
        """The storage version of what a bucket holds."""
        for kind in self._by_path.values():
            if kind.bucket == bucket and kind.group != "events.k8s.io" and kind.version == kind.storage_version:
                return kind
        return None

    def groups(self) -> dict[str, list[str]]:
        """Versions by group, the preferred one first; the core group is ``""``."""
        found: dict[str, set[str]] = {}
        for group, version, _ in self._by_path:
            found.setdefault(group, set()).add(version)
        return {
            group: sorted(versions, key=version_priority, reverse=True) for group, versions in sorted(found.items())
        }

    def kinds(self, group: str | None = None, version: str | None = None) -> list[Kind]:
        """Kinds of a group and version, or all, by plural."""
        picked = [
            kind
            for kind in self._by_path.values()
            if (group is None or kind.group == group) and (version is None or kind.version == version)
        ]
        return sorted(picked, key=lambda kind: (kind.group, kind.version, kind.plural))


def schema_for(kind: Kind) -> Schema:
    """Schema of a kind, built-in or custom."""
    if kind.custom:
        schema: Schema = kind.schema
        return schema
    return builtin_schemas.schema_of(kind.group, kind.version, kind.kind)
