"""What the documents tell people to type at kubectl, typed."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / name for name in ("install.md", "models.md", "operations.md")]
_FENCE = re.compile(r"^ *```(?:sh|console|bash)?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# Lines that change something are asked for without being done.
_CHANGES = re.compile(r"kubectl (-n \S+ )?(apply|delete|label|taint)\b")
# The plain manifests stand for a release, and would take the objects of the one that is there.
_FOR_OTHER_CLUSTERS = "deploy/flexinfer.yaml"


@dataclass(frozen=True)
class Typed:
    """One line, its exit code and all it printed."""

    line: str
    code: int
    printed: str


def lines() -> Iterator[str]:
    """Each line of a fenced block that begins with kubectl, without its comment."""
    for page in PAGES:
        for block in _FENCE.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("kubectl ") and _FOR_OTHER_CLUSTERS not in line:
                    yield line.partition(" #")[0].strip()


def typed(line: str, environ: dict[str, str], names: dict[str, str]) -> Typed:
    """Run in a shell with kubectl on the PATH. ``names``: what stands for each ``<placeholder>`` and each name of
    somebody's own model."""
    text = line
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    text = text.removesuffix(" -w")
    if _CHANGES.search(text):
        text += " --dry-run=server"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", text], cwd=ROOT, env=environ, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    return Typed(line, done.returncode, done.stdout + done.stderr)
