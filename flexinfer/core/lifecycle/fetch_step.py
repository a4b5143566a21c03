"""The init step that puts weights where the engine is told they are, or says why it cannot."""

from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import DEFAULT_PREFIX, cached_label
from flexinfer.core.lifecycle.description import Adapter, Description
from flexinfer.core.lifecycle.engines import ENGINES
from flexinfer.core.lifecycle.fetching.entries import FETCHED, Form, entry_of
from flexinfer.core.lifecycle.fetching.failures import CONTAINER
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.volumes import VOLUME, Weights, fetches

SECRET_VOLUME, SECRET_PATH = "source-secret", "/run/flexinfer/source-secret"
# What a user may set for a mirror or a way out, under the names such programs have agreed on.
_PASSED_ON = frozenset(
    {"HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}
)
_FETCHABLE_ADAPTERS = frozenset({"hf"})


def fetch_steps(wanted: Description, where: Weights, policy: Policy) -> tuple[Object, ...]:
    """Init containers: one for the model, one for each adapter that is fetched; for weights that are used where they
    lie, one that looks. None where the manager has no image for them."""
    if not policy.fetch_image:
        return ()
    if where.fetched:
        form = ENGINES[wanted.backend].form
        steps = [_step(wanted, policy, CONTAINER, wanted.source.text, form, writes=True)]
        steps += [
            _step(wanted, policy, f"{CONTAINER}-{number}", adapter.source.text, "folder", writes=True)
            for number, adapter in enumerate(_fetched_adapters(wanted), 1)
        ]
        return tuple(steps)
    if where.model_path and wanted.source.scheme not in FETCHED:
        return (_step(wanted, policy, CONTAINER, where.model_path, "folder", writes=False),)
    return ()


def adapter_paths(wanted: Description, policy: Policy) -> dict[str, str]:
    """Where fetched adapters lie, by name."""
    if not fetches(wanted, policy):
        return {}
    root = policy.model_path
    return {one.name: f"{root}/{entry_of(one.source, 'folder').path}" for one in _fetched_adapters(wanted)}


def cache_entries(wanted: Description, policy: Policy) -> str:
    """The annotation's value; empty for pods that use nothing of a node's cache."""
    if not fetches(wanted, policy):
        return ""
    sources = [(wanted.source, ENGINES[wanted.backend].form)]
    sources += [(one.source, "folder") for one in _fetched_adapters(wanted)]
    return ",".join(entry_of(source, form).name for source, form in sources)


def cache_affinity(wanted: Description, policy: Policy) -> Object:
    """Pods rather go where their model is already, so that equal nodes do not each fetch it. By a label that agents
    set, never by names of nodes: those change, and a changed template would restart every replica. Empty where no
    cache is shared by a node's pods."""
    shared = policy.node_cache and wanted.storage.kind == "none"
    if not shared or not fetches(wanted, policy):
        return {}
    name = cached_label(entry_of(wanted.source, ENGINES[wanted.backend].form).name)
    here = {"key": f"{DEFAULT_PREFIX}{name}", "operator": "Exists"}
    term = {"weight": 100, "preference": {"matchExpressions": [here]}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [term]}


def secret_volume(wanted: Description, policy: Policy) -> tuple[Object, ...]:
    """Optional, because only a container that runs can say that it is missing."""
    if not wanted.source_secret or not fetches(wanted, policy) or policy.node_local:
        return ()
    return ({"name": SECRET_VOLUME, "secret": {"secretName": wanted.source_secret, "optional": True}},)


def secret_environment(wanted: Description, policy: Policy) -> tuple[Object, ...]:
    """For engines that download by themselves: the hub's token under the name they read."""
    if not wanted.source_secret or fetches(wanted, policy) or wanted.source.scheme != "hf":
        return ()
    reference = {"secretKeyRef": {"name": wanted.source_secret, "key": "token"}}
    return ({"name": "HF_TOKEN", "valueFrom": reference},)


def _fetched_adapters(wanted: Description) -> list[Adapter]:
    return [one for one in wanted.adapters if one.source.scheme in _FETCHABLE_ADAPTERS]


def _step(wanted: Description, policy: Policy, name: str, source: str, form: Form, *, writes: bool) -> Object:
    env: list[Object] = [
        {"name": "MODEL_CACHE_PATH", "value": policy.model_path},
        {"name": "FLEXINFER_FORM", "value": form},
    ]
    env += [dict(entry) for entry in wanted.env if entry["name"] in _PASSED_ON]
    mounts: list[Object] = []
    if not policy.node_local:
        mounts = [{"name": VOLUME, "mountPath": policy.model_path, **({} if writes else {"readOnly": True})}]
    if writes and secret_volume(wanted, policy):
        env += [
            {"name": "FLEXINFER_SECRET_DIR", "value": SECRET_PATH},
            {"name": "FLEXINFER_SECRET_NAME", "value": wanted.source_secret},
        ]
        mounts.append({"name": SECRET_VOLUME, "mountPath": SECRET_PATH, "readOnly": True})
    # A directory of the node is made by the kubelet and belongs to root.
    owner = {"runAsUser": 0} if writes and policy.node_cache and wanted.storage.kind == "none" else {}
    return {
        "name": name,
        "image": policy.fetch_image,
        "command": ["flexinfer-fetch"],
        "args": [source],
        "env": env,
        "volumeMounts": mounts,
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "2", "memory": "1Gi"},
        },
        "terminationMessagePolicy": "File",
        "securityContext": {
            **owner,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
