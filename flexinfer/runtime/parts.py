"""Tapes in parts: when one ends and the next begins, packing, pruning, and the parts of one run read as one tape.

Parts of a run share instance and start. Each but the first begins with what stands at its moment (the state on the bus
and the objects watched), in lines marked ``again``: read after its predecessor they are passed over, read alone they
are where it starts from.
"""

import gzip
import logging
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from flexinfer.config.common import RecordSettings
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import EventData
from flexinfer.contracts.kubernetes import KubeDelta, Object
from flexinfer.contracts.topics import TOPIC_OF, order_key
from flexinfer.core.fleet.view import OrderBook
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.journal import BadLine, Fact, Header, Journal, Tape, header_of, read_tape

log = logging.getLogger(__name__)

_NAME = re.compile(r"(?P<run>.+-(?P<started>\d+))(?:\.(?P<part>\d+))?\.jsonl(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class Limits:
    """When a part ends (bytes, seconds; 0: never) and how many finished ones stay (0: all)."""

    size: int = 0
    age: float = 0.0
    keep: int = 0


@dataclass(slots=True)
class Standing:
    """What stands after the facts so far: the newest event of each key, the objects of each kind."""

    types: set[type[EventData]] = field(default_factory=set)
    epoch: int = 0
    _state: dict[str, Event] = field(default_factory=dict)
    _order: OrderBook = field(default_factory=OrderBook)
    _objects: dict[str, dict[tuple[str, str], Object]] = field(default_factory=dict)

    def take(self, fact: Fact) -> None:
        """One fact in its turn; those that leave nothing behind are passed over."""
        match fact:
            case Snapshot():
                self._replace(fact)
            case Event():
                self._fold(fact)
            case Relisted(plural=plural, objects=objects):
                self._objects.pop(plural, None)  # so that kinds are in the order of their lists
                self._objects[plural] = {_key(found): found for found in objects}
            case KubeDelta(plural=plural, action=action, object=found):
                held = self._objects.setdefault(plural, {})
                if action == "DELETED":
                    held.pop(_key(found), None)
                else:
                    held[_key(found)] = found
            case _:
                return

    def _replace(self, snapshot: Snapshot) -> None:
        self.types.update(snapshot.types)
        self.epoch = snapshot.epoch
        present = {order_key(event.data) for event in snapshot.events}
        for key, held in list(self._state.items()):
            if type(held.data) in snapshot.types and key not in present:
                del self._state[key]
        for event in snapshot.events:
            self._fold(event)

    def _fold(self, event: Event) -> None:
        topic = TOPIC_OF[type(event.data)]
        key = order_key(event.data)
        if topic.bucket is None or not self._order.accept(key, event):
            return
        if topic.retracts(event.data):
            self._state.pop(key, None)
        else:
            self._state[key] = event

    @property
    def events(self) -> tuple[Event, ...]:
        """The newest of each key."""
        return tuple(self._state.values())

    def facts(self) -> list[Fact]:
        """The fewest facts that give this state. No snapshot is among them if none was seen."""
        lists: list[Fact] = [Relisted(plural, tuple(held.values())) for plural, held in self._objects.items()]
        if not self.types:
            return lists
        types = tuple(sorted(self.types, key=lambda data: TOPIC_OF[data].name))
        return [*lists, Snapshot(types, self.events, self.epoch)]


def _key(found: Object) -> tuple[str, str]:
    meta = found.get("metadata") or {}
    return (str(meta.get("namespace", "")), str(meta.get("name", "")))


class PartedJournal(Journal):
    """A journal that goes on in a next part when one is full. What fails costs the next part or its packing, said in
    the log, never the process."""

    def __init__(self, folder: Path, header: Header, limits: Limits, *, compress: bool) -> None:
        """Opens the first part. Raises OSError."""
        self._folder = folder
        self._header = header
        self._limits = limits
        self._compress = compress
        self._standing = Standing()
        self._began = header.started
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="tape")
        super().__init__(*self.begin(folder, header))

    def write(self, at: float, fact: Fact, *, again: bool = False) -> None:
        """Append one fact, into a new part if the present one is full; never raises."""
        if self._full(at):
            self._turn(at)
        super().write(at, fact, again=again)
        self._standing.take(fact)

    def _full(self, at: float) -> bool:
        limits = self._limits
        return bool((limits.size and self.size >= limits.size) or (limits.age and at - self._began >= limits.age))

    def _turn(self, at: float) -> None:
        self._began, self.size = at, 0  # whatever comes of it: tried again only when so much more is written
        header = structs.replace(self._header, part=self._header.number + 1)
        try:
            file, path = self.begin(self._folder, header)
        except OSError as err:
            log.warning("journal %s goes on, its next part cannot be opened: %s", self.path, err)
            return
        super().close()
        finished = self.path
        self._header, self._file, self.path = header, file, path
        self._worker.submit(self._finish, finished, path)
        for fact in self._standing.facts():
            super().write(at, fact, again=True)
        self.size = 0  # the state alone never fills a part

    def _finish(self, path: Path, live: Path) -> None:
        try:
            if self._compress:
                pack(path)
            prune(self._folder, self._header, self._limits.keep, live)
        except OSError as err:
            log.warning("finished tape %s: %s", path, err)

    def close(self) -> None:
        """End the last part; waits until the finished ones are packed."""
        super().close()
        self._worker.shutdown()


def journal_for(settings: RecordSettings, component: str, instance: str, now: float) -> Journal | None:
    """The journal that ``--record`` and its limits ask for, or None. Raises OSError."""
    if settings.record is None:
        return None
    header = header_of(component, instance, now, settings)
    limits = Limits(settings.record_max_size << 20, settings.record_max_age, settings.record_keep)
    return PartedJournal(settings.record, header, limits, compress=settings.record_compress)


def journal_with(
    stack: AsyncExitStack, settings: RecordSettings, component: str, instance: str, now: float
) -> Journal | None:
    """``journal_for``, closed with ``stack``. Raises OSError."""
    journal = journal_for(settings, component, instance, now)
    if journal is not None:
        stack.callback(journal.close)
    return journal


def pack(path: Path) -> Path:
    """Compress a finished part and remove the plain one; the path of the new one. Raises OSError."""
    packed = path.with_name(path.name + ".gz")
    partial = path.with_name(path.name + ".gz.part")
    with path.open("rb") as plain, gzip.open(partial, "wb", compresslevel=6) as out:
        shutil.copyfileobj(plain, out, 1 << 20)
    partial.replace(packed)
    path.unlink()
    return packed


def prune(folder: Path, header: Header, keep: int, live: Path | None = None) -> list[Path]:
    """Remove the oldest parts of this instance beyond ``keep`` (0: none), of those before ``live``; those removed.
    Raises OSError."""
    prefix = f"{header.component}-{header.instance}"
    own = [path for path in folder.iterdir() if _run(path).rpartition("-")[0] == prefix]
    parts = sorted((path for path in own if live is None or order(path) < order(live)), key=order)
    gone = parts[: max(len(parts) - keep, 0)] if keep else []
    for path in gone:
        path.unlink()
    return gone


def _run(path: Path) -> str:
    found = _NAME.fullmatch(path.name)
    return found["run"] if found else ""


def order(path: Path) -> tuple[int, int, str]:
    """Sorts tapes by when they began, and the parts of one by their number."""
    found = _NAME.fullmatch(path.name)
    return (int(found["started"]), int(found["part"] or 1), path.name) if found else (0, 0, path.name)


def runs(paths: Sequence[Path]) -> list[list[Path]]:
    """Tapes with the parts of one run together, in their order; foreign names are runs of their own."""
    found: dict[str, list[Path]] = {}
    for path in sorted(paths, key=lambda path: (str(path.parent), _run(path) or path.name, order(path))):
        found.setdefault(f"{path.parent}/{_run(path) or path.name}", []).append(path)
    return list(found.values())


def following(path: Path) -> list[Path]:
    """The tape itself and the parts after it that lie beside it."""
    run = _run(path)
    if not run:
        return [path]
    mine = [found for found in path.parent.iterdir() if _run(found) == run and order(found)[1] > order(path)[1]]
    return [path, *sorted(mine, key=order)]


def read_parts(paths: Sequence[Path]) -> Tape:
    """The parts of one run as one tape; a part that is missing is among the lines that could not be read.

    Raises BadLine, OSError as read_tape does for the first one.
    """
    first = read_tape(paths[0])
    facts, bad, part = list(first.facts), [*first.bad], first.header.number
    for path in paths[1:]:
        try:
            found = read_tape(path)
        except BadLine as err:
            bad.append(BadLine(err.number, f"of {path.name}: {err.reason}"))
            continue
        chained = found.header.number == part + 1
        if not chained:
            bad.append(BadLine(1, f"of {path.name}: the part before it is missing, facts are lost"))
        facts.extend(found.facts[found.again if chained else 0 :])
        bad.extend(BadLine(line.number, f"of {path.name}: {line.reason}") for line in found.bad)
        part = found.header.number
    return Tape(first.header, tuple(facts), tuple(bad), first.again)
