"""An API server that has our CRDs: the embedded one, or the one ``CONTRACT_KUBECONFIG`` names."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.kubernetes import CRDS, MODELDEPLOYMENTS, MODELS
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.ports import NotFound


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[KubeClient]:
    given = os.environ.get("CONTRACT_KUBECONFIG")
    async with AsyncExitStack() as stack:
        path = Path(given) if given else tmp_path / "kubeconfig"
        if not given:
            server = await EmbeddedApi(controllers=False).start()
            stack.push_async_callback(server.stop)
            server.write_kubeconfig(path)
        client = await KubeClient.connect(path, timeout=60.0 if given else 10.0)
        stack.push_async_callback(client.aclose)
        for crd in crd_manifests():
            await client.patch(CRDS, crd["metadata"]["name"], crd, kind="apply", field_manager="test")
        if given:
            await _clean(client)
        yield client
        if given:
            await _clean(client)


async def _clean(client: KubeClient) -> None:
    """Wait until both kinds are served, and remove what a test left."""
    for kind in (MODELS, MODELDEPLOYMENTS):
        async with asyncio.timeout(60):
            while True:
                try:
                    found = (await client.list(kind, "default")).items
                except NotFound:  # a fresh CRD takes a moment
                    await asyncio.sleep(0.1)
                    continue
                break
        for item in found:
            if not item["metadata"].get("finalizers"):
                with suppress(NotFound):
                    await client.delete(kind, item["metadata"]["name"], "default")
