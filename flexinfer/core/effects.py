"""What decisions ask for, as plain data: an interpreter performs it, and the outcome comes back as a fact."""

from dataclasses import dataclass, field
from typing import Literal

from flexinfer.contracts.events import EventData
from flexinfer.contracts.kubernetes import Object, Resource


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply. With ``owner`` (a uid) an existing object that this owner does not control is left alone."""

    resource: Resource
    body: Object
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Create:
    """POST; somebody else having been quicker is a refusal of code ``AlreadyExists``."""

    resource: Resource
    body: Object


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge patch. A ``resourceVersion`` in the body makes it fail when the object changed in between."""

    resource: Resource
    namespace: str
    name: str
    body: Object
    subresource: str | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE of exactly the object with this uid; one that is gone already counts as done."""

    resource: Resource
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Publish:
    """An event on the bus; ``at`` is the time of observation in Unix seconds (None: when it is performed)."""

    data: EventData
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A Kubernetes Event about an object, for people."""

    regarding: Object
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Write = Apply | Create | Patch | Delete
Effect = Write | Publish | Note


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that did not happen. ``code``: Conflict, AlreadyExists, NotFound, Invalid, Forbidden, Taken, Expired
    or Unavailable; ``retry_after`` in seconds if the server said so."""

    effect: Write
    code: str
    message: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Effects in the order in which they must happen, and when (Unix seconds) to look again without a new fact."""

    effects: tuple[Effect, ...] = ()
    wake_at: float | None = field(default=None)


def target(effect: Write) -> str:
    """What a write is about, and how: failures of one target are counted together."""
    match effect:
        case Apply(resource, body) | Create(resource, body):
            meta = body["metadata"]
            return f"{type(effect).__name__} {resource.plural} {meta.get('namespace', '')}/{meta['name']}"
        case Patch(resource, namespace, name, _, subresource):
            return f"Patch {resource.plural}{'/' + subresource if subresource else ''} {namespace}/{name}"
        case Delete(resource, namespace, name):
            return f"Delete {resource.plural} {namespace}/{name}"
