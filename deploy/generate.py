"""Write the files made from code: ``python deploy/generate.py``. A test fails when one of them is stale."""  # noqa: INP001 - a script

from pathlib import Path

import yaml

from flexinfer.contracts.crds import crd_manifests
from flexinfer.core.lifecycle.diagram import phases_page

ROOT = Path(__file__).resolve().parents[1]
_HEADER = "# Generated from flexinfer/contracts/crds by deploy/generate.py.\n"


def generated() -> dict[Path, str]:
    """Path and content of every generated file."""
    files = {
        ROOT / "deploy" / "crds" / f"{crd['metadata']['name']}.yaml": _HEADER
        + yaml.safe_dump(crd, sort_keys=False, width=120)
        for crd in crd_manifests()
    }
    files[ROOT / "docs" / "phases.md"] = phases_page()
    return files


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
