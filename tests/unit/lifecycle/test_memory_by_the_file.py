"""Which figure of memory counts: the user's, the file's, or the name's, and when it may change."""

from typing import Any

import pytest

from flexinfer.contracts.events import CachedModel, Cpu, Device, GgufFacts, NodeHardware
from flexinfer.core.lifecycle.fetching.entries import entry_of
from flexinfer.core.lifecycle.gguf import needed_mb
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.sources import parse_source
from flexinfer.core.lifecycle.vram import estimate_mb

SOURCE = "hf://o/mixtral-8x7b-GGUF:Q4_K_M"
ENTRY = entry_of(parse_source(SOURCE, "llamacpp"), "gguf").name
FACTS = GgufFacts(
    architecture="llama", parameters=46_700_000_000, quantization="Q4_K_M", file_bytes=26_400_000_000, layers=32,
    kv_heads=8, kv_bytes_per_token=131_072, context_tokens=32768,
)  # fmt: skip
BY_NAME = estimate_mb("mixtral-8x7b-GGUF:Q4_K_M", "llamacpp", "q4_k_m", None)
BY_FILE = needed_mb(FACTS)
OFF = {"enabled": False}


@pytest.fixture
def sim(one_node: Any) -> Any:
    one_node.policy = Policy(fetch_image="flexinfer:1", node_cache="/models")
    one_node.restart()
    return one_node


def hardware(sim: Any, *cached: CachedModel, memory: int = 81920) -> None:
    card = Device(index=0, uuid="G0", vendor="NVIDIA", product="A100", arch="sm_80", memory_mib=memory)
    cpu = Cpu(model="Test CPU", threads=2, memory_mib=256_000)
    sim.tell(NodeHardware(node="n1", devices=(card,), cpu=cpu, cached=cached))
    sim.settle()


def here() -> CachedModel:
    return CachedModel(entry=ENTRY, source=SOURCE, bytes=FACTS.file_bytes, gguf=FACTS)


def apply(sim: Any, **spec: Any) -> None:
    sim.apply(model=SOURCE, benchmark=OFF, **{"gpu": {"vendor": "nvidia"}, **spec})
    sim.settle()


def counted(sim: Any) -> int:
    template = sim.objects["deployments", "default", "m"]["spec"]["template"]
    return int(template["metadata"]["annotations"]["flexinfer.ai/gpu.vram-estimate-mb"])


def told(sim: Any) -> str:
    return str(sim.condition("NodeSelected")["message"].rpartition("; ")[2])


def test_the_file_counts_where_it_is_known_and_the_name_elsewhere(sim: Any) -> None:
    hardware(sim)
    apply(sim)
    by_name = counted(sim)
    hardware(sim, here())

    assert (by_name, counted(sim)) == (BY_NAME, BY_FILE)
    sim.run()
    assert told(sim) == f"{BY_FILE} MB by the model's file"


def test_the_user_always_wins(sim: Any) -> None:
    hardware(sim, here())
    apply(sim, gpu={"vendor": "nvidia", "vramEstimateMB": 5000})
    sim.run()

    assert counted(sim) == 5000
    assert "MB" not in sim.condition("NodeSelected")["message"]


def test_the_context_counts_too(sim: Any) -> None:
    hardware(sim, here())
    apply(sim, llamacpp={"contextSize": 32768})

    assert counted(sim) == needed_mb(FACTS, 32768)


def test_what_serves_is_not_restarted_for_a_better_figure(sim: Any) -> None:
    hardware(sim)
    apply(sim)
    sim.run()
    before = sim.objects["deployments", "default", "m"]["metadata"]["generation"]
    hardware(sim, here())
    apply(sim, replicas=2)

    assert (counted(sim), told(sim)) == (BY_NAME, f"{BY_NAME} MB estimated by its name")
    assert sim.objects["deployments", "default", "m"]["metadata"]["generation"] == before + 1, "scaled only"

    apply(sim, replicas=2, llamacpp={"contextSize": 8192})
    assert counted(sim) == needed_mb(FACTS, 8192), "a new version takes what is known now"


def test_the_figure_stays_when_entry_and_manager_are_gone(sim: Any) -> None:
    hardware(sim, here())
    apply(sim)
    sim.run()
    hardware(sim)
    sim.restart()
    sim.settle()

    assert counted(sim) == BY_FILE
    assert told(sim) == f"{BY_FILE} MB by the model's file"


def test_a_deployment_of_an_earlier_release_is_left_as_it_is(sim: Any) -> None:
    hardware(sim)
    apply(sim)
    sim.run()
    address = ("deployments", "default", "m")
    del sim.objects[address]["metadata"]["annotations"]["flexinfer.ai/vram-counted"]
    sim.restart()
    before = sim.objects[address]["metadata"]["generation"]
    hardware(sim, here())

    assert (counted(sim), sim.objects[address]["metadata"]["generation"]) == (BY_NAME, before)


def test_a_card_that_is_too_small_is_told_with_where_the_figure_comes_from(sim: Any) -> None:
    hardware(sim, here(), memory=24576)
    apply(sim)

    message = sim.condition("Available")["message"]
    assert f"gpu.vramEstimateMB is {BY_FILE} (read from the model's file; set it if that is wrong)" in message
