"""Field by field, the real API server takes, completes and refuses our objects as the embedded one does."""

import os
import subprocess
import sys
from pathlib import Path

from rig import Rig

ROOT = Path(__file__).resolve().parents[2]


def test_the_suite_of_the_crds_passes_on_a_real_api(rig: Rig) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/crds"]
    environ = {**os.environ, "CONTRACT_KUBECONFIG": str(rig.kubeconfig())}

    done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
