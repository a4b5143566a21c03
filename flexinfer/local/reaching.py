"""How a command finds the bus: an address, the ``flexinfer up`` on this machine, or a cluster by port-forward."""

import base64
import binascii
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.credentials import KubeconfigError
from flexinfer.adapters.kube.forward import PortForward
from flexinfer.config.people import ClientSettings
from flexinfer.contracts.kubernetes import CONFIGMAPS, PODS, SECRETS, Object
from flexinfer.local import running
from flexinfer.ports import KubeError, KubeUnavailable, NotFound

BUS_PORT = 4222
BUS_LABELS = "app.kubernetes.io/component=nats"
READER = "viewer"  # the user who may hear everything and say nothing


class NoSystem(Exception):
    """There is nothing to talk to; the text says what to do."""


@asynccontextmanager
async def reached(settings: ClientSettings, *, cluster_first: bool = False) -> AsyncIterator[ClientSettings]:
    """The settings with the address of a bus that can be asked while the block runs. Raises NoSystem."""
    if settings.nats_url:
        yield settings
        return
    note = None if cluster_first else running.find()
    if note is not None:
        yield settings.model_copy(update={"nats_url": note.nats_url, "cluster": note.cluster})
        return
    kubeconfig = settings.kubeconfig or _customary()
    if kubeconfig is None:
        raise NoSystem(
            "no flexinfer up is running on this machine and there is no kubeconfig; "
            "start one (make demo) or give --nats-url, NATS_URL or --kubeconfig"
        )
    async with _forwarded(settings, kubeconfig) as found:
        yield found


def _customary() -> Path | None:
    path = Path.home() / ".kube" / "config"
    return path if path.is_file() else None


@asynccontextmanager
async def _forwarded(settings: ClientSettings, kubeconfig: Path) -> AsyncIterator[ClientSettings]:
    try:
        client = await KubeClient.connect(kubeconfig)
    except KubeconfigError as err:
        raise NoSystem(str(err)) from err
    namespace = settings.release_namespace
    try:
        with tempfile.TemporaryDirectory(prefix="flexinfer-") as folder:
            pod = await _bus_pod(client, namespace)
            forward = PortForward(client, namespace, pod, BUS_PORT)
            port = await forward.start()
            try:
                ca = settings.nats_ca or await _ca(client, namespace, Path(folder))
                login = settings.nats_credentials or await _login(client, namespace, Path(folder))
                scheme = "tls" if ca else "nats"
                address = {"nats_url": f"{scheme}://127.0.0.1:{port}", "nats_ca": ca, "nats_credentials": login}
                yield settings.model_copy(update=address)
            finally:
                await forward.stop()
    except (KubeError, KubeUnavailable) as err:
        raise NoSystem(f"the cluster of {kubeconfig}: {err}") from err
    finally:
        await client.aclose()


async def _bus_pod(client: KubeClient, namespace: str) -> str:
    page = await client.list(PODS, namespace, labels=BUS_LABELS)
    ready = [pod for pod in page.items if (pod.get("status") or {}).get("phase") == "Running"]
    if not ready:
        raise NoSystem(
            f"no running bus in namespace {namespace}: no pod labelled {BUS_LABELS}; "
            "name it with --release-namespace, or give --nats-url"
        )
    return str(ready[0]["metadata"]["name"])


async def _ca(client: KubeClient, namespace: str, folder: Path) -> Path | None:
    for found in (await client.list(CONFIGMAPS, namespace, labels=BUS_LABELS)).items:
        text = (found.get("data") or {}).get("ca.crt")
        if text:
            path = folder / "ca.crt"
            path.write_text(text)
            return path
    return None


async def _login(client: KubeClient, namespace: str, folder: Path) -> Path | None:
    """The reader's credential, if the cluster has one and lets us read it."""
    try:
        secrets = (await client.list(SECRETS, namespace, labels=BUS_LABELS)).items
    except KubeError as err:
        if err.status in {401, 403}:
            raise NoSystem(
                f"the bus asks for credentials, and Secrets in {namespace} cannot be read: {err}; "
                "give --nats-credentials"
            ) from err
        if isinstance(err, NotFound):
            return None
        raise
    return _kept(secrets, folder)


def _kept(secrets: tuple[Object, ...], folder: Path) -> Path | None:
    for secret in secrets:
        text = (secret.get("data") or {}).get("credentials")
        if text and secret["metadata"]["name"].endswith(f"-{READER}"):
            try:
                value = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                continue
            path = folder / "credentials"
            path.touch(mode=0o600)
            path.write_bytes(value)
            return path
    return None
