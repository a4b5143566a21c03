"""Large requests are read and answered by vector operations; what they say is what the plain way says."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flexinfer.adapters.web import extender_answers, extender_wire
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import NodeHardware
from flexinfer.core.fleet.fold import fold
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement import roster
from tests.contract.extender.conftest import NOW, Asked, gpu_node

NAMES = [f"gpu-{number}" for number in range(12)] + ["cpu", "a-node-with-a-longer-name.example.internal", "ghost"]


def fleet() -> FleetView:
    view = FleetView()
    for number in range(12):
        gpu_node(view, f"gpu-{number}", util=number * 8.0, free=24564 if number % 3 else 4000)
    for name in ("cpu", "a-node-with-a-longer-name.example.internal"):
        fold(view, EventMint.start("agent", name, "boot", lambda: NOW).mint(NodeHardware(node=name)), NOW)
    return view


def pod(number: int, megabytes: int) -> dict:
    return {
        "metadata": {
            "name": f"p-{number}", "namespace": "default", "uid": f"uid-{number}",
            "annotations": {"flexinfer.ai/gpu.vram-estimate-mb": str(megabytes)},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }  # fmt: skip


def thresholds(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(roster, "SHORT", size)
    monkeypatch.setattr(extender_wire, "LARGE", size)
    monkeypatch.setattr(extender_answers, "FEW", max(size, 1))
    monkeypatch.setattr(extender_answers, "WASTE", 1e9)


async def said(asked: Asked, requests: list[tuple[str, bytes]]) -> list:
    return [(await asked.post(path, body)).json for path, body in requests]


requests = st.lists(
    st.tuples(
        st.sampled_from(["/filter", "/prioritize"]),
        st.lists(st.sampled_from(NAMES), max_size=20),
        st.sampled_from([1000, 9000, 90_000]),
        st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests)
async def test_the_same_requests_get_the_same_answers_either_way(monkeypatch, asking):
    bodies = []
    for number, (path, names, megabytes, whole) in enumerate(asking):
        items = [{"metadata": {"name": name}, "status": {"text": f'"{name}\\'}} for name in dict.fromkeys(names)]
        nodes = {"metadata": {}, "items": items} if whole else None
        body = {"Pod": pod(number, megabytes), "Nodes": nodes, "NodeNames": None if whole else names}
        bodies.append((path, msgspec.json.encode(body)))

    thresholds(monkeypatch, 0)
    fast = await said(Asked(fleet()), bodies)
    thresholds(monkeypatch, 1 << 40)
    plain = await said(Asked(fleet()), bodies)

    assert fast == plain


async def test_the_same_nodes_asked_about_again_get_the_answer_of_the_moment(monkeypatch):
    async def story() -> list:
        view = fleet()
        asked, found = Asked(view), []
        for number in range(6):
            body = {"Pod": pod(number, 1000), "Nodes": None, "NodeNames": NAMES[:12]}
            found += await said(asked, [(path, msgspec.json.encode(body)) for path in ("/filter", "/prioritize")])
            gpu_node(view, f"gpu-{number}", util=100.0 - number, free=24564 - 3000 * number, boot=str(number))
        return found

    thresholds(monkeypatch, 0)
    fast = await story()
    thresholds(monkeypatch, 1 << 40)

    assert fast == await story()
    assert len({str(answer) for answer in fast[1::2]}) > 1


async def test_a_node_given_twice_comes_back_once(monkeypatch):
    items = [{"metadata": {"name": name}} for name in ("gpu-1", "gpu-2", "gpu-1")]
    body = msgspec.json.encode({"Pod": pod(1, 1), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None})
    thresholds(monkeypatch, 0)

    answer = await Asked(fleet()).post("/filter", body)

    assert answer.json["Nodes"]["items"] == items[:2]


async def test_nodes_nobody_knows_yet_pass_or_fail_by_name(monkeypatch):
    items = [{"metadata": {"name": name}} for name in ("new-1", "gpu-2", "new-2")]
    body = msgspec.json.encode({"Pod": pod(1, 1), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None})
    thresholds(monkeypatch, 0)

    answer = await Asked(fleet()).post("/filter", body)

    assert answer.json["Nodes"]["items"] == items[1:2]
    assert list(answer.json["FailedAndUnresolvableNodes"]) == ["new-1", "new-2"]


async def test_large_requests_take_the_fast_way_and_small_ones_the_plain_one():
    view = FleetView()
    names = [f"node-{number:04d}" for number in range(1000)]
    for name in names:
        gpu_node(view, name)
    asked = Asked(view)
    asked.desk.warm(NOW)
    dialogue = extender_wire.Dialogue()

    large = dialogue.read(msgspec.json.encode({"Pod": pod(1, 1), "Nodes": None, "NodeNames": names}), asked.desk.roster)
    small = dialogue.read(
        msgspec.json.encode({"Pod": pod(1, 1), "Nodes": None, "NodeNames": names[:9]}), asked.desk.roster
    )

    assert large.asked.bounds is not None
    assert small.asked.bounds is None
    assert large.asked.names[:9] == small.asked.names


async def test_nodes_come_back_byte_for_byte_though_nobody_read_them(monkeypatch):
    thresholds(monkeypatch, 0)
    item = b'{"metadata":{"name":"gpu-1","annotations":{"a":"{\\"metadata\\":{\\"name\\":\\"x\\""}},"odd" : [1e400]}'
    body = b'{"Pod":%b,"Nodes":{"metadata":{"resourceVersion":"7"},"items":[%b]},"NodeNames":null}'

    answer = await Asked(fleet()).post("/filter", body % (msgspec.json.encode(pod(1, 1000)), item))

    assert b'{"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null,' % item in answer.body


@pytest.mark.parametrize("cut", [b'"Pod":', b'"items":[', b'{"metadata":{"name":"'])
async def test_a_large_request_that_is_broken_outside_its_nodes_is_refused(monkeypatch, cut):
    thresholds(monkeypatch, 0)
    items = [{"metadata": {"name": "gpu-1"}}, {"metadata": {"name": "gpu-2"}}]
    body = msgspec.json.encode({"Pod": pod(1, 1), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None})

    answer = await Asked(fleet()).post("/filter", body.replace(cut, b"", 1))

    assert answer.json["Error"].startswith("flexinfer: the request ")


async def test_a_name_with_an_escape_is_left_to_the_parser(monkeypatch):
    thresholds(monkeypatch, 0)
    body = b'{"Pod":%b,"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a\\"b"}}]},"NodeNames":null}'

    answer = await Asked(fleet()).post("/filter", body % msgspec.json.encode(pod(1, 1)))

    assert list(answer.json["FailedAndUnresolvableNodes"]) == ['a"b']
