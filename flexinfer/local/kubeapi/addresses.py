"""Cluster IPs of Services. Nothing listens on them here; they exist because clients expect a Service to have one."""

import ipaddress

from flexinfer.local.kubeapi.errors import Cause, wrong
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, at
from flexinfer.local.kubeapi.store import Store

_RANGE = ipaddress.ip_network("10.96.0.0/16")


class ClusterAddresses:
    """An admission hook that gives each new Service a free address of the range."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = 1

    def admit(self, kind: Kind, obj: Json) -> list[Cause]:
        """Allocate, in place; an address the user chose must be free and in the range."""
        if kind.bucket != "services" or at(obj, "spec", "type") == "ExternalName":
            return []
        spec = obj["spec"]
        chosen = spec.get("clusterIP")
        taken = {at(service.obj, "spec", "clusterIP") for service in self._store.list("services")}
        if not chosen:
            spec["clusterIP"] = chosen = self._free(taken)
        elif chosen != "None":
            why = _refusal(chosen, taken)
            if why:
                return [wrong("spec.clusterIPs", [chosen], why)]
        spec["clusterIPs"] = [chosen]
        return []

    def _free(self, taken: set[str]) -> str:
        while True:
            self._next = self._next % (_RANGE.num_addresses - 2) + 1
            address = str(_RANGE[self._next])
            if address not in taken:
                return address


def _refusal(address: str, taken: set[str]) -> str:
    try:
        inside = ipaddress.ip_address(address) in _RANGE
    except ValueError:
        return "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    if not inside:
        return f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {_RANGE}"
    return "provided IP is already allocated" if address in taken else ""
