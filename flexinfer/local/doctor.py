"""``flexinfer doctor``: the agent's examination of this machine, and what one-machine mode and a cluster need."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.apps.agent import examine
from flexinfer.config.agent import AgentSettings
from flexinfer.config.people import DoctorSettings
from flexinfer.contracts.kubernetes import NODES
from flexinfer.core.hardware.report import table
from flexinfer.local import running
from flexinfer.local.demo_model import DemoModelMissing, find_demo_model
from flexinfer.local.nats_server import BusNotInstalled, find_binary
from flexinfer.ports import BusUnavailable, KubeError, KubeUnavailable
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected

Check = dict[str, str]


async def run(settings: DoctorSettings) -> int:
    """Print; exit code 0 if nothing that was asked for is broken."""
    found = await examine(AgentSettings(root=settings.root, host_root=settings.host_root))
    checks = [*_parts(), await _bus(settings.nats_url), await _cluster(settings.kubeconfig)]
    document: dict[str, Any] = {**found, "checks": checks}
    if settings.output == "text":
        sys.stdout.write(table(found) + "\n" + _lines(checks))
    else:
        text = msgspec.json.encode(document).decode() if settings.output == "json" else yaml.safe_dump(document)
        sys.stdout.write(text.rstrip() + "\n")
    return 1 if any(check["state"] == "broken" for check in checks) else 0


def _check(name: str, state: str, detail: str) -> Check:
    return {"name": name, "state": state, "detail": detail}


def _parts() -> list[Check]:
    """The parts of one-machine mode; missing ones are no fault, they say how to get them."""
    checks = []
    try:
        checks.append(_check("nats-server", "ok", find_binary()))
    except BusNotInstalled as err:
        checks.append(_check("nats-server", "missing", str(err)))
    engine = importlib.util.find_spec("xllamacpp") is not None
    checks.append(
        _check("engine", "ok" if engine else "missing", "xllamacpp" if engine else "pip install 'flexinfer[local]'")
    )
    try:
        checks.append(_check("demo model", "ok", str(find_demo_model())))
    except DemoModelMissing as err:
        checks.append(_check("demo model", "missing", str(err)))
    return checks


async def _bus(url: str) -> Check:
    note = running.find()
    address = url or (note.nats_url if note else "")
    if not address:
        return _check("bus", "not asked", "no flexinfer up runs here and no --nats-url was given")
    bus = await NatsBus.start(address, name="doctor", clock=SystemClock())
    try:
        await wait_connected(bus, address, 3)
    except BusUnavailable as err:
        return _check("bus", "broken", str(err))
    finally:
        await bus.close()
    return _check("bus", "ok", address)


async def _cluster(kubeconfig: Path | None) -> Check:
    if kubeconfig is None:
        return _check("cluster", "not asked", "no --kubeconfig and no KUBECONFIG was given")
    try:
        api = await KubeClient.connect(kubeconfig)
    except OSError as err:
        return _check("cluster", "broken", str(err))
    try:
        nodes = await api.list(NODES)
    except (KubeError, KubeUnavailable) as err:
        return _check("cluster", "broken", str(err))
    finally:
        await api.aclose()
    return _check("cluster", "ok", f"{len(nodes.items)} node(s) at {api.server}")


def _lines(checks: list[Check]) -> str:
    width = max(len(check["name"]) for check in checks)
    rows = [f"  {check['name']:<{width}}  {check['state']:<9}  {check['detail']}" for check in checks]
    return "\n".join(["THIS MACHINE", *rows]) + "\n"
