"""An API server that has our CRDs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.kubernetes import CRDS
from flexinfer.local.kubeapi import EmbeddedApi


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[KubeClient]:
    server = await EmbeddedApi(controllers=False).start()
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    client = await KubeClient.connect(path)
    for crd in crd_manifests():
        await client.patch(CRDS, crd["metadata"]["name"], crd, kind="apply", field_manager="test")
    yield client
    await client.aclose()
    await server.stop()
