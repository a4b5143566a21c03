"""Whatever is read from outside is taken, or refused with a reason: no other exception leaves the edge."""

import base64
import contextlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer import cli
from flexinfer.adapters.web.admission import AdmissionApp
from flexinfer.adapters.web.dashboard.app import dashboard_app
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.dashboard.timeline import Timeline
from flexinfer.adapters.web.global_proxy import status
from flexinfer.config.common import Settings, env_name, parse
from flexinfer.config.dashboard import DashboardSettings
from flexinfer.config.manager import ManagerSettings
from flexinfer.config.proxy import GlobalProxySettings, ProxySettings
from flexinfer.config.scheduler import SchedulerSettings
from flexinfer.contracts.crds import Model, ModelDeployment
from flexinfer.contracts.crds.schema import structural
from flexinfer.contracts.envelope import MalformedEvent, decode_event
from flexinfer.contracts.kubernetes import NODES, KubeDelta
from flexinfer.contracts.termination import decode_outcome
from flexinfer.core.fleet.fold import STATE_TYPES, UnreadableObject, fold, tick
from flexinfer.core.fleet.projections import assume_node, assume_results
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.lifecycle.fetching import failures
from flexinfer.core.routing import federation
from flexinfer.core.routing.clusters import Cluster, Clusters
from flexinfer.core.routing.directory import Directory
from flexinfer.runtime.journal import BadLine, read_tape
from flexinfer.runtime.tapes import bus_facts
from tests.abuse.budget import examples
from tests.abuse.shapes import ANY, TEXTS, damaged, near

ROOT = Path(__file__).parents[1]
SAMPLES = [path.read_bytes() for path in sorted((ROOT / "contract/schemas/samples").glob("*.json"))]
TAPES = [path.read_bytes()[:6000] for path in sorted((ROOT / "tapes/by-hand").rglob("*.jsonl"))[:6]]
NOW = 1_800_000_000.0


# --- the bus ---------------------------------------------------------------------------------------------------


@examples(120)
@given(st.lists(damaged(SAMPLES) | st.sampled_from(SAMPLES), min_size=1, max_size=4))
def test_what_the_bus_carries_is_folded_by_every_view_or_dropped(messages: list[bytes]) -> None:
    fleet, directory, board = FleetView(), Directory(), Board()
    clusters = Clusters("headroom", {})
    for raw in messages:
        try:
            event = decode_event(raw)
        except MalformedEvent:
            continue
        if isinstance(event.data, STATE_TYPES):
            fold(fleet, event, NOW)
        directory.fold(event, NOW)
        board.take(event, NOW)
        with contextlib.suppress(ValueError):
            federation.take_headroom(clusters, event, NOW)
    tick(fleet, NOW + 1e4)
    directory.expire(NOW + 1e4)
    federation.tick(clusters, NOW + 1e4)
    msgspec.json.decode(board.snapshot(NOW, []))
    status.page("headroom", status.report(clusters, NOW))


# --- other servers -----------------------------------------------------------------------------------------------


ABOUT = st.fixed_dictionaries({}, optional=dict.fromkeys(["namespace", "model", "aliases", "state"], ANY))
ROWS = st.fixed_dictionaries({"id": st.just("m") | ANY}, optional={"flexinfer": ABOUT | ANY, "created": ANY})


@examples(80)
@given(st.lists(ROWS, max_size=4))
def test_a_model_list_of_any_shape_is_taken(rows: list[dict[str, Any]]) -> None:
    cluster = Cluster("a", ("http://a",))
    clusters = Clusters("round-robin", {"a": cluster})

    federation.take_listing(cluster, rows)

    for row in status.merged(clusters).values():
        status.answers_to(row, "m")
        msgspec.json.encode(row)


# --- the API server ----------------------------------------------------------------------------------------------


def _review(obj: Any, old: Any) -> bytes:
    return msgspec.json.encode({"request": {"uid": "u", "operation": "UPDATE", "object": obj, "oldObject": old}})


async def _asked(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http", "method": "GET" if not body else "POST", "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "headers": [], "root_path": "", "scheme": "http", "http_version": "1.1",
        "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])


SPECS = {"Model": structural(Model), "ModelDeployment": structural(ModelDeployment)}
TEXT_MAPS = st.dictionaries(
    st.sampled_from(["flexinfer.ai/aliases", "flexinfer.ai/balancing", "a"]), st.sampled_from(TEXTS), max_size=3
)
META = st.fixed_dictionaries(
    {"name": st.sampled_from(TEXTS)},
    optional={"annotations": TEXT_MAPS, "labels": TEXT_MAPS, "namespace": st.just("x")},
)


def objects(meta: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Models of any spec, with metadata as the API server leaves it, or any."""
    return st.sampled_from(sorted(SPECS)).flatmap(
        lambda kind: st.fixed_dictionaries(
            {"kind": st.just(kind), "apiVersion": st.just("ai.flexinfer/v1alpha1"), "metadata": meta,
             "spec": near(SPECS[kind]["properties"]["spec"])},
            optional={"status": ANY},
        )
    )  # fmt: skip


@examples(100)
@given(objects(META), st.none() | objects(META), st.sampled_from(["/validate", "/mutate"]))
async def test_the_webhook_judges_objects_of_any_shape(obj: Any, old: Any, path: str) -> None:
    code, body = await _asked(AdmissionApp(lambda: (True, {})), path, _review(obj, old))

    assert code == 200
    answer = msgspec.json.decode(body)["response"]
    assert answer["uid"] == "u"
    if "patch" in answer:
        msgspec.json.decode(base64.b64decode(answer["patch"]))


@examples(80)
@given(st.binary(max_size=60) | ANY.map(msgspec.json.encode) | damaged([_review({"kind": "Model"}, None)])
       | objects(ANY).map(lambda obj: _review(obj, None)))  # fmt: skip
async def test_what_is_no_review_is_said_to_be_none(body: bytes) -> None:
    code, _ = await _asked(AdmissionApp(lambda: (True, {})), "/validate", body or b" ")

    assert code in {200, 400}


NUMBERS = [
    "0",
    "-1",
    "1e999",
    "nan",
    "8Gi",
    "9" * 40,
    "[" * 5000,
    '[{"a":' * 3000,
    '[{"memoryMib":"x"}]',
    "[{}]",
    "{}",
    "null",
]
NODE_TEXTS = st.sampled_from([*TEXTS, *NUMBERS])
KEYS = st.sampled_from(
    ["flexinfer.ai/gpu-devices", "flexinfer.ai/gpu.vendor", "flexinfer.ai/gpu.count", "flexinfer.ai/gpu.vram",
     "flexinfer.ai/gpu.arch", "flexinfer.ai/gpu.int4", "flexinfer.ai/cost", "flexinfer.ai/gpu.util",
     "flexinfer.ai/gpu-free-memory", "flexinfer.ai/kv-cache-usage"]
)  # fmt: skip
NAMED = st.dictionaries(KEYS, NODE_TEXTS, max_size=5)
NODES_OF_ANY_SHAPE = st.fixed_dictionaries({
    "metadata": st.fixed_dictionaries({"name": st.just("n1")}, optional={"labels": NAMED, "annotations": NAMED}),
    "status": st.fixed_dictionaries({}, optional={
        "allocatable": st.dictionaries(st.sampled_from(["nvidia.com/gpu", "memory", "cpu"]), NODE_TEXTS),
        "nodeInfo": st.just({}),
    }),
})  # fmt: skip


@examples(80)
@given(NODES_OF_ANY_SHAPE, NODE_TEXTS)
def test_what_nodes_and_records_say_is_taken_or_left_out(node: Any, text: str) -> None:
    """Whoever may patch a Node writes these; degraded, the extender reads them."""
    view = FleetView()

    assume_node(view, node, NOW)
    assume_results(view, [{"data": {"a": text}}])
    fold(view, KubeDelta(plural=NODES.plural, action="ADDED", object=node), NOW)


@examples(100)
@given(damaged([b'{"type":"ai.flexinfer.bench.completed.v1","data":{}}', *SAMPLES]) | NODE_TEXTS.map(str.encode))
def test_a_termination_message_is_an_outcome_or_malformed(raw: bytes) -> None:
    """An engine's image may write it."""
    with contextlib.suppress(MalformedEvent):
        decode_outcome(raw)
    failures.decode(raw.decode("utf-8", "replace"))


# --- people ------------------------------------------------------------------------------------------------------


QUERIES = st.lists(
    st.sampled_from(["at=", "at", "token=", "&", "=", "nan", "inf", "-1e999", "1800000000", "%00", "%ff", "at=1&at=2",
                     "[]", "%", "+", "\u202e", ";"]) | st.text(st.characters(codec="ascii"), max_size=4),
    max_size=5,
).map("".join)  # fmt: skip
PATHS = st.sampled_from(["/", "/api/state", "/api/tape", "/../../etc/passwd", "/%2e%2e/app.js", "/app.js\x00", "//x"])


@examples(80)
@given(PATHS, QUERIES, st.sampled_from(["live", "tape", "an empty tape"]))
async def test_the_dashboard_answers_any_query(path: str, query: str, source: str) -> None:
    code, body = await _asked(_dashboard(source), f"{path}?{query}", b"")

    assert code in {200, 404, 422}
    assert b"root:" not in body


@cache
def _dashboard(what: str) -> Any:
    moments = [(NOW, decode_event(raw)) for raw in SAMPLES] if what == "tape" else []
    source: Any = _Still() if what == "live" else Timeline("t", moments)
    return dashboard_app(source, lambda: (True, {}))


class _Still:
    def snapshot(self) -> bytes:
        return b"{}"


# --- files -------------------------------------------------------------------------------------------------------


@examples(120)
@given(damaged(TAPES) | st.binary(max_size=100))
def test_a_tape_is_read_line_by_line_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "tape.jsonl"
    file.write_bytes(raw)
    try:
        tape = read_tape(file)
    except BadLine:
        return
    view = FleetView()
    for now, fact in bus_facts(tape):
        if not hasattr(fact, "events") and isinstance(fact.data, STATE_TYPES):
            with contextlib.suppress(UnreadableObject):
                fold(view, fact, now)


# --- settings ----------------------------------------------------------------------------------------------------

CLASSES: list[type[Settings]] = [
    ProxySettings, GlobalProxySettings, SchedulerSettings, DashboardSettings, ManagerSettings,
]  # fmt: skip
VALUES = st.sampled_from(
    [*TEXTS, "a=http://x", "a=http://x,a=http://y", "a=1", "a=" + "9" * 400, "a=http://[::1", "a=http://x:99999",
     "a=http://u:p@x", "1m30s", "9..9", "٣", "nan", "inf", "0x10", "1_0", "true", "65536", "text", "json", "=", ","]
).filter(lambda text: "\x00" not in text)  # fmt: skip


@examples(120)
@given(data=st.data(), cls=st.sampled_from(CLASSES))
def test_a_setting_is_taken_or_refused_in_one_sentence(
    data: st.DataObject, cls: type[Settings], capfd: pytest.CaptureFixture[str]
) -> None:
    fields = cls.model_fields
    names = data.draw(st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True))
    given_flags = [f"--{name.replace('_', '-')}={data.draw(VALUES)}" for name in names if data.draw(st.booleans())]
    environ = {env_name(name, fields[name]): data.draw(VALUES) for name in names}
    code: object = None
    try:
        found = parse(cls, "program", given_flags, environ)
    except SystemExit as end:
        code = end.code
    said = capfd.readouterr().err
    assert code in {None, 2}
    assert said.startswith(("program: ", "usage: ")) == (code == 2)
    if code is None and isinstance(found, GlobalProxySettings):
        found.static_clusters()


@pytest.mark.parametrize("program", sorted(cli._PROGRAMS))
def test_a_wrong_flag_ends_with_2(program: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.run_program(program, ["--no-such-flag", os.devnull])

    assert end.value.code == 2
    assert "no-such-flag" in capfd.readouterr().err
