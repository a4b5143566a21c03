"""deploy/flexinfer.yaml is what the chart renders, and holds no secret."""

import subprocess
from pathlib import Path

import helm
import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
PLAIN = DEPLOY / "flexinfer.yaml"


def test_the_plain_manifests_are_fresh(home: Path, tmp_path: Path) -> None:
    made = subprocess.run(
        ["bash", str(DEPLOY / "render.sh"), str(tmp_path / "out.yaml")],
        env=helm.environ(home), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert made.returncode == 0, made.stderr
    assert (tmp_path / "out.yaml").read_text() == PLAIN.read_text(), "run deploy/render.sh"


def test_the_secrets_they_expect_are_those_the_script_makes() -> None:
    objects = [obj for obj in yaml.load_all(PLAIN.read_text(), Loader=yaml.CSafeLoader) if obj]
    text, script = PLAIN.read_text(), (DEPLOY / "secrets.sh").read_text()
    [users] = [
        line.split(" in ")[1].split(";")[0].split() for line in script.splitlines() if line.startswith("for user")
    ]

    assert not [obj for obj in objects if obj["kind"] in ("Secret", "Namespace")]
    assert {user for user in users if f"flexinfer-nats-{user}" in text} == set(users)
    assert "secretName: flexinfer-nats-tls" in text
