"""``flexinfer logs``: what components and engines wrote, by the names people use."""

import sys

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.credentials import KubeconfigError
from flexinfer.config.people import LogsSettings
from flexinfer.contracts.kubernetes import PODS, Object
from flexinfer.ports import KubeError, KubeUnavailable
from flexinfer.runtime.process import fail

_COMPONENT = "app.kubernetes.io/component"
_NAME = "app.kubernetes.io/name"


async def run(settings: LogsSettings) -> int:
    """Print the newest lines of each pod that ``what`` names; 1 if there is none or the cluster cannot be asked."""
    try:
        client = await KubeClient.connect(settings.kubeconfig)
    except KubeconfigError as err:
        return fail(f"flexinfer logs: {err}")
    try:
        return await _print(settings, client)
    except (KubeError, KubeUnavailable) as err:
        return fail(f"flexinfer logs: {err}")
    finally:
        await client.aclose()


async def _print(settings: LogsSettings, client: KubeClient) -> int:
    pods = list((await client.list(PODS)).items)
    found = [pod for pod in pods if meant(pod, settings.what)]
    if not settings.what or not found:
        names = ", ".join(sorted({name for pod in pods for name in names_of(pod)})) or "none"
        what = f"nothing is called {settings.what!r}" if settings.what else "name a component, model or pod"
        return fail(f"flexinfer logs: {what}; there are: {names}", 1 if settings.what else 2)
    code = 0
    for pod in found:
        meta = pod["metadata"]
        if len(found) > 1:
            sys.stdout.write(f"==> {meta['namespace']}/{meta['name']}\n")
        for container in _containers(pod, settings.container):
            try:
                text = await client.logs(meta["namespace"], meta["name"], container, settings.tail)
            except KubeError as err:
                code = fail(f"flexinfer logs: {meta['namespace']}/{meta['name']} {container}: {err}")
                continue
            sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
    return code


def _containers(pod: Object, wanted: str) -> list[str]:
    spec = pod.get("spec") or {}
    names = [str(part["name"]) for part in spec.get("containers") or ()]
    return [name for name in names if not wanted or name == wanted] or [wanted]


def names_of(pod: Object) -> set[str]:
    """What people call a pod of ours: its component, or its model; empty for others."""
    labels = pod["metadata"].get("labels") or {}
    found = {str(labels[_COMPONENT])} if _COMPONENT in labels and _ours(labels) else set()
    name = str(labels.get(_NAME, ""))
    if _ours(labels) and name.startswith("flexinfer-"):
        found.add(name.removeprefix("flexinfer-"))
    model = (pod["metadata"].get("annotations") or {}).get("flexinfer.ai/model")
    return found | ({str(model)} if model else set())


def _ours(labels: Object) -> bool:
    return labels.get("app.kubernetes.io/part-of") == "flexinfer" or labels.get(_NAME) == "flexinfer"


def meant(pod: Object, what: str) -> bool:
    """Whether ``what`` is the pod's component, model, name, or the beginning of its name."""
    name = str(pod["metadata"]["name"])
    bare = what.removeprefix("pod/").removeprefix("model/")
    return bool(bare) and (bare in names_of(pod) or name == bare or name.startswith(f"{bare}-"))
