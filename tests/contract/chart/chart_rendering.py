"""What the tests of the chart share: the values they render it with, and looking things up in the result."""

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
Render = Callable[..., list[Object]]
Refuse = Callable[..., str]

EVERYTHING = (
    "--set", "webhook.enabled=true", "--set", "globalProxy.enabled=true",
    "--set", "globalProxy.clusters.east=https://proxy.east.example.com",
    "--set", "globalProxy.weights.east=2", "--set", "globalProxy.failoverOrder={east}",
    "--set", "nats.replicas=3", "--set", "scheduler.namespace=kube-system",
    "--set", "scheduler.tls.enabled=true", "--set", "scheduler.tls.existingSecret=extender-tls",
    "--set", "metrics.serviceMonitors.enabled=true", "--set", "metrics.rules.enabled=true",
    "--set", "metrics.dashboards.enabled=true", "--set", "agent.nodes=gpu", "--set", "agent.hostAccess=privileged",
    "--set", "agent.cloudNotices=aws", "--set", "proxy.apiKeys.existingSecret=keys",
    "--set", "dashboard.token.existingSecret=token", "--set", "manager.watchNamespace=models",
    "--set", "fetch.nodeCache=/var/lib/flexinfer", "--set", "fetch.limitGb=1500.5",
    "--api-versions", "monitoring.coreos.com/v1",
)  # fmt: skip
VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "everything": EVERYTHING,
    "least": (
        "--set", "agent.enabled=false", "--set", "dashboard.enabled=false", "--set", "crds.install=false",
        "--set", "networkPolicies.enabled=false", "--set", "podDisruptionBudgets.enabled=false",
        "--set", "priorityClasses.create=false", "--set", "tests.enabled=false",
        "--set", "nats.persistence.enabled=false", "--set", "nats.auth.enabled=false",
        "--set", "nats.tls.enabled=false",
        "--set", "scheduler.kubeScheduler.enabled=false",
    ),
    "external": (
        "--set", "nats.enabled=false", "--set", "externalNats.url=tls://bus.example.com:4443",
        "--set", "externalNats.credentialsSecret=bus", "--set", "externalNats.caSecret=bus-ca",
        "--set", "externalNats.calloutSecret=bus-callout",
        "--set", "globalProxy.enabled=true", "--set", "agent.hostAccess=chroot", "--set", "agent.hostPort=0",
    ),
    "own-secrets": (
        "--set", "nats.auth.create=false", "--set", "nats.tls.create=false", "--set", "nats.tls.existingSecret=mine",
        "--set", "agent.hostNotices=false", "--set", "image.registry=registry.example.com/ai",
        "--set", "image.tag=1.2.3", "--set", "image.pullSecrets={pull}", "--set", "commonLabels.team=ai",
    ),
}  # fmt: skip


def one(objects: list[Object], kind: str, name: str, namespace: str | None = None) -> Object:
    """The object of that kind and name."""
    [found] = [
        obj for obj in objects
        if (obj["kind"], obj["metadata"]["name"]) == (kind, name)
        and namespace in (None, obj["metadata"].get("namespace"))
    ]  # fmt: skip
    return found


def pods(objects: list[Object]) -> list[tuple[str, Object]]:
    """(name, pod spec with its metadata under ``_meta``) of every workload and hook."""
    found = []
    for obj in objects:
        if obj["kind"] in ("Deployment", "DaemonSet", "StatefulSet", "Job"):
            template = obj["spec"]["template"]
            found.append((obj["metadata"]["name"], {**template["spec"], "_meta": template["metadata"]}))
        elif obj["kind"] == "Pod":
            found.append((obj["metadata"]["name"], {**obj["spec"], "_meta": obj["metadata"]}))
    return found
