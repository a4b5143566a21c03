"""Known vulnerabilities of what the images are built from, by pip-audit over deploy/locks.

Exits 1 when a locked package has one. Where the package index offers no vulnerability service, or cannot be reached,
nothing was looked up: that is said in capitals and is no failure, unless ``--must-run`` is given.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("build", "agent", "flexinfer")  # the shortest first: it tells whether there is anything to ask
TOOL = "pip-audit>=2.9,<3"
SECONDS = 300


def verdict(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(vulnerabilities, packages nobody could tell about) of one report, a line each."""
    bad, unknown = [], []
    for package in report["dependencies"]:
        if "skip_reason" in package:
            unknown.append(f"{package['name']}: {package['skip_reason']}")
        for found in package.get("vulns", ()):
            fixed = ", ".join(found.get("fix_versions", ())) or "no release yet"
            bad.append(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
    return bad, unknown


def _python(folder: Path) -> Path:
    """An environment with the tool and nothing of ours."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    argv = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", TOOL]
    subprocess.run(argv, check=True, timeout=SECONDS, capture_output=True)  # noqa: S603 - fixed words
    return python


def _report(python: Path, lock: str) -> dict[str, Any]:
    argv = [str(python), "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off",
            "-f", "json", "-r", str(ROOT / "deploy" / "locks" / f"{lock}.txt")]  # fmt: skip
    run = subprocess.run(argv, check=False, timeout=SECONDS, capture_output=True, text=True)  # noqa: S603 - same
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def main(argv: list[str]) -> int:
    """Audit all locks; the exit code."""
    bad: list[str] = []
    unknown: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            python = _python(Path(folder))
            for lock in LOCKS:
                more, silent = verdict(_report(python, lock))
                bad += [f"{lock}: {line}" for line in more]
                unknown += [f"{lock}: {line}" for line in silent]
                if silent:
                    break
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as err:
            unknown.append(f"pip-audit could not work: {type(err).__name__}")
    for line in bad:
        sys.stderr.write(f"VULNERABLE: {line}\n")
    if unknown:
        sys.stderr.write(f"AUDIT NOT RUN: {unknown[0]}\n")
    elif not bad:
        sys.stderr.write("audit: no known vulnerability in deploy/locks\n")
    return 1 if bad or (unknown and "--must-run" in argv) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
