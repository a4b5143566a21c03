"""What scripts that measure in one event loop share: run, write the result file, hand the figures back to be shown."""

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from flexinfer.runtime.process import run_app


def measured(work: Coroutine[Any, Any, dict[str, Any]], output: Path | None) -> dict[str, Any]:
    """The figures of ``work``, also written to ``output`` if there is one."""
    found: dict[str, Any] = {}

    async def body() -> int:
        found.update(await work)
        return 0

    run_app(body)
    if output:
        output.write_text(json.dumps(found, indent=1) + "\n")
    return found
