"""``flexinfer up --kubeconfig``: the same system on a real API server and its controllers."""

import os
import subprocess
import sys
from pathlib import Path

from rig import Rig

EXAMPLES = Path(__file__).resolve().parents[2] / "flexinfer" / "local" / "examples"


def test_the_home_lab_runs_on_a_real_control_plane(rig: Rig, tmp_path: Path) -> None:
    argv = [
        str(Path(sys.executable).parent / "flexinfer"), "up", "--check", "--kubeconfig", str(rig.kubeconfig()),
        "--fake-nodes", str(EXAMPLES / "home-lab.yaml"), "--example", str(EXAMPLES / "home-lab-model.yaml"),
    ]  # fmt: skip
    environ = {**os.environ, "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "COLUMNS": "200"}

    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("✓ benchmark", "→ rx7900xtx", "Deploying → Running", "✓ answer"):
        assert text in done.stdout
    status, crd = rig.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/modeldeployments.ai.flexinfer")
    assert status == 200
    conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}  # type: ignore[index]
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
