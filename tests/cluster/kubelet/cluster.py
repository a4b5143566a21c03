"""A whole cluster in a network of its own: control plane, default scheduler, and a kubelet with its nodes."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from binaries import find
from kubelet.house import bridge
from kubelet.netns import private_network
from kubelet.policies import End
from rig import Rig

DEADLINE = 120.0


class Cluster:
    """``python -m kubelet`` beside a Rig. Everything is started in the caller's network namespace."""

    def __init__(self, rig: Rig, nodes: Sequence[str]) -> None:
        self.rig = rig
        self.nodes = nodes
        self.work = rig.root / "kubelet"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Cluster":
        self.rig.start()
        self.rig.start_scheduler("", options={"extenders": [], "profiles": [{"schedulerName": "default-scheduler"}]})
        settings = self.rig.root / "kubelet.json"
        settings.write_text(json.dumps({
            "kubeconfig": str(self.rig.kubeconfig()), "work": str(self.work), "nodes": list(self.nodes),
            "api_port": self.rig.ports["api"], "kube": str(find()),
            "certificate": str(self.rig.root / "api.crt"), "key": str(self.rig.root / "api.key"),
        }))  # fmt: skip
        here = Path(__file__).resolve().parents[1]
        with (self.rig.root / "kubelet.log").open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kubelet", str(settings)], stdout=out, stderr=out, cwd=self.rig.root,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])},
            )  # fmt: skip
        for node in self.nodes:
            self.until(f"node {node} is ready", lambda node=node: self._ready(node))
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.rig.stop()

    def _ready(self, node: str) -> bool:
        status, body = self.rig.get(f"/api/v1/nodes/{node}")
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"the kubelet ended:\n{self.rig.log('kubelet')}")
        conditions = body["status"].get("conditions", []) if status == 200 else []  # type: ignore[index, call-overload]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def until(self, what: str, check: Callable[[], object], seconds: float = DEADLINE) -> None:
        """Wait for a condition of the cluster. Raises AssertionError that says what the cluster looks like instead."""
        deadline = time.monotonic() + seconds
        while not check():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:.0f} s: {what}\n{self.describe()}")
            threading.Event().wait(0.2)

    def addresses(self) -> dict[str, End]:
        """Every pod there was, by its address."""
        lines = (self.work / "addresses.jsonl").read_text().splitlines()
        known = [json.loads(line) for line in lines]
        return {one["ip"]: End(one["ip"], one["namespace"], one["labels"], one["ports"]) for one in known}

    def describe(self) -> str:
        """Pods that are not ready with their states and last log lines, and the latest warnings."""
        lines = []
        _, pods = self.rig.get("/api/v1/pods")
        for pod in pods["items"]:  # type: ignore[index, call-overload]
            status, meta = pod["status"], pod["metadata"]
            statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
            lines.append(f"{meta['namespace']}/{meta['name']} {status.get('phase')} {pod['spec'].get('nodeName')}")
            for one in statuses:
                if one.get("ready"):
                    continue
                lines.append(f"  {one['name']}: {json.dumps(one.get('state'))} last {json.dumps(one.get('lastState'))}")
                where = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log?container={one['name']}"
                lines.append(f"    {self.rig.get(where + '&tailLines=15')[1]!s}".replace("\n", "\n    "))
        _, events = self.rig.get("/api/v1/events")
        warnings = [e for e in events["items"] if e["type"] == "Warning"]  # type: ignore[index, call-overload]
        lines += [f"! {e['involvedObject']['name']}: {e['reason']}: {e['message']}" for e in warnings[-25:]]
        return "\n".join(lines)


@contextmanager
def private_cluster(root: Path, *nodes: str) -> Iterator[Cluster]:
    """A running cluster; the calling thread is in its network meanwhile."""
    with private_network():
        bridge()
        cluster = Cluster(Rig(root), nodes)
        try:
            yield cluster.start()
        finally:
            cluster.stop()
