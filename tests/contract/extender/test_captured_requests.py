"""Requests captured from kube-scheduler 1.36.2, byte for byte, and the exact answers to them."""

import msgspec
import pytest

NO_VENDOR = "flexinfer: no accelerator of the demanded vendor"


async def test_filter_by_names(extender, capture):
    answer = await extender.post("/filter", capture("filter-names.json"))

    assert answer.status == 200
    assert answer.json == {
        "Nodes": None,
        "NodeNames": ["gpu-a", "gpu-b"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"cpu-c": NO_VENDOR},
        "Error": "",
    }


async def test_filter_by_whole_nodes_gives_back_the_nodes_as_received(extender, capture):
    body = capture("filter-nodes.json")
    sent = {item["metadata"]["name"]: item for item in msgspec.json.decode(body)["Nodes"]["items"]}

    answer = await extender.post("/filter", body)

    assert answer.json == {
        "Nodes": {"metadata": {}, "items": [sent["gpu-a"], sent["gpu-b"]]},
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"cpu-c": NO_VENDOR},
        "Error": "",
    }


@pytest.mark.parametrize("path", ["/prioritize", "/score"])
@pytest.mark.parametrize("shape", ["names", "nodes"])
async def test_prioritize(extender, capture, path, shape):
    answer = await extender.post(path, capture(f"prioritize-{shape}.json"))

    assert answer.status == 200
    assert answer.body == b'[{"Host":"cpu-c","Score":0},{"Host":"gpu-a","Score":10},{"Host":"gpu-b","Score":1}]'


async def test_the_dialect_before_1_17_is_read_and_answered_in_pascal_case(extender, capture):
    modern = msgspec.json.decode(capture("filter-names.json"))
    old = {key.lower(): value for key, value in modern.items()}

    assert (await extender.post("/filter", old)).json == (await extender.post("/filter", modern)).json
