"""Every field case with the agent as a process: fake tools on PATH, a fake root, stub bindings on PYTHONPATH."""

import asyncio
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[2] / "captures" / "gpu"
LIMIT_SECONDS = 60.0


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.json")))
async def test_once_prints_the_right_answer(
    name: str, tmp_path: Path, player: ModuleType, answers: ModuleType, agent_on: Any
) -> None:
    case = json.loads((CASES / f"{name}.json").read_text())
    async with asyncio.timeout(LIMIT_SECONDS):
        code, out, err = await agent_on(case, tmp_path, "--once", "--dry-run", "--output", "json")

    assert code == 0, err
    found = json.loads(out)
    assert sorted(found) == ["annotations", "cpu", "devices", "labels", "problems", "sources"]
    assert answers.differences(case, found) == []
