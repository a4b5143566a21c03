"""What both proxies do with every request before it is anybody's: ops endpoints, ids, the model's name, errors."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType

import msgspec

from flexinfer.adapters.web.proxy.client import JSON, Client
from flexinfer.adapters.web.proxy.request import Header, Request
from flexinfer.core.routing import target
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.target import Target
from flexinfer.ports import Clock
from flexinfer.telemetry import metrics

Report = Callable[[], tuple[bool, dict[str, str]]]
Page = Callable[[Request], tuple[bytes, bytes]]  # body and content type

_ID = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")


@dataclass(slots=True)
class Job:
    """One request on its way. ``key`` labels it once it is known what it is for; ``status`` 0: not answered."""

    request: Request
    client: Client
    id: bytes
    received: float  # Unix seconds
    target: Target = field(default_factory=lambda: Target(""))
    content_type: str = ""
    model_header: str = ""
    background: bool = False
    boundary: bytes | None = None
    as_json: bool = False
    in_body: bool = False  # the model's name was found in the body
    key: str = ""
    status: int = 0
    first_byte: float = 0.0  # Unix seconds of the answer's head; 0: none came
    endpoint: str = ""
    reason: str = ""
    bytes_out: int = 0
    tokens: int = 0  # completion tokens

    def read_headers(self) -> None:
        """Take what routing needs."""
        noted = self.request.noted
        self.content_type = noted.get(b"content-type", b"").decode("latin-1")
        self.model_header = noted.get(b"x-model-id", b"").decode("latin-1")
        self.background = noted.get(b"x-flexinfer-background") == b"1"

    def model_asked(self, body: bytes) -> str:
        """The name: X-Model-ID, path, JSON body, form. Raises Refusal 400."""
        self.boundary = target.boundary_of(self.content_type)
        self.as_json = bool(body) and self.boundary is None and target.is_json(self.content_type)
        if self.model_header:
            return target.checked_name(self.model_header, "X-Model-ID header")
        name = self.target.model
        if not name:
            self.in_body = True
            if self.as_json:
                name = target.json_model(body)
            elif self.boundary is not None:
                name = target.multipart_model(body, self.boundary)
        if not name:
            raise Refusal(
                400, "model_missing",
                "name the model: X-Model-ID header, /model/<name>/v1/ path, or 'model' in the body", param="model",
            )  # fmt: skip
        return name

    @property
    def models_path(self) -> str | None:
        """What follows ``/v1/models`` (a name or nothing) if the request is for the list, else None."""
        path = self.target.path
        if path != target.MODELS and not path.startswith(target.MODELS + "/"):
            return None
        if self.request.method not in {"GET", "HEAD"}:
            raise Refusal(405, "method_not_allowed", "models are listed with GET")
        return target.plain(path.removeprefix(target.MODELS).removeprefix("/")) or self.target.model

    def respond_json(self, body: bytes) -> None:
        """Answer 200 with a document of our own."""
        self.status = 200
        content = self.request.method != "HEAD"
        self.client.respond(200, body, [JSON, (b"x-request-id", self.id)], content=content)


class Front:
    """The handler of a listener. ``answer`` may raise Refusal; ``done`` sees every job at its end."""

    def __init__(
        self,
        clock: Clock,
        report: Report,
        answer: Callable[[Job], Awaitable[None]],
        done: Callable[[Job, Refusal | None], None],
        expose: Callable[[], Awaitable[bytes]],
        pages: Mapping[str, Page] = MappingProxyType({}),
    ) -> None:
        """``pages`` are further documents of our own by path."""
        self._pages = pages
        self._clock = clock
        self._report = report
        self._answer = answer
        self._done = done
        self._expose = expose

    async def handle(self, request: Request, client: Client) -> None:
        """Answer one request, whatever it is."""
        if request.path in {"/healthz", "/readyz", "/metrics"}:
            await self._answer_ops(request, client)
            return
        if request.path in self._pages:
            body, kind = self._pages[request.path](request)
            client.respond(200, body, [(b"content-type", kind)], content=request.method != "HEAD")
            return
        job = Job(request, client, request_id(request.noted.get(b"x-request-id", b"")), self._clock.now())
        refusal: Refusal | None = None
        try:
            job.target = target.read_target(request.path)
            job.read_headers()
            await self._answer(job)
        except Refusal as why:
            refusal = why
            job.status = why.status
            client.refuse(why, [(b"x-request-id", job.id)])
        finally:
            self._done(job, refusal)

    async def _answer_ops(self, request: Request, client: Client) -> None:
        content = request.method != "HEAD"
        if request.path == "/healthz":
            client.respond(200, b"ok\n", [_TEXT], content=content)
        elif request.path == "/readyz":
            ready, lines = self._report()
            body = msgspec.json.encode({"ready": ready, "checks": lines})
            client.respond(200 if ready else 503, body, [JSON], content=content)
        else:
            text = await self._expose()
            client.respond(200, text, [(b"content-type", metrics.CONTENT_TYPE.encode())], content=content)


_ids = count()
_START = secrets.token_hex(8).encode()


def request_id(given: bytes) -> bytes:
    """The client's id if it is a harmless token, else a new one."""
    if 0 < len(given) <= 128 and _ID.issuperset(given):
        return given
    return b"%s-%x" % (_START, next(_ids))
