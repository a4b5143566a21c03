"""``flexinfer clean``: removes what an uninstalled release left on nodes and models. The chart's last hook runs it."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.credentials import KubeconfigError
from flexinfer.config.people import CleanSettings
from flexinfer.contracts.kubernetes import MODELDEPLOYMENTS, MODELS, NODES, PODS, Object, Resource
from flexinfer.core.lifecycle.leftovers import model_patch, node_patch
from flexinfer.ports import Conflict, KubeApi, KubeError, KubeUnavailable, NotFound
from flexinfer.runtime.process import fail

# Those that would write it again.
WRITERS = "app.kubernetes.io/part-of=flexinfer,app.kubernetes.io/component in (agent,manager)"
AT_ONCE = 16
TRIES = 5


async def run(settings: CleanSettings) -> int:
    """Exit code: 1 if something could not be done, and the sentence says what."""
    try:
        client = await KubeClient.connect(settings.kubeconfig)
    except KubeconfigError as err:
        return fail(f"flexinfer clean: {err}")
    try:
        return await (_refuse(settings, client) if settings.refuse_models else _clean(settings, client))
    except (KubeError, KubeUnavailable) as err:
        return fail(f"flexinfer clean: {err}")
    finally:
        await client.aclose()


async def _refuse(settings: CleanSettings, api: KubeApi) -> int:
    found = [_named(obj) for _resource, obj in await _models(settings, api)]
    if not found:
        return 0
    return fail(
        f"flexinfer clean: the CRDs would take {len(found)} model(s) along: {', '.join(found[:10])}. "
        "Delete them, or keep the CRDs (crds.keep=true)"
    )


async def _clean(settings: CleanSettings, api: KubeApi) -> int:
    writers = await _writers(settings, api)
    still = [pod["metadata"]["name"] for pod in writers if not pod["metadata"].get("deletionTimestamp")]
    if still:
        return fail(
            f"flexinfer clean: {', '.join(still)} still run(s) in {settings.namespace}; uninstall the release first"
        )
    if writers:
        _say(f"{len(writers)} pod(s) have not ended; their nodes may be away")
    gate = asyncio.Semaphore(AT_ONCE)
    steps: list[Coroutine[None, None, None]] = [
        _node(settings, api, node, gate) for node in (await api.list(NODES)).items
    ]
    steps += [_model(settings, api, resource, obj, gate) for resource, obj in await _models(settings, api)]
    failed = [err for err in await asyncio.gather(*steps, return_exceptions=True) if err is not None]
    for err in failed:
        if not isinstance(err, KubeError | KubeUnavailable):
            raise err
        fail(f"flexinfer clean: {err}")
    return 1 if failed else 0


async def _writers(settings: CleanSettings, api: KubeApi) -> Sequence[Object]:
    """Agents and managers that are left when none is or the time is over."""
    deadline = asyncio.get_running_loop().time() + settings.wait
    while True:
        found = (await api.list(PODS, settings.namespace, labels=WRITERS)).items
        if not found or asyncio.get_running_loop().time() >= deadline:
            return found
        await asyncio.sleep(1.0)


async def _models(settings: CleanSettings, api: KubeApi) -> list[tuple[Resource, Object]]:
    found: list[tuple[Resource, Object]] = []
    for resource in (MODELS, MODELDEPLOYMENTS):
        try:
            page = await api.list(resource, settings.watch_namespace or None)
        except NotFound:  # its CRD went with the release
            continue
        found += [(resource, obj) for obj in page.items]
    return found


async def _node(settings: CleanSettings, api: KubeApi, node: Object, gate: asyncio.Semaphore) -> None:
    patch, name = node_patch(node, settings.label_prefix), node["metadata"]["name"]
    if patch is None:
        return
    if not settings.dry_run:
        async with gate:
            try:
                await api.patch(NODES, name, patch)
            except NotFound:
                return
    keys = sorted(key for part in patch["metadata"].values() for key in part)
    _say(f"node {name}: {_done(settings)} {', '.join(keys)}")


async def _model(
    settings: CleanSettings, api: KubeApi, resource: Resource, obj: Object, gate: asyncio.Semaphore
) -> None:
    """Look again and try again where it changed meanwhile. Raises Conflict after a few times."""
    name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
    async with gate:
        for left in reversed(range(TRIES)):
            patch = model_patch(obj)
            if patch is None:
                return
            try:
                if not settings.dry_run:
                    await api.patch(resource, name, patch, namespace)
                break
            except NotFound:
                return
            except Conflict:
                if not left:
                    raise
                obj = await api.get(resource, name, namespace)
    after = "it ends now" if obj["metadata"].get("deletionTimestamp") else "it stays, and can be deleted"
    _say(f"{_named(obj)}: {_done(settings)} the finalizer; {after}")


def _named(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _done(settings: CleanSettings) -> str:
    return "would remove" if settings.dry_run else "removed"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
