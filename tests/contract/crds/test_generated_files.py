"""Files made from code are the ones in the tree."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _generated() -> dict[Path, str]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "deploy" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.generated()


@pytest.mark.parametrize("path", sorted(_generated()), ids=lambda p: p.name)
def test_a_generated_file_is_fresh(path: Path) -> None:
    assert path.read_text() == _generated()[path], "run python deploy/generate.py"
