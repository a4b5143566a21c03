"""A home lab on a laptop: measured for real, placed where it is fastest, labelled as virtual everywhere."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from driving import Up

EXAMPLES = Path(__file__).resolve().parents[3] / "flexinfer" / "local" / "examples"


def test_the_home_lab_places_the_model_on_the_node_that_is_fastest_by_measurement(tmp_path: Path) -> None:
    args = ("--fake-nodes", str(EXAMPLES / "home-lab.yaml"), "--example", str(EXAMPLES / "home-lab-model.yaml"))
    up = Up(tmp_path, args).start()
    try:
        up.wait_for("✓ answer")
        status = json.loads(up.run("status", "--output", "json").stdout)
        api = server_of(up)
        pods = read(f"{api}/api/v1/namespaces/default/pods")["items"]
        [served] = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"].startswith("llama3-8b-")]
        with urllib.request.urlopen(f"{api}/api/v1/namespaces/default/pods/{served}/log", timeout=60) as answer:
            log = answer.read().decode()
    finally:
        code = up.stop()

    speeds = {result["node"]: result["tokensPerSecond"] for result in status["results"]}
    assert set(speeds) == {"rtx3060", "rx7900xtx"}
    fastest = max(speeds, key=lambda node: speeds[node])
    [endpoint] = [e for model in status["endpoints"] if model["model"] == "llama3-8b" for e in model["endpoints"]]
    assert endpoint["node"] == fastest == "rx7900xtx"
    assert {h["node"] for h in status["hardware"] if h["virtual"]} == {"rtx3060", "rx7900xtx", "cpu-box"}
    assert all(result["virtual"] for result in status["results"])
    assert "virtual engine of rx7900xtx" in log
    assert code == 0
    assert up.leftovers() == []


def server_of(up: Up) -> str:
    config = yaml.safe_load(Path(up.note["kubeconfig"]).read_text())
    return str(config["clusters"][0]["cluster"]["server"])


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def test_an_impossible_fleet_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "outside.yaml"
    path.write_text("nodes: [{name: n, speed: {tokens_per_second: -1}}]")
    (tmp_path / "tmp").mkdir()
    up = Up(tmp_path / "tmp", ("--fake-nodes", str(path))).start()

    assert up.ended(60) == 1
    assert "nodes.0.speed.tokens_per_second" in up.output
    assert up.leftovers() == []
