"""What a person does in a second terminal while the demo runs, in the order they would."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
import yaml
from driving import Up, eventually, processes_of

pytestmark = pytest.mark.engine


def _post(url: str, body: dict[str, object]) -> Iterator[str]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        for line in response:
            yield line.decode().strip()


def _chat(demo: Up, **extra: object) -> list[str]:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 12, **extra}
    return list(_post(f"{demo.note['proxy_url']}/v1/chat/completions", body))


def test_a_chat_is_answered(demo: Up) -> None:
    answer = json.loads("".join(_chat(demo)))

    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] > 0


def test_a_chat_streams(demo: Up) -> None:
    lines = [line for line in _chat(demo, stream=True) if line]

    assert lines[-1] == "data: [DONE]"
    assert len([line for line in lines if line.startswith("data: {")]) > 3


def test_status_shows_node_model_and_result(demo: Up) -> None:
    shown = demo.run("status")

    assert shown.returncode == 0, shown.stderr
    assert "default/smollm2" in shown.stdout
    assert "Running" in shown.stdout
    document = json.loads(demo.run("status", "--output", "json").stdout)
    assert document["results"][0]["tokensPerSecond"] > 1
    assert document["hardware"][0]["cpu"]["threads"] >= 1


def test_events_show_and_tail(demo: Up) -> None:
    shown = demo.run("events", "show", "--filter", "bench.completed", "--output", "json")
    events = [json.loads(line) for line in shown.stdout.splitlines()]
    tailed = demo.run("events", "tail", "--filter", "node.telemetry", "--count", "1")

    assert [event["type"] for event in events] == ["ai.flexinfer.bench.completed.v1"]
    assert tailed.returncode == 0, tailed.stderr
    assert "node.telemetry" in tailed.stdout


def test_recorded_speed_agrees_with_the_engines_own_timings(demo: Up) -> None:
    shown = demo.run("events", "show", "--filter", "bench.sample", "--output", "json")
    samples = [json.loads(line)["data"] for line in shown.stdout.splitlines()]
    measured = [s for s in samples if not s["warmup"] and s["concurrency"] == 1]

    assert len(measured) >= 5
    for sample in measured:
        assert sample["tokensPerSecond"] == pytest.approx(sample["engineTokensPerSecond"], rel=0.03)


def test_explain_gives_terms_that_add_up(demo: Up) -> None:
    events = demo.run("events", "show", "--filter", "placement.decided", "--output", "json").stdout.splitlines()
    pods = [json.loads(line)["data"]["pod"] for line in events]
    pod = next(name for name in pods if name.startswith("smollm2"))

    told = json.loads(demo.run("explain", f"pod/{pod}", "--output", "json").stdout)

    [best] = told["candidates"]
    assert sum(term["contribution"] for term in best["terms"]) == pytest.approx(best["sum"])
    assert f"default/{pod}" in demo.run("explain", pod).stdout


def test_an_unknown_model_is_an_openai_error(demo: Up) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        _chat(demo, model="nobody")

    assert refused.value.code == 404
    assert json.load(refused.value)["error"]["message"]


def _kube(demo: Up, method: str, path: str, body: object = None) -> dict[str, object]:
    config = yaml.safe_load(Path(demo.note["kubeconfig"]).read_text())
    server = config["clusters"][0]["cluster"]["server"]
    token = config["users"][0]["user"].get("token", "")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        found: dict[str, object] = json.load(response)
        return found


MODEL = "/apis/ai.flexinfer/v1alpha1/namespaces/default/modeldeployments"


def _gone(demo: Up) -> bool:
    try:
        _kube(demo, "GET", f"{MODEL}/smollm2")
    except urllib.error.HTTPError as err:
        return err.code == 404
    return False


def test_deleting_stops_the_engine_and_the_next_identical_model_skips_the_benchmark(demo: Up) -> None:
    manifest = _kube(demo, "GET", f"{MODEL}/smollm2")
    spec = manifest["spec"]

    _kube(demo, "DELETE", f"{MODEL}/smollm2")

    eventually(lambda: _gone(demo), 60, "the finalizer ran and the object is gone")
    eventually(
        lambda: not [c for c in processes_of(f"TMPDIR={demo.tmp}") if "llama_server" in c], 30, "the engine stopped"
    )
    results = json.loads(demo.run("status", "--output", "json").stdout)["results"]
    assert len(results) == 1

    again = {
        "apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "again"}, "spec": spec,
    }  # fmt: skip
    _kube(demo, "POST", MODEL, again)

    def phase() -> str:
        status = _kube(demo, "GET", f"{MODEL}/again").get("status") or {}
        return str(status.get("phase", ""))  # type: ignore[attr-defined]

    eventually(lambda: phase() == "Running", 90, "the second model runs")
    shown = demo.run("events", "show", "--filter", "bench.started", "--output", "json").stdout.splitlines()
    assert len(shown) == 1


def _malformed(demo: Up) -> float:
    with urllib.request.urlopen(f"{demo.note['proxy_url']}/metrics", timeout=10) as response:
        text = response.read().decode()
    lines = [line for line in text.splitlines() if line.startswith("flexinfer_bus_malformed_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_malformed_messages_change_nothing_but_a_counter(demo: Up) -> None:
    before = demo.run("status", "--output", "json").stdout
    count = _malformed(demo)
    bus = await nats.connect(demo.note["nats_url"])
    for payload in (b"", b"\xff\xfe", b"{}", b'{"specversion":"1.0"}', b"[" * 10_000):
        await bus.publish("flexinfer.v1.default.model.default.again.endpoint", payload)
        await bus.publish("flexinfer.v1.default.node.nowhere.hardware", payload)
    await bus.flush()
    await bus.close()

    eventually(lambda: _malformed(demo) >= count + 5, 10, "the proxy counted the malformed messages")
    after = json.loads(demo.run("status", "--output", "json").stdout)
    assert [p["phase"] for p in after["phases"]] == [p["phase"] for p in json.loads(before)["phases"]]
    assert [h["node"] for h in after["hardware"]] == [h["node"] for h in json.loads(before)["hardware"]]
    assert _chat(demo, model="again")
