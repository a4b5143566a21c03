"""Every example is accepted by the API server and understood by the manager, without a remark."""

from pathlib import Path

import pytest
import yaml

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.kubernetes import MODELDEPLOYMENTS, MODELS
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.reading import describe

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted([*(ROOT / "deploy" / "examples").glob("*.yaml"), ROOT / "flexinfer/local/examples/smollm2.yaml"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_an_example_works(api: KubeClient, path: Path) -> None:
    body = yaml.safe_load(path.read_text())  # noqa: ASYNC240 - one small file
    kind = MODELS if body["kind"] == MODELS.kind else MODELDEPLOYMENTS
    stored = await api.create(kind, body, body["metadata"]["namespace"])
    found = describe(stored)

    assert isinstance(found, Description), found
    assert found.ignored == ()
