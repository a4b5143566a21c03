"""Our own executables as pods with ``nodeName`` set, started by the process runner as a cluster would start them."""

import sys
from dataclasses import dataclass
from pathlib import Path

from flexinfer.contracts.kubernetes import Object
from flexinfer.local.runner import LocalImage

NAMESPACE = "flexinfer-system"
ENGINE_IMAGE = "ghcr.io/ggml-org/llama.cpp"
BENCHMARK_IMAGE = "flexinfer/benchmarker"
OWN_IMAGE = "flexinfer/flexinfer"
FETCH = "flexinfer-fetch"


def executable(name: str) -> str:
    """Path of one of our console scripts, beside the interpreter that runs now."""
    return str(Path(sys.executable).parent / name)


def image_table(record: Path | None = None) -> dict[str, LocalImage]:
    """Image reference (without tag) to the programs that stand for it on this machine."""
    bench = (executable("flexinfer-bench"), *(("--record", str(record)) if record else ()))
    return {
        ENGINE_IMAGE: LocalImage((sys.executable, "-m", "flexinfer.local.llama_server")),
        BENCHMARK_IMAGE: LocalImage(bench, programs={"flexinfer-bench": bench}),
        OWN_IMAGE: LocalImage((executable("flexinfer"),), programs={FETCH: (executable(FETCH),)}),
    }


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the parts of one running system listen."""

    nats_url: str
    kubeconfig: Path
    node: str
    agent_port: int
    manager_port: int
    scheduler_port: int
    proxy_port: int
    global_proxy_port: int
    dashboard_port: int
    record: Path | None = None  # where all of them keep their tapes
    models: Path | None = None  # the node's cache of fetched weights; None: nothing is fetched

    @property
    def scheduler_url(self) -> str:
        """Base URL of the extender."""
        return f"http://127.0.0.1:{self.scheduler_port}"

    @property
    def proxy_url(self) -> str:
        """Base URL of the proxy."""
        return f"http://127.0.0.1:{self.proxy_port}"

    @property
    def dashboard_url(self) -> str:
        """The page."""
        return f"http://127.0.0.1:{self.dashboard_port}"


@dataclass(frozen=True, slots=True)
class Part:
    """One executable: its pod's name, arguments and the port of its probes."""

    name: str
    program: str
    args: tuple[str, ...]
    port: int


def parts(at: Addresses) -> tuple[Part, ...]:
    """Every executable of the demo with its arguments."""
    kube = ("--kubeconfig", str(at.kubeconfig))
    bus = ("--nats-url", at.nats_url)
    tape = ("--record", str(at.record)) if at.record else ()
    loopback = "127.0.0.1"
    fetching, keeping = _cache(at.models)
    return (
        Part(
            "flexinfer-manager", "flexinfer-manager",
            (*bus, *kube, *tape, "--metrics-host", loopback, "--metrics-port", str(at.manager_port),
             "--proxy-url", at.proxy_url, "--node-local", *fetching),
            at.manager_port,
        ),
        Part(
            "flexinfer-agent", "flexinfer-agent",
            (*bus, *kube, *tape, "--node-name", at.node, *keeping,
             "--metrics-host", loopback, "--metrics-port", str(at.agent_port)),
            at.agent_port,
        ),
        Part(
            "flexinfer-scheduler", "flexinfer-sched",
            (*bus, *kube, *tape, "--host", loopback, "--port", str(at.scheduler_port)),
            at.scheduler_port,
        ),
        Part(
            "flexinfer-proxy", "flexinfer-proxy",
            (*bus, *tape, "--host", loopback, "--port", str(at.proxy_port), "--instance", "flexinfer-proxy",
             "--accept-timeout", "0s"),
            at.proxy_port,
        ),
        Part(
            "flexinfer-global-proxy", "flexinfer-global-proxy",
            (*bus, *tape, "--host", loopback, "--port", str(at.global_proxy_port),
             "--clusters", f"local={at.proxy_url}", "--accept-timeout", "0s"),
            at.global_proxy_port,
        ),
        Part(
            "flexinfer-dashboard", "flexinfer-dashboard",
            (*bus, *tape, "--host", loopback, "--port", str(at.dashboard_port)),
            at.dashboard_port,
        ),
    )  # fmt: skip


def _cache(models: Path | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the manager and the agent are told of the node's cache of weights."""
    if models is None:
        return (), ()
    folder = str(models)
    fetching = ("--fetch-image", f"{OWN_IMAGE}:local", "--model-cache-path", folder, "--node-cache", folder)
    return fetching, ("--model-cache", folder, "--model-cache-floor-gb", "2")


PART_PODS = tuple(
    f"{NAMESPACE}/flexinfer-{name}" for name in ("manager", "agent", "scheduler", "proxy", "global-proxy", "dashboard")
)


def pod(part: Part, node: str) -> Object:
    """The Pod object of a part."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": part.name,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": part.name, "app.kubernetes.io/part-of": "flexinfer"},
        },
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 10,
            "containers": [
                {
                    "name": part.name.removeprefix("flexinfer-"),
                    "image": f"{OWN_IMAGE}:local",
                    "command": [executable(part.program)],
                    "args": list(part.args),
                    "env": [{"name": "POD_NAMESPACE", "value": NAMESPACE}],
                    "readinessProbe": {
                        "httpGet": {"path": "/readyz", "port": part.port, "host": "127.0.0.1"},
                        "periodSeconds": 1,
                        "failureThreshold": 3,
                    },
                }
            ],
        },
    }
