"""The chart, rendered by Helm's own binary."""

import functools
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))

import helm
from chart_rendering import Object, Refuse, Render


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        helm.find()
    except helm.NoHelm as err:
        pytest.skip(str(err))
    return tmp_path_factory.mktemp("helm")


@pytest.fixture(scope="session")
def render(home: Path) -> Render:
    """Objects of ``helm template`` with these arguments; raises AssertionError with Helm's words if it refuses."""

    @functools.cache
    def rendered(*args: str, version: str = "1.36.0") -> list[Object]:
        found = helm.template(home, *args, version=version)
        assert found.returncode == 0, found.stderr
        return [obj for obj in yaml.load_all(found.stdout, Loader=yaml.CSafeLoader) if obj]

    return rendered


@pytest.fixture(scope="session")
def refuse(home: Path) -> Refuse:
    """What Helm says when it refuses these arguments; raises AssertionError if it does not."""

    def refused(*args: str, version: str = "1.36.0") -> str:
        found = helm.template(home, *args, version=version)
        assert found.returncode != 0, "Helm accepted it"
        return found.stderr

    return refused
