"""The Kubernetes objects that belong to a virtual node."""

from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import COST_ANNOTATION, DEFAULT_PREFIX, GPU_RESOURCES, VIRTUAL_LABEL
from flexinfer.testing.virtual.declared import VirtualNode


def resources_of(node: VirtualNode) -> dict[str, str]:
    """Extended resources and the size of the node, as the Node object tells them."""
    found = {"cpu": str(node.cpu.threads), "memory": f"{node.cpu.memory}Mi"}
    for gpu in node.gpus:
        name = GPU_RESOURCES[gpu.vendor]
        found[name] = str(int(found.get(name, "0")) + gpu.count)
    return found


def node_object(node: VirtualNode) -> Object:
    """The Node as an API server would show it, without what no decision reads."""
    meta: Object = {"name": node.name, "labels": {DEFAULT_PREFIX + VIRTUAL_LABEL: "true"}}
    if node.cost is not None:
        meta["annotations"] = {DEFAULT_PREFIX + COST_ANNOTATION: f"{node.cost:g}"}
    capacity = {**resources_of(node), "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": meta,
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }  # fmt: skip
