"""``flexinfer up --check``: a real model answers, and nothing is left behind."""

import re
import signal
import socket
from pathlib import Path

import pytest
from driving import Up, eventually

pytestmark = pytest.mark.engine


def test_check_goes_to_the_first_chat_answer_and_leaves_nothing(tmp_path: Path) -> None:
    up = Up(tmp_path, ("--check",)).start()

    assert up.ended() == 0, up.output
    for step in ("✓ bus", "✓ api", "✓ control", "✓ node", "✓ applied", "✓ benchmark", "✓ running", "✓ answer"):
        assert step in up.output
    for phase in ("Pending", "Benchmarking", "Deploying", "Running"):
        assert phase in up.output
    assert len(re.findall(r"iteration +\d+ +[\d.]+ tokens/s", up.output)) >= 5
    assert up.leftovers() == []


def test_killing_it_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    up = Up(tmp_path).start()
    up.wait_for("✓ control", 120)

    up.stop(signal.SIGKILL)

    eventually(lambda: not [x for x in up.leftovers() if "up-" not in x], 15, "processes and files are gone")


def test_interrupting_it_early_leaves_nothing(tmp_path: Path) -> None:
    up = Up(tmp_path).start()
    up.wait_for("✓ bus", 60)

    assert up.stop(signal.SIGINT) == 0
    assert up.leftovers() == []


def _refused(tmp_path: Path, *args: str) -> str:
    up = Up(tmp_path, args).start()
    assert up.ended(120) == 1
    assert up.leftovers() == []
    assert "Traceback" not in up.output
    return up.output


def test_a_port_that_is_busy_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        assert f"--proxy-port {port}: the port is taken" in _refused(tmp_path, "--proxy-port", port)


def test_a_model_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "--model /nowhere.gguf: there is no such file" in _refused(tmp_path, "--model", "/nowhere.gguf")


MANIFEST = """
apiVersion: ai.flexinfer/v1alpha1
kind: ModelDeployment
metadata: {name: bad}
spec: {backend: %s, model: x, replicas: %s}
"""


@pytest.mark.parametrize(
    ("backend", "replicas", "sentence"),
    [
        ("pixiedust", "1", "flexinfer up: bad failed: spec.backend"),
        ("llamacpp", "-3", "flexinfer up: the manifest was refused"),
    ],
)
def test_a_manifest_that_cannot_be_is_one_sentence(tmp_path: Path, backend: str, replicas: str, sentence: str) -> None:
    path = tmp_path / "outside" / "bad.yaml"
    path.parent.mkdir()
    path.write_text(MANIFEST % (backend, replicas))
    (tmp_path / "tmp").mkdir()

    assert sentence in _refused(tmp_path / "tmp", "--example", str(path))
