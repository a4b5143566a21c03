"""``docs/phases.md``, drawn from the tables."""

from flexinfer.core.lifecycle.phases import MEANING, TRANSITIONS


def mermaid() -> str:
    """The transitions as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {previous or '[*]'} --> {following}: {why}" for (previous, following), why in TRANSITIONS.items()]
    return "\n".join([*lines, "    Terminating --> [*]: children gone, finalizer removed"])


def phases_page() -> str:
    """The whole page."""
    rows = [f"| `{phase}` | {meaning} |" for phase, meaning in MEANING.items()]
    return "\n".join(
        [
            "# Phases of a model",
            "",
            "Generated from `flexinfer/core/lifecycle/phases.py` by `python deploy/generate.py`.",
            "",
            "| Phase | Meaning |",
            "|---|---|",
            *rows,
            "",
            "```mermaid",
            mermaid(),
            "```",
            "",
        ]
    )
