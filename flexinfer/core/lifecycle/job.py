"""The benchmark Job: the engine as a native sidecar, and the bench process that sends it real requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flexinfer.contracts.kubernetes import JOBS, Object
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.fit import HOSTNAME, Option
from flexinfer.core.lifecycle.fold_results import BENCH_CONTAINER
from flexinfer.core.lifecycle.naming import BENCH_COMPONENT, child_labels, job_name, owner_reference
from flexinfer.core.lifecycle.pods import EnginePod, Placement, engine_pod, pod_annotations, pod_spec
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.view import BENCH_KEY, WORKLOAD

BACKOFF_LIMIT = 1  # attempts of one Job after the first; more rounds follow later, see benchmarks
TTL_SECONDS = 3600
IN_PLACE = "flexinfer.ai/measures-pod"
IMAGE_VARIABLE = "FLEXINFER_IMAGE"
BUS_VOLUME, BUS_FOLDER, BUS_TOKEN = "bus", "/var/run/secrets/flexinfer.ai/bus", "token"
TOKEN_SECONDS = 3600  # the kubelet renews it before its end; shown at each connection to the bus

READY_SHARE, MEASURE_SHARE = 0.5, 0.4


@dataclass(frozen=True, slots=True)
class Run:
    """One benchmark to be made: the key of its result and what it measures."""

    key: str
    option: Option
    image: str
    in_place: str = ""  # name of a running replica that is measured instead of an engine of its own


def bench_job(wanted: Description, run: Run, policy: Policy) -> Object:
    """The Job in the model's namespace, pinned to the nodes of the class by affinity, never by nodeName."""
    place = Placement(run.option.vendor, run.option.count)
    pod = engine_pod(wanted, place, run.image, policy)
    labels = child_labels(wanted, BENCH_COMPONENT) | {BENCH_KEY: run.key}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": job_name(run.key),
            "namespace": wanted.key.namespace,
            "labels": labels,
            "annotations": {WORKLOAD: wanted.workload} | ({IN_PLACE: run.in_place} if run.in_place else {}),
            "ownerReferences": [owner_reference(wanted)],
        },
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            "activeDeadlineSeconds": int(policy.job_deadline),
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {
                "metadata": {"labels": labels, "annotations": _annotations(wanted, run, pod)},
                "spec": _spec(wanted, run, pod, policy),
            },
        },
    }


def _annotations(wanted: Description, run: Run, pod: EnginePod) -> dict[str, str]:
    if not run.in_place:
        return pod.annotations
    plain = pod_annotations(wanted, Placement("CPU", 0))
    return {name: value for name, value in plain.items() if name != "flexinfer.ai/benchmark-key"}


def _spec(wanted: Description, run: Run, pod: EnginePod, policy: Policy) -> dict[str, Any]:
    spec = pod_spec(pod, wanted, policy)
    spec["restartPolicy"] = "Never"
    spec["containers"] = [_bench(wanted, run, policy)]
    token = [_bus_token(policy)] if _shows_token(policy) else []
    volumes = token if run.in_place else [*spec.get("volumes", ()), *token]
    spec.pop("volumes", None)
    spec |= {"volumes": volumes} if volumes else {}
    if run.in_place:
        spec.pop("affinity", None)
        return spec
    spec["initContainers"] = [
        *(dict(entry) for entry in pod.prepare),
        {**_sidecar(pod.container), "restartPolicy": "Always"},
    ]
    hosts = {"key": HOSTNAME, "operator": "In", "values": list(run.option.hosts or run.option.nodes)}
    pinned = {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}
    nearby = spec.get("affinity", {}).get("nodeAffinity", {})
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pinned, **nearby}}
    return spec


def _sidecar(container: Object) -> dict[str, Any]:
    """Without the liveness probe: a benchmark is meant to load the engine until it answers late."""
    return {name: part for name, part in container.items() if name != "livenessProbe"}


def _bench(wanted: Description, run: Run, policy: Policy) -> Object:
    values = [{"name": name, "value": value} for name, value in bench_environment(wanted, run, policy).items()]
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    mounts = [{"name": BUS_VOLUME, "mountPath": BUS_FOLDER, "readOnly": True}] if _shows_token(policy) else []
    return {
        "name": BENCH_CONTAINER,
        "image": policy.benchmark_image,
        "command": ["flexinfer-bench"],
        "env": [*values, node],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "2", "memory": "512Mi"},
        },
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "runAsNonRoot": True,
        },
        **({"volumeMounts": mounts} if mounts else {}),
    }


def _shows_token(policy: Policy) -> bool:
    return bool(policy.nats_url and policy.token_audience)


def _bus_token(policy: Policy) -> Object:
    """For the bus alone: the API server takes no token of this audience."""
    token = {"audience": policy.token_audience, "expirationSeconds": TOKEN_SECONDS, "path": BUS_TOKEN}
    return {"name": BUS_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}


def measured_image(job: Object) -> str:
    """The engine image a Job measures, as its bench process is told."""
    spec = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    told = (entry for container in spec.get("containers") or [] for entry in container.get("env") or [])
    return next((str(entry.get("value") or "") for entry in told if entry.get("name") == IMAGE_VARIABLE), "")


def bench_environment(wanted: Description, run: Run, policy: Policy) -> Mapping[str, str]:
    """Settings of the bench process, by environment variable."""
    settings = wanted.measure.settings
    values = {
        "FLEXINFER_URL": policy.proxy_url,
        "FLEXINFER_MODEL": job_name(run.key),
        "FLEXINFER_KEY": run.key,
        "FLEXINFER_WORKLOAD": wanted.workload,
        IMAGE_VARIABLE: run.image,
        "FLEXINFER_DRIVER_MAJOR": run.option.driver_major,
        "FLEXINFER_MODEL_NAMESPACE": wanted.key.namespace,
        "FLEXINFER_MODEL_NAME": wanted.key.name,
        "FLEXINFER_SOURCE": wanted.source.text,
        "FLEXINFER_BACKEND": wanted.backend,
        "FLEXINFER_DEVICE_CLASS": run.option.device_class,
        "FLEXINFER_COST_PER_HOUR": "" if run.option.price is None else f"{run.option.price:g}",
        "FLEXINFER_WARMUP_ITERATIONS": str(settings.warmup_iterations),
        "FLEXINFER_ITERATIONS": str(settings.iterations),
        "FLEXINFER_MIN_DURATION": f"{settings.min_duration_seconds:g}",
        "FLEXINFER_BATCH_SIZE": str(settings.batch_size),
        "FLEXINFER_CONCURRENCY": ",".join(str(level) for level in settings.concurrency),
        # Both end before the Job's own deadline, which includes scheduling, so that a run says why it failed.
        "FLEXINFER_READY_TIMEOUT": f"{policy.job_deadline * READY_SHARE:g}",
        "FLEXINFER_TIME_LIMIT": f"{policy.job_deadline * MEASURE_SHARE:g}",
        "FLEXINFER_NOTE": f"measured on the running replica {run.in_place}: no other device" if run.in_place else "",
        "FLEXINFER_CLUSTER": policy.cluster,
        "NATS_URL": policy.nats_url,
        "FLEXINFER_NATS_CA_DATA": policy.nats_ca if policy.nats_url else "",
        "FLEXINFER_NATS_CREDENTIALS": f"{BUS_FOLDER}/{BUS_TOKEN}" if _shows_token(policy) else "",
    }
    return {name: value for name, value in values.items() if value}
