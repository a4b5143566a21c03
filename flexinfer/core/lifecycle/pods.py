"""The engine as a container and as a pod template, shared by Deployments and benchmark Jobs."""

import math
from dataclasses import dataclass, replace
from typing import Any

from flexinfer.contracts import labels as known
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines import CPU, ENGINES, Engine, Launch, Program
from flexinfer.core.lifecycle.fetch_step import (
    adapter_paths,
    cache_affinity,
    cache_entries,
    fetch_steps,
    secret_environment,
    secret_volume,
)
from flexinfer.core.lifecycle.fold_results import ENGINE_CONTAINER
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.volumes import Weights, weights

CONTAINER = ENGINE_CONTAINER
PROBE_SECONDS = 2
PRIORITY = "flexinfer.ai/priority"
_SHM = "dshm"


@dataclass(frozen=True, slots=True)
class Placement:
    """What one replica gets: vendor NVIDIA, AMD, INTEL or CPU, and how many accelerators."""

    vendor: str
    count: int


@dataclass(frozen=True, slots=True)
class EnginePod:
    """Parts of a pod that runs the engine."""

    container: Object
    prepare: tuple[Object, ...]
    volumes: tuple[Object, ...]
    annotations: dict[str, str]
    tolerations: tuple[Object, ...] = ()
    runtime_class: str = ""


def port_of(wanted: Description) -> int:
    """Port the engine listens on."""
    return wanted.port or ENGINES[wanted.backend].port


def image_of(wanted: Description, vendor: str, policy: Policy) -> str | None:
    """Image for a vendor: the user's, the manager's setting, the engine's own; None if there is none."""
    configured = policy.images.get(wanted.backend, {}).get(vendor, "")
    return wanted.image or configured or ENGINES[wanted.backend].images.get(vendor)


def engine_pod(wanted: Description, place: Placement, image: str, policy: Policy) -> EnginePod:
    """The engine container and what it needs around it."""
    engine = ENGINES[wanted.backend]
    where = weights(wanted, policy)
    # On one machine pods share ports, so each listens on its own loopback address; in a cluster on all, so that
    # port-forward works.
    host = "$(POD_IP)" if policy.node_local else "0.0.0.0"  # noqa: S104 - inside a pod's own network namespace
    launch = Launch(
        wanted, place.vendor, place.count, host, port_of(wanted), where.model_path, where.cache_path, where.fetched,
        adapter_paths(wanted, policy),
    )  # fmt: skip
    volumes, mounts = [*where.volumes, *secret_volume(wanted, policy)], list(where.mounts)
    if engine.shared_memory and place.count > 1:
        volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": _SHM, "mountPath": "/dev/shm"})  # noqa: S108 - where NCCL looks
    program = engine.launch(launch)
    program = replace(program, env=(*program.env, *secret_environment(wanted, policy)))
    container = {
        **_program(CONTAINER, image, program, wanted, mounts),
        "ports": [{"name": "http", "containerPort": launch.port, "protocol": "TCP"}],
        "resources": resources(wanted, place),
        **_probes(engine, wanted, launch.port),
    }
    prepared = engine.prepare(launch)
    first = fetch_steps(wanted, where, policy)
    if prepared is not None:
        first = (*first, _prepare(image, prepared, wanted, where, place))
    entries = cache_entries(wanted, policy)
    return EnginePod(
        container,
        first,
        tuple(volumes),
        pod_annotations(wanted, place) | ({known.POD_CACHE_ENTRY: entries} if entries else {}),
        device_tolerations(place),
        policy.runtime_classes.get(place.vendor, "") if place.count else "",
    )


def device_tolerations(place: Placement) -> tuple[Object, ...]:
    """Nodes with accelerators are tainted by the name of their resource on many clouds, so that only pods that ask
    for one come there; the admission plugin that adds this toleration is off by default."""
    if not place.count or place.vendor == CPU:
        return ()
    names = [name for name, vendor in known.GPU_RESOURCE_VENDOR.items() if vendor == place.vendor]
    return tuple({"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in names)


def _prepare(image: str, program: Program, wanted: Description, where: Weights, place: Placement) -> Object:
    container = _program("prepare", image, program, wanted, list(where.mounts))
    plain = {kind: _without_devices(part) for kind, part in resources(wanted, place).items()}
    return {**container, "resources": plain}


def _program(name: str, image: str, program: Program, wanted: Description, mounts: list[Object]) -> dict[str, Any]:
    own = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, *program.env]
    user = {entry["name"] for entry in wanted.env}
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "args": list(program.args),
        "env": [entry for entry in own if entry["name"] not in user] + [dict(entry) for entry in wanted.env],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if program.command:
        container["command"] = list(program.command)
    if mounts:
        container["volumeMounts"] = mounts
    return container


def _probes(engine: Engine, wanted: Description, port: int) -> dict[str, Any]:
    check: Object = (
        {"httpGet": {"path": engine.health, "port": port}} if engine.health else {"tcpSocket": {"port": port}}
    )
    # Loading takes as long as a request may wait for it, and never less than the engine needs for a first start.
    patience = max(wanted.scale.cold_start_seconds, engine.startup_seconds)
    return {
        "startupProbe": {**check, "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": math.ceil(patience)},
        "readinessProbe": {**check, "periodSeconds": PROBE_SECONDS, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**check, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def resources(wanted: Description, place: Placement) -> dict[str, dict[str, str]]:
    """Requests and limits: the user's, else from the model's size, so that quotas count every pod."""
    size = math.ceil((wanted.demand.vram_mb or 2000) * 1.0)
    requests = {"cpu": "500m", "memory": f"{_mi(size)}Mi"}
    limits = {"cpu": "8", "memory": f"{max(2 * _mi(size), 2048)}Mi"}
    requests |= wanted.requests
    limits |= wanted.limits
    for name in ("cpu", "memory"):
        if name in wanted.limits and name not in wanted.requests:
            requests[name] = limits[name]
        if name in wanted.requests and name not in wanted.limits:
            limits.pop(name)
    if place.count and place.vendor != CPU:
        device = known.GPU_RESOURCES[place.vendor]
        requests[device] = limits[device] = str(place.count)
    return {"requests": requests, "limits": limits}


def _mi(megabytes: int) -> int:
    return math.ceil(megabytes * 1e6 / 2**20)


def _without_devices(part: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in part.items() if name not in known.GPU_RESOURCE_VENDOR}


def pod_annotations(wanted: Description, place: Placement) -> dict[str, str]:
    """What the scheduler extender reads."""
    demand = wanted.demand
    found = {
        known.POD_MODEL: wanted.key.name,
        known.POD_BACKEND: wanted.backend,
        known.POD_BENCHMARK_KEY: wanted.workload,
    }
    if place.vendor == CPU:
        found[known.POD_VENDOR] = CPU
    else:
        found[known.POD_VENDOR] = place.vendor
        if demand.vram_mb:
            found[known.POD_VRAM_ESTIMATE] = str(demand.vram_mb)
        if demand.arch:
            found[known.POD_ARCH] = demand.arch
    if demand.quantization:
        found[known.POD_QUANTIZATION] = demand.quantization
    if wanted.priority is not None:
        found[PRIORITY] = str(wanted.priority)
    return found


def pod_spec(engine: EnginePod, wanted: Description, policy: Policy) -> dict[str, Any]:
    """Everything of a pod spec but its containers."""
    spec: dict[str, Any] = {
        "schedulerName": policy.scheduler_name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 30,
    }
    if engine.volumes:
        spec["volumes"] = [dict(volume) for volume in engine.volumes]
    if wanted.node_selector:
        spec["nodeSelector"] = dict(wanted.node_selector)
    nearby = cache_affinity(wanted, policy)
    if nearby:
        spec["affinity"] = {"nodeAffinity": nearby}
    if engine.runtime_class:
        spec["runtimeClassName"] = engine.runtime_class
    tolerations = [*wanted.tolerations, *(entry for entry in engine.tolerations if entry not in wanted.tolerations)]
    if tolerations:
        spec["tolerations"] = [dict(entry) for entry in tolerations]
    return spec
