"""The intake journal: every fact a process folds, in order, as JSON Lines. Replaying it gives the same decisions.

The first line is a header; each further line is ``{"at": <Unix seconds>, "kind": ..., "body": ...}`` where ``at`` is
the clock reading the fold was given. Bus events keep their CloudEvents form, so a tape can be read with any tool.
"""

import gzip
import logging
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from flexinfer import __version__
from flexinfer.config.common import Settings
from flexinfer.contracts.envelope import Event, MalformedEvent, decode_event, encode_event
from flexinfer.contracts.kubernetes import SECRETS, KubeDelta, Object
from flexinfer.contracts.topics import TOPIC_OF, TOPICS
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.effect_lines import outcome_body, read_outcome
from flexinfer.runtime.interpreter import Outcome
from flexinfer.runtime.redaction import redact, secret
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

VERSION = 1
MAX_LINE = 64 << 20
FLUSH_SECONDS = 1.0  # a killed process loses no more than that
UNREADABLE_KEPT = 64  # characters of a request that is no JSON, in which secrets cannot be told apart

_WRITTEN = metrics.counter("flexinfer_journal_lines_total", "Lines written to the intake journal.", ("kind",))
_FAILED = metrics.counter("flexinfer_journal_failures_total", "Lines that could not be written to the journal.")


class Header(Struct, frozen=True, kw_only=True):
    """First line of a tape: who recorded it, with which settings, and which part of its run it is."""

    tape: Literal["flexinfer"]
    version: int
    component: str
    instance: str
    release: str
    started: float
    settings: dict[str, Any] = {}
    part: int | UnsetType = UNSET

    @property
    def number(self) -> int:
        """Which part of its run it is, from 1."""
        return self.part or 1

    @property
    def file(self) -> str:
        """``<component>-<instance>-<started ms>.jsonl``, later parts ``….0002.jsonl``."""
        number = f".{self.number:04}" if self.number > 1 else ""
        return f"{self.component}-{self.instance}-{int(self.started * 1000)}{number}.jsonl"


class Webhook(Struct, frozen=True, kw_only=True):
    """A request that asked for a decision, body as received."""

    path: str
    body: str


class Tick(Struct, frozen=True, kw_only=True):
    """Time passed for ``key`` (empty: for all), and a decision was taken. ``bus_up``: the bus could be reached then;
    ``boot``: bootid of the events that the process sent itself."""

    key: str = ""
    bus_up: bool | UnsetType = UNSET
    boot: str | UnsetType = UNSET


Fact = Event | Snapshot | KubeDelta | Relisted | Webhook | Tick | Outcome


class _Line(Struct, frozen=True):
    at: float
    kind: Literal["event", "snapshot", "kube", "relist", "webhook", "tick", "outcome"]
    body: msgspec.Raw


class _SnapshotBody(Struct, frozen=True):
    types: tuple[str, ...]
    events: tuple[msgspec.Raw, ...]
    epoch: int


class _KubeBody(Struct, frozen=True):
    plural: str
    action: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Object


class _RelistBody(Struct, frozen=True):
    plural: str
    objects: tuple[Object, ...]


class BadLine(ValueError):
    """A line of a tape that cannot be read; ``number`` counts from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number = number
        self.reason = reason


_AGAIN = b'{"again":true,'

_encode = msgspec.json.Encoder(order="deterministic").encode
_line = msgspec.json.Decoder(_Line)


def _body(fact: Fact) -> tuple[str, bytes]:
    match fact:
        case Event():
            return "event", encode_event(fact)
        case Snapshot(types=types, events=events, epoch=epoch):
            names = tuple(TOPIC_OF[data].name for data in types)
            raws = tuple(msgspec.Raw(encode_event(event)) for event in events)
            return "snapshot", _encode(_SnapshotBody(names, raws, epoch))
        case KubeDelta(plural=plural, action=action, object=body):
            return "kube", _encode(_KubeBody(plural, action, _clean(plural, body)))
        case Relisted(plural=plural, objects=objects):
            return "relist", _encode(_RelistBody(plural, tuple(_clean(plural, body) for body in objects)))
        case Webhook(path=path, body=text):
            return "webhook", _encode(Webhook(path=path, body=_clean_request(text)))
        case Tick():
            return "tick", _encode(fact)
        case Outcome():
            return "outcome", outcome_body(fact)


def _clean(plural: str, body: Object) -> Object:
    # Objects of lists come without their kind.
    return cast("Object", redact(secret(body) if plural == SECRETS.plural else body))


def _clean_request(text: str) -> str:
    try:
        body = msgspec.json.decode(text)
        clean = redact(body)
    except (msgspec.DecodeError, RecursionError):
        return text[:UNREADABLE_KEPT]
    return text if clean is body else _encode(clean).decode()


def encode_line(at: float, fact: Fact) -> bytes:
    """One line without its newline."""
    kind, body = _body(fact)
    return b'{"at":' + _encode(at) + b',"kind":"' + kind.encode() + b'","body":' + body + b"}"


def decode_line(raw: bytes, number: int = 0) -> tuple[float, Fact]:
    """The inverse of encode_line. Raises BadLine."""
    try:
        line = _line.decode(raw)
        match line.kind:
            case "event":
                return line.at, decode_event(bytes(line.body))
            case "snapshot":
                body = msgspec.json.decode(line.body, type=_SnapshotBody)
                types = tuple(TOPICS[name].data for name in body.types if name in TOPICS)
                return line.at, Snapshot(types, tuple(decode_event(bytes(raw)) for raw in body.events), body.epoch)
            case "kube":
                delta = msgspec.json.decode(line.body, type=_KubeBody)
                return line.at, KubeDelta(plural=delta.plural, action=delta.action, object=delta.object)
            case "relist":
                relist = msgspec.json.decode(line.body, type=_RelistBody)
                return line.at, Relisted(relist.plural, relist.objects)
            case "webhook":
                return line.at, msgspec.json.decode(line.body, type=Webhook)
            case "tick":
                return line.at, msgspec.json.decode(line.body, type=Tick)
            case "outcome":
                return line.at, read_outcome(line.body)
    except (ValueError, MalformedEvent, RecursionError) as err:
        raise BadLine(number, str(err)) from err


def decode_header(raw: bytes) -> Header:
    """The header of a tape. Raises BadLine for foreign files and tapes of a newer version."""
    try:
        header = msgspec.json.decode(raw, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise BadLine(1, f"this is no FlexInfer tape: {err}") from err
    if header.version > VERSION:
        raise BadLine(1, f"tape version {header.version} is newer than this release reads ({VERSION}); upgrade first")
    return header


@dataclass(slots=True)
class Tape:
    """A tape read from disk: the header, the facts that could be read, and the lines that could not. ``again``: how
    many of the first facts repeat what stood at the end of the part before."""

    header: Header
    facts: tuple[tuple[float, Fact], ...]
    bad: tuple[BadLine, ...]
    again: int = 0


def _readable(lines: Iterable[bytes], bad: list[BadLine], again: list[int]) -> Iterator[tuple[float, Fact]]:
    for number, raw in enumerate(lines, start=2):
        text = raw.strip()
        if not text:
            continue
        try:
            yield decode_line(text, number)
            again[0] += text.startswith(_AGAIN)
        except BadLine as err:
            bad.append(err)


def _lines(file: BinaryIO, bad: list[BadLine]) -> Iterator[bytes]:
    number = 1
    while True:
        number += 1
        try:
            raw = file.readline(MAX_LINE)
        except (EOFError, zlib.error, gzip.BadGzipFile) as err:
            bad.append(BadLine(number, f"the compressed file is damaged from here on: {err}"))
            return
        if not raw:
            return
        yield raw


def read_tape(path: Path) -> Tape:
    """Read a whole tape, plain or gzip; corrupt, truncated or unknown lines are listed with number and reason, the
    rest is read.

    Raises BadLine if the header itself is unreadable, foreign or newer; OSError if the file is.
    """
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        file = cast("BinaryIO", gzip.GzipFile(fileobj=plain)) if packed else plain
        try:
            first = file.readline(MAX_LINE)
        except (EOFError, zlib.error, gzip.BadGzipFile) as err:
            raise BadLine(1, f"this is no FlexInfer tape: {err}") from err
        header = decode_header(first)
        bad: list[BadLine] = []
        again = [0]
        facts = tuple(_readable(_lines(file, bad), bad, again))
        return Tape(header, facts, tuple(bad), again[0])


def header_of(component: str, instance: str, started: float, settings: Settings) -> Header:
    """A header with the settings that decisions depend on; files, and what a tape must not tell, are left out."""
    shown = settings.model_dump(mode="json")
    for name in settings.__class__.model_fields:
        if isinstance(getattr(settings, name), Path):
            del shown[name]
    return Header(
        tape="flexinfer", version=VERSION, component=component, instance=instance, release=__version__,
        started=started, settings=redact(shown),
    )  # fmt: skip


class Journal:
    """Appends to one tape. A full disk costs lines, counted, never the process."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._handed = 0.0
        self.path = path
        self.size = 0  # bytes of lines written

    @classmethod
    def open(cls, folder: Path, header: Header) -> "Journal":
        """A new tape in ``folder``, named by its header. Raises OSError."""
        return cls(*cls.begin(folder, header))

    @staticmethod
    def begin(folder: Path, header: Header) -> tuple[BinaryIO, Path]:
        """The file of a tape with its header written. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / header.file
        file = path.open("ab", buffering=1 << 16)
        file.write(_encode(header) + b"\n")
        file.flush()
        return file, path

    def write(self, at: float, fact: Fact, *, again: bool = False) -> None:
        """Append one fact; never raises. ``again``: it repeats what a part before told."""
        try:
            line = encode_line(at, fact)
            text = (_AGAIN + line[1:] if again else line) + b"\n"
            self._file.write(text)
            self.size += len(text)
            if abs(at - self._handed) >= FLUSH_SECONDS:
                self._handed = at
                self._file.flush()
        except (OSError, ValueError, TypeError) as err:
            _FAILED.inc()
            log.warning("journal %s lost a line: %s", self.path, err)
            return
        _WRITTEN.labels(kind=type(fact).__name__.lower()).inc()

    def flush(self) -> None:
        """Hand buffered lines to the operating system."""
        try:
            self._file.flush()
        except OSError as err:
            _FAILED.inc()
            log.warning("journal %s: %s", self.path, err)

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()
