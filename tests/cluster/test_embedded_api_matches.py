"""The behaviour suite of the embedded API on the server it stands for: what holds there and here cannot drift apart."""

import os
import subprocess
import sys
from pathlib import Path

import helm
from rig import ADMIN, Rig

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tests" / "contract" / "kubeapi"
DEADLINE = 600


def test_the_real_server_behaves_as_the_suite_of_the_embedded_one_says(rig: Rig) -> None:
    server = {"CONTRACT_KUBE_URL": rig.url, "CONTRACT_KUBE_TOKEN": ADMIN}
    environ = {**os.environ, **server, "KUBECTL": str(helm.find() / "kubectl")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", str(SUITE)],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "[100%]" in done.stdout
