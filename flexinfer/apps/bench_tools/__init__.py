"""``flexinfer bench run|list|show|compare``: measure any server, look at results."""

from flexinfer.apps.bench_tools import measuring, recalling
from flexinfer.config.bench_tools import (
    BenchCompareSettings,
    BenchListSettings,
    BenchRunSettings,
    BenchShowSettings,
    ResultsSettings,
)
from flexinfer.config.common import Settings

# flexinfer bench <action> -> (settings, what it does)
ACTIONS: dict[str, tuple[type[Settings], str]] = {
    "run": (BenchRunSettings, "measure any OpenAI-compatible server"),
    "list": (BenchListSettings, "the newest result of each key"),
    "show": (BenchShowSettings, "one result with its curve and history"),
    "compare": (BenchCompareSettings, "two results, quantity by quantity"),
}


async def run(settings: Settings) -> int:
    """The action these settings belong to; the exit code."""
    match settings:
        case BenchRunSettings():
            return await measuring.run(settings)
        case ResultsSettings():
            return await recalling.run(settings)
        case _:
            raise TypeError(f"{type(settings).__name__} belongs to no action of flexinfer bench")
