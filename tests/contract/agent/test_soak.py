"""Ten simulated minutes of an agent leave memory and file descriptors as they were."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def soak() -> Any:
    import importlib.util  # noqa: PLC0415 - test folders are no packages
    import sys  # noqa: PLC0415

    spec = importlib.util.spec_from_file_location("flexinfer_soak", Path(__file__).with_name("soak.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flexinfer_soak"] = module
    spec.loader.exec_module(module)
    return module


async def test_ten_minutes_leave_nothing_behind(soak: Any, tmp_path: Path) -> None:
    agent = soak.Soak(tmp_path)

    readings = await agent.run(600, 120)

    early, late = readings[1], readings[-1]
    assert late.descriptors <= early.descriptors
    assert late.objects <= early.objects + 500
    assert late.resident_kib <= early.resident_kib + 4096
    assert agent.board.labels["flexinfer.ai/gpu.vram"] == "24Gi"
    assert len(agent.board.units) == 2
    assert agent.api.patches < 60
