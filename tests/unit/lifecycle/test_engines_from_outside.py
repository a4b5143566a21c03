"""An engine of another package: found by its entry point, used like the others."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flexinfer.config.engines import load_engines
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines import ENGINES, GROUP, register
from flexinfer.core.lifecycle.pods import Placement, engine_pod, image_of
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.reading import describe

MODULE = """
from flexinfer.core.lifecycle.engines.base import Engine, Option, Program, command_line, flags

OPTIONS = {"depth": Option("--depth")}


def launch(launch):
    ours = ("--weights", launch.model_path or launch.description.source.location, "--port", str(launch.port),
            *flags(OPTIONS, launch.description.options))
    return Program(command_line(ours, launch.description.args))


ABACUS = Engine(name="abacus", port=7000, images={"CPU": "example/abacus:1"}, schemes=frozenset({"hf", "file"}),
                launch=launch, served_model=lambda _description: "", options=OPTIONS)
NUMBER = 7
"""


def install(folder: Path, entries: str) -> None:
    """What pip leaves behind of a package, without pip."""
    (folder / "abacus_engine.py").write_text(MODULE)
    info = folder / "abacus_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(ENGINES)
    yield tmp_path
    ENGINES.clear()
    ENGINES.update(before)
    sys.modules.pop("abacus_engine", None)


def test_an_installed_engine_becomes_a_backend(site: Path) -> None:
    install(site, "abacus = abacus_engine:ABACUS")

    assert load_engines() == ("abacus",)
    found = describe(
        {
            "kind": "Model",
            "metadata": {"name": "m", "namespace": "d", "uid": "u"},
            "spec": {"backend": "abacus", "source": "file:///m/x", "config": {"depth": 3, "args": ["--port", "1"]}},
        }
    )
    assert isinstance(found, Description), found
    image = image_of(found, "CPU", Policy())
    pod = engine_pod(found, Placement("CPU", 0), image or "", Policy())
    assert (image, pod.container["args"]) == (
        "example/abacus:1",
        ["--weights", "/models/x", "--depth", "3", "--port", "1"],
    )


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("abacus = no_such_module:ABACUS", "No module named"),
        ("abacus = abacus_engine:NOTHING", "no attribute"),
        ("abacus = abacus_engine:NUMBER", "7 is no flexinfer.core.lifecycle.engines.Engine"),
    ],
)
def test_one_that_cannot_be_used_is_left_out_and_told(
    site: Path, entries: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    install(site, entries)

    with caplog.at_level(logging.ERROR):
        assert load_engines() == ()
    assert said in caplog.text
    assert "abacus" not in ENGINES


def test_a_name_is_given_once() -> None:
    vllm = ENGINES["vllm"]
    register(vllm)
    with pytest.raises(ValueError, match="already"):
        register(type(vllm)(**{**{n: getattr(vllm, n) for n in vllm.__slots__}, "port": 1}))
