"""The real control plane as test tools: taken from KUBEBUILDER_ASSETS, or built once by Go and cached.

``python tests/cluster/binaries.py`` builds (or finds) them and prints the folder.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_COMMANDS = tuple(f"k8s.io/kubernetes/cmd/{name}" for name in NAMES[1:])


class NoControlPlane(RuntimeError):
    """Neither binaries nor Go: the cluster tests cannot run here."""


def version() -> str:
    """The Kubernetes version pinned by the tool module, for example ``v1.36.3``."""
    for line in (TOOLS / "go.mod").read_text().splitlines():
        if line.strip().startswith("k8s.io/kubernetes "):
            return line.split()[1]
    raise NoControlPlane(f"{TOOLS / 'go.mod'} pins no k8s.io/kubernetes")


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pinned = (TOOLS / "go.mod").read_bytes() + (TOOLS / "go.sum").read_bytes()
    return base / "flexinfer" / f"kube-{version()}-{hashlib.sha256(pinned).hexdigest()[:12]}"


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise NoControlPlane(
            "the cluster tests need etcd, kube-apiserver, kube-controller-manager and kube-scheduler: "
            "set KUBEBUILDER_ASSETS to a folder that holds them, or install Go 1.26 to build them"
        )
    sys.stderr.write(f"building the Kubernetes {version()} control plane (once; about ten minutes) into {folder}\n")
    stage = folder.with_name(folder.name + f".{os.getpid()}")
    stage.mkdir(parents=True)
    package = "k8s.io/component-base/version"
    major, minor, _ = version().removeprefix("v").split(".")
    flags = f"-s -w -X {package}.gitVersion={version()} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    build = [
        go,
        "build",
        "-trimpath",
        "-ldflags",
        flags,
        "-o",
        f"{stage}{os.sep}",
        "go.etcd.io/etcd/server/v3",
        *_COMMANDS,
    ]
    try:
        subprocess.run(build, cwd=TOOLS, check=True, env={**os.environ, "CGO_ENABLED": "0"})
        (stage / "server").rename(stage / "etcd")
        shutil.rmtree(folder, ignore_errors=True)
        stage.rename(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def find() -> Path:
    """Folder with the four binaries. Raises NoControlPlane, or CalledProcessError if the build fails."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given and all((Path(given) / name).exists() for name in NAMES):
        return Path(given)
    folder = _cache()
    if not all((folder / name).exists() for name in NAMES):
        _build(folder)
    return folder


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find()}\n")
    except NoControlPlane as err:
        sys.exit(f"error: {err}")
