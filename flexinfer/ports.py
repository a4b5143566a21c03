"""What the rest of the system may ask of the outside world, and the errors each adapter may raise.

Adapters implement these Protocols; runtime, apps and tests depend on them only.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import EventData, Vendor
from flexinfer.contracts.kubernetes import KubeDelta, Object, Resource
from flexinfer.core.hardware.findings import Findings, Live


class Clock(Protocol):
    """Time as an input."""

    def now(self) -> float:
        """Unix seconds, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for durations and deadlines."""
        ...


# --- bus -----------------------------------------------------------------------------------------------------


class BusUnavailable(Exception):
    """The bus cannot be reached now, or did not answer in time. Retrying later is right."""


class BusRefused(Exception):
    """The bus answered no: missing bucket or stream, denied subject, full store. The text says which."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete state of some event types at one moment; keys that are missing here no longer exist.

    ``epoch`` grows by one with each snapshot of the same subscription (start, reconnect, store wiped).
    """

    types: tuple[type[EventData], ...]
    events: tuple[Event, ...]
    epoch: int


BusFact = Event | Snapshot


class Subscription(Protocol):
    """A running follow."""

    @property
    def synced(self) -> bool:
        """True after the first snapshot was delivered and while the connection is up."""
        ...

    async def close(self) -> None:
        """Stop delivering and free what the server holds for us."""
        ...


class Publisher(Protocol):
    """The half of a bus that a producer needs."""

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        """See Bus."""
        ...


class Bus(Protocol):
    """Events in and out. Delivery is at least once and may be out of order: reducers drop repeats."""

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        """Send to the live subject, write or retract the state key, and log as the topic table says.

        Without ``durable`` it never blocks on a bus that is away: the latest state per key is kept (bounded) and
        written after the reconnect, live copies are dropped and counted. With ``durable`` it waits for the
        server to store the event. Raises BusUnavailable or BusRefused only when ``durable``.
        """
        ...

    async def follow(
        self, types: Sequence[type[EventData]], sink: Callable[[BusFact], None], names: Sequence[str] = ()
    ) -> Subscription:
        """Deliver a Snapshot of the types that have state, then live events; a new Snapshot after each reconnect.

        ``names`` narrows all of it to what is about them, in the order of the subject: a node; a namespace, a model.

        Waits until the bus can be reached and the buckets exist. ``sink`` is called on the event loop, must not
        block, and never sees malformed messages: those are counted and logged with their subject.
        Types without state are only followed live.
        """
        ...

    async def state(self, types: Sequence[type[EventData]], names: Sequence[str] = ()) -> tuple[Event, ...]:
        """One read of the stored state of these types and names. Raises BusUnavailable, BusRefused."""
        ...

    async def history(self, since: float | None = None, *, follow: bool = False) -> AsyncIterator[Event]:
        """Events of the shared log from ``since`` (Unix seconds; None: all kept), then live if ``follow``.

        Raises BusUnavailable, BusRefused.
        """
        ...

    async def ensure(self) -> None:
        """Create the buckets and the log stream with their limits, or adjust limits; never delete.

        The manager alone calls this, at start and after each reconnect. Raises BusUnavailable, BusRefused.
        """
        ...

    @property
    def connected(self) -> bool:
        """Whether the connection is up right now."""
        ...

    def on_connect(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` on the event loop after each (re)connect, and now if connected."""
        ...

    async def close(self) -> None:
        """Flush and disconnect within a few seconds."""
        ...


# --- Kubernetes ----------------------------------------------------------------------------------------------


class KubeError(Exception):
    """The API server answered with a failure. ``status`` is the HTTP code, ``reason`` the Status reason."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{message or reason} ({status} {reason})")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NotFound(KubeError):
    """404."""


class Conflict(KubeError):
    """409: the object changed in between, or exists already (``reason`` AlreadyExists)."""


class Invalid(KubeError):
    """400, 415 or 422: the object or patch is wrong; retrying the same will not help."""


class Forbidden(KubeError):
    """401 or 403: credentials or RBAC, or a quota (the message tells)."""


class Expired(KubeError):
    """410: the resourceVersion is too old; list again."""


class KubeUnavailable(Exception):
    """No answer: connection refused, reset, timed out, 429 or 5xx. Retrying later is right.

    ``retry_after``: seconds the server asked to wait, if it did.
    """

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


PatchKind = Literal["merge", "json", "strategic", "apply"]


@dataclass(frozen=True, slots=True)
class ListPage:
    """A whole list (all pages) and the resourceVersion to watch from."""

    items: tuple[Object, ...]
    resource_version: str


class KubeApi(Protocol):
    """Objects as plain dictionaries. Every call has a time limit and raises KubeError or KubeUnavailable."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object. Raises NotFound."""
        ...

    async def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> ListPage:
        """All objects, selectors in Kubernetes syntax; items carry apiVersion and kind."""
        ...

    async def create(
        self, resource: Resource, body: Object, namespace: str | None = None, subresource: str | None = None
    ) -> Object:
        """POST. ``subresource`` with the object's name in ``body.metadata.name`` (binding, token). Raises Conflict."""
        ...

    async def replace(
        self, resource: Resource, body: Object, namespace: str | None = None, subresource: str | None = None
    ) -> Object:
        """PUT with the body's resourceVersion. Raises Conflict, NotFound."""
        ...

    async def patch(  # noqa: PLR0913 - mirrors the API's own parameters
        self,
        resource: Resource,
        name: str,
        body: Object | Sequence[Object],
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> Object:
        """PATCH; ``apply`` is server-side apply with force, and creates what is missing."""
        ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """DELETE, with a uid precondition if given. Raises NotFound, Conflict."""
        ...

    def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[tuple[str, Object]]:
        """One watch: (type, object) pairs, BOOKMARK included, until the server ends it or falls silent.

        Raises Expired, KubeUnavailable. Reconnecting and relisting are the informer's job.
        """
        ...

    async def logs(self, namespace: str, pod: str, container: str | None = None, tail: int | None = None) -> str:
        """Log text of a container."""
        ...


@dataclass(frozen=True, slots=True)
class Relisted:
    """A list just completed: objects of this kind that are not in ``objects`` no longer exist."""

    plural: str
    objects: tuple[Object, ...]


KubeFact = KubeDelta | Relisted


# --- inference -----------------------------------------------------------------------------------------------


class EngineError(Exception):
    """A request to an engine or proxy failed. ``reason`` is a CamelCase code (NotReady, Http, MalformedStream,
    NoUsage, Timeout, Connection, WrongModel, Limited, Denied, Refused, ContextTooLong, Tls, EngineFailed; see
    core.benchmark.failures), ``status`` the HTTP code if there was one."""

    def __init__(self, reason: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished streamed completion, times in seconds from sending the request."""

    prompt_tokens: int
    completion_tokens: int
    duration: float
    first_token: float | None
    token_times: tuple[float, ...]
    text: str
    endpoint: str | None = None  # X-FlexInfer-Endpoint
    engine_tokens_per_second: float | None = None  # predicted_n / (prompt_ms + predicted_ms) of llama.cpp
    finish_reason: str | None = None
    model: str | None = None  # the name the engine answered with
    cached_tokens: int | None = None  # prompt tokens taken from a cache; None: not told


class InferenceClient(Protocol):
    """An OpenAI-compatible server, or a proxy in front of many."""

    async def complete(self, model: str, prompt: str, max_tokens: int, options: Mapping[str, Any]) -> Completion:
        """One streamed completion, read to its end. Raises EngineError."""
        ...

    async def models(self) -> Sequence[str]:
        """Names the server lists. Raises EngineError."""
        ...


# --- hardware ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Output of one command-line tool. ``found`` false: there is no such program; ``timed_out``: it was killed."""

    stdout: bytes
    stderr: bytes
    code: int
    found: bool = True
    timed_out: bool = False


class HostFiles(Protocol):
    """Files of the machine, looked up below a root. Paths are absolute as on the host."""

    def read(self, path: str, limit: int = 1 << 20) -> bytes | None:
        """Content, or None if it is missing or unreadable."""
        ...

    def listdir(self, path: str) -> tuple[str, ...]:
        """Sorted names, empty if missing."""
        ...

    def readlink(self, path: str) -> str | None:
        """Target of a symbolic link, or None."""
        ...


class Tools(Protocol):
    """Command-line tools, run with a time limit, C locale and a clean environment."""

    async def run(self, argv: Sequence[str], timeout: float = 10.0) -> ToolResult:  # noqa: ASYNC109 - a property of the call, enforced by killing the process group
        """Never raises for what the tool does."""
        ...


class HardwareSource(Protocol):
    """One vendor's accelerators on this machine. Neither call raises for what drivers and tools do."""

    @property
    def vendor(self) -> Vendor:
        """Whose hardware it looks for."""
        ...

    @property
    def period(self) -> float | None:
        """Least seconds between two samples: 0 for libraries and files, more for tools; None: nothing to sample."""
        ...

    async def find(self) -> Findings:
        """Everything, from the first source that can speak, and what became of the others. Bounded in time."""
        ...

    async def sample(self) -> Mapping[str, Live] | None:
        """Live figures by uuid of what the last ``find`` found; None if they could not be had."""
        ...
