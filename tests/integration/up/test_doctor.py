"""``flexinfer doctor`` says what was tried and why it failed."""

import json
import subprocess
import sys
from pathlib import Path

FLEXINFER = str(Path(sys.executable).parent / "flexinfer")


def test_doctor_lists_every_source_and_every_part(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [FLEXINFER, "doctor", "--output", "json"], capture_output=True, text=True, env=environ, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {"nvml", "nvidia-smi", "rocm-smi", "sysfs"} <= {source["name"] for source in told["sources"]}
    assert {check["name"]: check["state"] for check in told["checks"]}["bus"] == "not asked"


def test_a_bus_that_does_not_answer_is_broken_and_the_exit_code_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [FLEXINFER, "doctor", "--nats-url", "nats://127.0.0.1:9"], capture_output=True, text=True,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)}, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert "no bus answers at nats://127.0.0.1:9" in done.stdout
