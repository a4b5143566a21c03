"""Every field case with the agent as a process: fake tools on PATH, a fake root, stub bindings on PYTHONPATH."""

import asyncio
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[2] / "captures" / "gpu"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
GROUPS = [NAMES[at : at + 10] for at in range(0, len(NAMES), 10)]
AT_ONCE = 3
LIMIT_SECONDS = 60.0


def test_all_seventy_are_here() -> None:
    assert len(NAMES) == 70


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
async def test_once_prints_the_right_answer(
    names: list[str], tmp_path: Path, player: ModuleType, answers: ModuleType, agent_on: Any
) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def wrong(name: str) -> list[str]:
        case = json.loads((CASES / f"{name}.json").read_text())
        async with gate, asyncio.timeout(LIMIT_SECONDS):
            code, out, err = await agent_on(case, tmp_path / name, "--once", "--dry-run", "--output", "json")
        if code:
            return [err]
        found = json.loads(out)
        shape = sorted(found) == ["annotations", "cpu", "devices", "labels", "problems", "sources"]
        return answers.differences(case, found) if shape else [f"keys are {sorted(found)}"]

    found = dict(zip(names, await asyncio.gather(*map(wrong, names)), strict=True))

    assert {name: differences for name, differences in found.items() if differences} == {}
