"""Which programs of this machine stand for the images that the chart and the examples name."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flexinfer.local.demo_model import find_demo_model
from flexinfer.local.nats_server import find_binary
from flexinfer.local.runner import LocalImage

REPO = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
PATH = f"{BIN}:/usr/local/bin:/usr/bin:/bin"
# The image holds the package itself; here it is in the checkout, installed editable.
PYTHON = {"PATH": PATH, "PYTHONPATH": str(REPO), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}


def table(kube: Path) -> Mapping[str, LocalImage]:
    """``kube``: folder of the control plane's binaries."""
    ours = LocalImage((str(BIN / "flexinfer"),), PYTHON)
    engine = LocalImage((sys.executable, "-m", "flexinfer.local.llama_server"), PYTHON)
    scheduler = LocalImage((), {"PATH": f"{kube}:/bin"}, {"kube-scheduler": (str(kube / "kube-scheduler"),)})
    nats = LocalImage((find_binary(),), {"PATH": PATH}, {"nats-server": (find_binary(),)})
    shell = LocalImage(("/bin/sh",), {"PATH": PATH})
    return {
        "flexinfer/flexinfer": ours,
        "flexinfer/agent": ours,
        "ghcr.io/ggml-org/llama.cpp": engine,
        "registry.k8s.io/kube-scheduler": scheduler,
        "nats": nats,
        "busybox": shell,
    }


def users() -> Mapping[str, int]:
    """What the images' USER lines say."""
    names = ("flexinfer/flexinfer", "flexinfer/agent", "registry.k8s.io/kube-scheduler")
    return dict.fromkeys(names, 65532)


def host_paths(work: Path) -> Mapping[str, Path]:
    """Paths of a node as manifests name them → where they are here: models lie ready, /run is nobody else's."""
    return {"/models": find_demo_model().parent, "/run": work / "run"}


def visible(kube: Path) -> Sequence[Path]:
    """Directories that hold those programs."""
    candidates = [REPO, BIN.parent, Path(sys.base_prefix), kube]
    kept: list[Path] = []
    for path in sorted({path.resolve() for path in candidates}, key=lambda path: len(path.parts)):
        if not path.is_relative_to("/usr") and not any(path.is_relative_to(outer) for outer in kept):
            kept.append(path)
    return kept
