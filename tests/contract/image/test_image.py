"""The Dockerfile against what it is built from. Nothing here can build it, so every line it depends on is checked: the
linter, the files it copies, the locks, and the wheel that the same command makes from just those files."""

import configparser
import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from flexinfer import __version__

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LINES = [line.strip() for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line.strip() and line[0] != "#"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = ROOT / "deploy" / "locks"


def copied() -> list[tuple[str, str]]:
    """(source, target) of every file that comes from the checkout."""
    found = []
    for line in LINES:
        if line.startswith("COPY ") and "--from=" not in line:
            *sources, target = line.split()[1:]
            found += [(source, target) for source in sources]
    return found


def locked(name: str) -> dict[str, str]:
    text = (LOCKS / f"{name}.txt").read_text()
    return {found[1].lower(): found[2] for found in re.finditer(r"^([A-Za-z0-9_.-]+)==([^ \\]+)", text, re.MULTILINE)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Made by the Dockerfile's own command, in a folder with nothing but what the Dockerfile copied before it."""
    source, out = tmp_path_factory.mktemp("src"), tmp_path_factory.mktemp("wheel")
    for name, target in copied():
        if target.startswith("/"):
            continue
        to = source / (target if target != "./" else name)
        to.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to)
    [line] = [line for line in LINES if line.startswith("RUN pip wheel")]
    argv = line.removeprefix("RUN pip").replace("/wheel", str(out)).split()
    made = subprocess.run(
        [sys.executable, "-m", "pip", *argv, "--disable-pip-version-check"],
        cwd=source, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    [file] = out.glob("*.whl")
    return zipfile.ZipFile(file)


def test_hadolint_has_nothing_to_say() -> None:
    program = Path(sys.executable).parent / "hadolint"
    if not program.exists():
        pytest.skip("hadolint has no wheel for this machine")
    found = subprocess.run([str(program), str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)

    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize(("source", "_target"), copied())
def test_what_is_copied_exists_and_is_not_ignored(source: str, _target: str) -> None:
    assert (ROOT / source).exists()
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert any(source == rule or source.startswith(rule + "/") or fnmatch.fnmatch(source, rule) for rule in kept)


def test_stages_are_copied_from_and_built_on_stages_that_exist() -> None:
    stages = {line.split()[3] for line in LINES if line.startswith("FROM")}
    used = set(re.findall(r"--from=(\S+)", DOCKERFILE))
    bases = {line.split()[1] for line in LINES if line.startswith("FROM")} - {"python:${PYTHON}-slim"}

    assert used | bases <= stages
    assert LINES[[i for i, line in enumerate(LINES) if line.startswith("FROM")][-1]].endswith("AS flexinfer")


def test_both_images_run_as_a_user_without_rights_given_by_number() -> None:
    runtime = DOCKERFILE.split("AS runtime")[1]

    assert "USER 65532:65532" in runtime.split("FROM")[0]
    assert "USER" not in runtime.split("FROM", 1)[1]


@pytest.mark.parametrize("name", ["build", "flexinfer", "agent"])
def test_every_package_of_a_lock_has_hashes(name: str) -> None:
    blocks = re.split(r"\n(?=[a-z])", (LOCKS / f"{name}.txt").read_text(), flags=re.IGNORECASE)[1:]

    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    assert not any("://" in block for block in blocks)


@pytest.mark.parametrize(("name", "extras"), [("flexinfer", ()), ("agent", ("nvidia", "amd"))])
def test_a_lock_satisfies_the_project(name: str, extras: tuple[str, ...]) -> None:
    wanted = [*PROJECT["dependencies"], *(one for extra in extras for one in PROJECT["optional-dependencies"][extra])]
    versions = locked(name)

    for requirement in map(Requirement, wanted):
        assert versions[requirement.name.lower()] in requirement.specifier, f"{requirement}: run deploy/lock.sh"
    for requirement in map(
        Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    ):
        assert locked("build")[requirement.name] in requirement.specifier


def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    files = {
        str(path.relative_to(ROOT)) for path in (ROOT / "flexinfer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }  # fmt: skip

    assert files - set(wheel.namelist()) == set()


def test_the_wheel_has_the_programs_that_image_and_chart_name(wheel: zipfile.ZipFile) -> None:
    [entry] = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    parsed = configparser.ConfigParser()
    parsed.read_string(wheel.read(entry).decode())
    programs = set(parsed["console_scripts"])
    templates = (ROOT / "charts" / "flexinfer" / "templates").glob("*.yaml")
    named = {found for path in templates for found in re.findall(r"command: \[(flexinfer[a-z-]*)\]", path.read_text())}
    named |= set(re.findall(r'CMD \["([a-z-]+)"', DOCKERFILE))

    assert named <= programs
    assert named >= {"flexinfer-agent", "flexinfer-manager", "flexinfer-sched", "flexinfer-proxy", "flexinfer-webhook"}
    modules = {name.removesuffix(".py").replace("/", ".") for name in wheel.namelist()}
    assert {target.partition(":")[0] for target in parsed["console_scripts"].values()} <= modules


def test_the_image_is_tagged_as_the_chart_asks_for_it() -> None:
    chart = (ROOT / "charts" / "flexinfer" / "Chart.yaml").read_text()

    assert f"appVersion: {__version__}\n" in chart
    assert DOCKERFILE.count(f":{__version__} .") == 2
