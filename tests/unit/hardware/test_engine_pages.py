"""Figures of engines from their own pages."""

from pathlib import Path

import pytest

from flexinfer.core.hardware.engine_metrics import Page, Slots, parse_budget, parse_page, parse_slots, rate_of
from flexinfer.core.hardware.engine_pods import engine_of

PAGES = Path(__file__).resolve().parents[2] / "captures" / "engines"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("vllm-0.6", Page("vllm", 0.12345678901234567, 7, 2, 148331.0)),
        ("vllm-0.11", Page("vllm", 0.981, 44, 72, 1500000.0)),
        ("sglang-0.5", Page("sglang", 0.42, 8, 0, None, 200.0)),
        ("tgi-3", Page("tgi", None, 8, 5, 64000.0, None, 40960.0)),
        ("triton-trtllm", Page("tensorrt-llm", 0.25, 4)),
        ("llamacpp-metrics", Page("llamacpp", None, 1, 0, 0.0)),
    ],
)
def test_pages(name: str, page: Page) -> None:
    assert parse_page((PAGES / f"{name}.txt").read_text()) == page


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        ("llamacpp-slots-busy", Slots(35 / 2048, 1, 24)),
        ("llamacpp-slots-idle", Slots(0.0, 0, 0)),
        ("llamacpp-slots-after", Slots(0.0, 0, 0)),
        ("llamacpp-slots-2024", Slots(1024 / 8192, 1, 20)),
    ],
)
def test_slots(name: str, slots: Slots) -> None:
    assert parse_slots((PAGES / f"{name}.json").read_text()) == slots


def test_the_token_budget_of_tgi() -> None:
    assert parse_budget((PAGES / "tgi-3-info.json").read_text()) == 163840


@pytest.mark.parametrize(
    "text", ["", "# HELP x\n", "up 1\n", '{"error": "not found"}', "vllm:num_requests_running NaN\n"]
)
def test_what_is_no_engines_page(text: str) -> None:
    assert parse_page(text) is None


@pytest.mark.parametrize(
    ("before", "after", "seconds", "rate"),
    [(100.0, 300.0, 2.0, 100.0), (None, 3.0, 1.0, None), (3.0, 1.0, 1.0, None), (1.0, 1.0, 2.0, 0.0), (1, 2, 0, None)],
)
def test_rates(before: float | None, after: float | None, seconds: float, rate: float | None) -> None:
    assert rate_of(before, after, seconds) == rate


def pod(**spec: object) -> dict[str, object]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "annotations": {"flexinfer.ai/backend": "vLLM"}},
        "spec": {
            "containers": [{"image": "x", "ports": [{"containerPort": 9}, {"name": "http", "containerPort": 8001}]}]
        }
        | spec,
        "status": {"phase": "Running", "podIP": "10.1.2.3"},
    }


def test_an_engine_answers_at_its_http_port() -> None:
    found = engine_of(pod())

    assert found
    assert (found.url, found.backend) == ("http://10.1.2.3:8001", "vllm")


def test_an_engine_people_started_is_known_by_its_image() -> None:
    made = pod(containers=[{"image": "docker.io/lmsysorg/sglang:v0.5"}])
    made["metadata"] = {"name": "p", "uid": "u"}
    made["status"] = {"phase": "Running", "podIP": "fd00::7"}

    found = engine_of(made)

    assert found
    assert (found.url, found.backend, found.namespace) == ("http://[fd00::7]:30000", "sglang", "default")


def test_an_engine_may_be_a_sidecar() -> None:
    sidecar = {"image": "vllm/vllm-openai", "restartPolicy": "Always", "ports": [{"containerPort": 8000}]}

    found = engine_of(pod(containers=[{"image": "bench"}], initContainers=[sidecar]))

    assert found
    assert found.url == "http://10.1.2.3:8000"


@pytest.mark.parametrize(
    "change",
    [{"status": {"phase": "Pending"}}, {"status": {"phase": "Running"}}, {"metadata": {"deletionTimestamp": "now"}},
     {"metadata": {}}, {"metadata": None, "spec": None}],
)  # fmt: skip
def test_pods_that_are_no_engine_or_not_yet(change: dict[str, object]) -> None:
    assert engine_of(pod() | change) is None
