"""Whatever comes in, the answer is one kube-scheduler reads: 200, and Error where the pod must be retried."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flexinfer.telemetry import metrics
from tests.contract.extender import go_rules
from tests.contract.extender.conftest import Asked

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": []}}


def requests_total(phase: str, result: str) -> float:
    return metrics.value_of("flexinfer_scheduler_requests_total", {"phase": phase, "result": result})


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"{", b'"text"', b"\xff\xfe", b"[" * 100_000,
        b'{"Pod": null, "NodeNames": ["a"]}',
        msgspec.json.encode({"Pod": POD}),
        msgspec.json.encode({"Pod": POD, "Nodes": None, "NodeNames": None}),
        msgspec.json.encode({"Pod": POD, "NodeNames": "a"}),
        msgspec.json.encode({"Pod": POD, "NodeNames": [1, 2]}),
        msgspec.json.encode({"Pod": POD, "Nodes": {"items": "many"}}),
        msgspec.json.encode({"Pod": {"metadata": {"annotations": ["no", "map"]}}, "NodeNames": ["a"]}),
    ],
)  # fmt: skip
async def test_what_cannot_be_understood_is_an_error_to_retry(extender, body):
    before = requests_total("filter", "bad")

    answer = await extender.post("/filter", body)

    assert answer.status == 200
    assert go_rules.filter_result(answer.body, set())[2].startswith("flexinfer: the request ")
    assert requests_total("filter", "bad") == before + 1
    assert (await extender.post("/prioritize", body)).body == b"[]"


@pytest.mark.parametrize("names", [[], ["gpu-a"], ["ghost"], ["gpu-a", "ghost", "gpu-a"], ["", 'ü"\\\n', "cpu-c"]])
async def test_only_names_received_come_back_each_once(extender, names):
    body = {"Pod": POD, "Nodes": None, "NodeNames": names}

    found = await extender.post("/filter", body)
    scores = await extender.post("/prioritize", body)

    go_rules.filter_result(found.body, set(names))
    assert go_rules.priorities(scores.body, set(names)).keys() == set(names)


async def test_a_null_list_of_items_is_an_empty_one(extender):
    answer = await extender.post("/filter", {"Pod": POD, "Nodes": {"metadata": {}, "items": None}, "NodeNames": None})

    assert answer.json["Nodes"] == {"metadata": {}, "items": []}


async def test_with_both_lists_names_are_answered(extender):
    body = {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "x"}}]}, "NodeNames": ["gpu-a"]}

    assert (await extender.post("/filter", body)).json["NodeNames"] == ["gpu-a"]


async def test_a_body_over_the_limit_is_read_to_its_end_and_refused(view):
    small = Asked(view, max_body=2048)
    before = requests_total("filter", "large")

    answer = await small.post("/filter", {"Pod": POD, "NodeNames": ["n" * 10] * 1000})

    assert answer.status == 200
    assert answer.json["Error"] == "flexinfer: request larger than 2048 bytes"
    assert requests_total("filter", "large") == before + 1
    assert (await small.post("/prioritize", b"x" * 10_000)).body == b"[]"
    assert (await small.post("/preempt", b"x" * 10_000)).json == {"NodeNameToMetaVictims": {}}


async def test_ten_megabytes_are_read(extender):
    noise = {"managedFields": "x" * 10_000_000}
    body = {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "gpu-a"} | noise}]}, "NodeNames": None}

    answer = await extender.post("/filter", body)

    assert go_rules.filter_result(answer.body, {"gpu-a"}, whole=True)[0] == {"gpu-a"}


async def test_a_cold_view_asks_to_be_retried_and_forbids_evictions(extender, capture):
    extender.cold = "no snapshot of the bus state yet"

    found = await extender.post("/filter", capture("filter-names.json"))

    assert found.status == 200
    assert found.json["Error"] == "flexinfer: no snapshot of the bus state yet"
    assert (await extender.post("/prioritize", capture("prioritize-names.json"))).body == b"[]"
    assert (await extender.post("/preempt", b"{}")).json == {"NodeNameToMetaVictims": {}}


@pytest.mark.parametrize("annotation", ["-1", "1e308", "NaN", "9" * 400, "\x00", "lots"])
async def test_absurd_annotations_are_ignored_with_a_note(extender, annotation):
    pod = POD | {"metadata": POD["metadata"] | {"annotations": {"flexinfer.ai/gpu.vram-estimate-mb": annotation}}}

    answer = await extender.post("/filter", {"Pod": pod, "NodeNames": ["gpu-a"]})
    explained = await extender.request("GET", "/explain?namespace=default&pod=p")

    assert go_rules.filter_result(answer.body, {"gpu-a"})[0] == {"gpu-a"}
    assert explained.json["demand"]["notes"] == ["flexinfer.ai/gpu.vram-estimate-mb is no number of MB and was ignored"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/filter", 404), ("POST", "/bind", 404), ("GET", "/explain?pod=nobody", 404), ("POST", "/", 404),
     ("GET", "/healthz", 200), ("GET", "/readyz", 200), ("GET", "/metrics", 200)],
)  # fmt: skip
async def test_other_paths(extender, method, path, status):
    assert (await extender.request(method, path)).status == status


@pytest.mark.parametrize("weights", ["weights.tps=fast", "weights.speed=1", "weights.tps", "weights.tps=-1"])
async def test_a_what_if_that_makes_no_sense_is_refused(extender, capture, weights):
    await extender.post("/prioritize", capture("prioritize-names.json"))

    answer = await extender.request("GET", f"/explain?namespace=default&pod=p-flex-names&what-if={weights}")

    assert answer.status == 400
    assert "error" in answer.json


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(["Pod", "pod", "Nodes", "nodes", "NodeNames", "nodenames", "nodeNames", "metadata", "spec"])
near_requests = st.dictionaries(
    keys | st.text(max_size=4),
    json_values
    | st.just(POD)
    | st.lists(st.sampled_from(["gpu-a", "gpu-b", "cpu-c", "ghost"]), max_size=5)
    | st.just({"items": [{"metadata": {"name": "gpu-a"}}, {"metadata": {}}, {}]}),
)
bodies = st.binary(max_size=200) | near_requests.map(msgspec.json.encode)


def strings(found) -> set[str]:
    """Every text and key in a decoded body."""
    if isinstance(found, dict):
        return set(found).union(*map(strings, found.values()))
    if isinstance(found, list):
        return set().union(*map(strings, found))
    return {found} if isinstance(found, str) else set()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies, st.sampled_from(["/filter", "/prioritize", "/score", "/preempt"]))
async def test_any_body_gets_an_answer_go_can_read(extender, body, path):
    answer = await extender.post(path, body)

    assert answer.status == 200
    try:
        names = strings(msgspec.json.decode(body)) | {""}
    except (msgspec.DecodeError, UnicodeDecodeError):
        names = set()
    if path == "/filter":
        found = answer.json
        assert found["Error"] or found["NodeNames"] is not None or found["Nodes"] is not None
        assert set(found["NodeNames"] or ()) <= names
    elif path == "/preempt":
        go_rules.preemption(answer.body, names)
    else:
        go_rules.priorities(answer.body, names)
