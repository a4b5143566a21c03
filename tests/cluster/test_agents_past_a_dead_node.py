"""The chart's agents on a real DaemonSet controller: an update goes past a node that is away. The kubelet is this test.

A DaemonSet that lets half of two pods be unavailable never gets past the one whose node is gone.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helm
import pytest
from rig import Rig

NAMESPACE = "flexinfer-system"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = ("here", "away")
DEADLINE = 120.0


class Fleet:
    """Two nodes, and what their kubelets would say about agents."""

    def __init__(self, rig: Rig, home: Path) -> None:
        self.rig, self._home = rig, home

    def helm(self, *args: str) -> None:
        found = helm.run("helm", *args, "-n", NAMESPACE, home=self._home, kubeconfig=self.rig.kubeconfig())
        assert found.returncode == 0, found.stderr

    def agents(self, node: str) -> list[Any]:
        """Pods made for that node."""
        _status, body = self.rig.get(f"{PODS}?labelSelector=app.kubernetes.io/component=agent")
        return [pod for pod in body["items"] if f'"{node}"' in json.dumps(pod["spec"]["affinity"])]  # type: ignore[index, call-overload]

    def run(self, node: str, *, ready: bool) -> str:
        """Bind the agent of a node and tell its state; its name."""
        until(lambda: self.agents(node), f"an agent for {node}")
        [pod] = self.agents(node)
        name = str(pod["metadata"]["name"])
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        self.rig.call("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})
        state = "True" if ready else "False"
        conditions = [{"type": kind, "status": state, "lastTransitionTime": "2026-01-01T00:00:00Z"}
                      for kind in ("Ready", "ContainersReady")]  # fmt: skip
        self.rig.call("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": conditions}})
        return name

    def interval(self, node: str) -> set[str]:
        """What the agents of a node that are not about to end are told to measure by."""
        return {
            entry["value"]
            for pod in self.agents(node)
            if not pod["metadata"].get("deletionTimestamp")
            for entry in pod["spec"]["containers"][0]["env"]
            if entry["name"] == "FLEXINFER_INTERVAL"
        }

    def confirm(self, node: str) -> None:
        """As a kubelet does once a pod that was asked to end has ended."""
        for pod in self.agents(node):
            if pod["metadata"].get("deletionTimestamp"):
                self.rig.call("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def until(check: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not check():
        assert time.monotonic() < deadline, f"not within {DEADLINE:.0f} s: {what}"
        time.sleep(0.2)  # controllers of the cluster announce nothing


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    try:
        helm.find()
    except helm.NoHelm as err:
        pytest.skip(str(err))
    rig = Rig(tmp_path / "rig")
    try:
        made = Fleet(rig.start(), tmp_path)
        for node in NODES:
            rig.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        yield made
    finally:
        rig.stop()


def test_an_update_of_the_agents_goes_past_a_node_that_is_away(fleet: Fleet) -> None:
    fleet.helm("install", "flexinfer", str(helm.CHART), "--create-namespace", "--set", "agent.interval=30s")
    fleet.run("here", ready=True)
    fleet.run("away", ready=False)

    fleet.helm("upgrade", "flexinfer", str(helm.CHART), "--set", "agent.interval=31s")

    def updated() -> bool:
        fleet.confirm("here")  # nobody confirms on the other
        return fleet.interval("here") == {"31s"}

    until(updated, "the agent that can be updated is")
    assert [pod["spec"].get("nodeName") for pod in fleet.agents("away")] == ["away"]
