"""Logs of pods on any node of this machine: the real one and the virtual ones have a runner each."""

from collections.abc import Mapping

from flexinfer.local.kubeapi.store import Store
from flexinfer.local.runner import ProcessRunner


class NodeLogs:
    """Answers ``pods/log`` from the runner of the pod's node; ``runners`` by node name."""

    def __init__(self, store: Store, runners: dict[str, ProcessRunner]) -> None:
        self._store = store
        self.runners = runners

    async def read(self, namespace: str, pod: str, container: str, query: Mapping[str, str]) -> bytes:
        """Raises LookupError with a sentence."""
        found = self._store.get("pods", (namespace, pod))
        node = str(found.obj["spec"].get("nodeName") or "") if found else ""
        runner = self.runners.get(node)
        if runner is None:
            raise LookupError(f"pod {namespace}/{pod} is on no node of this machine")
        return await runner.log_source(namespace, pod, container, query)
