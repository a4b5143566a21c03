"""Whatever is sent, the answer is an ApiError or an object, and the controllers go on."""

import contextlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexinfer.local.kubeapi.catalog import schema_for
from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.objects import clone
from flexinfer.local.kubeapi.registry import WriteOptions
from flexinfer.local.kubeapi.strategic import strategic_merge

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
CONTAINER = {
    "name": "c",
    "image": "i",
    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "ports": [{"containerPort": 1, "name": "p"}],
    "resources": {"limits": {"cpu": "1"}},
    "readinessProbe": {"httpGet": {"port": 1}},
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
}
POD = {"containers": [CONTAINER], "volumes": [{"name": "v", "configMap": {"name": "m"}}], "tolerations": [{"key": "k"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"r": {"type": "integer", "default": 1}, "l": {"type": "array", "items": {"type": "string"}}},
            "x-kubernetes-validations": [{"rule": "self.r > 0", "message": "m"}],
        }
    },
}
CRD = {
    "group": "g.io",
    "scope": "Namespaced",
    "names": {"plural": "things", "kind": "Thing", "shortNames": ["t"]},
    "versions": [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": SCHEMA},
            "subresources": {"scale": {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"}},
            "additionalPrinterColumns": [{"name": "R", "type": "integer", "jsonPath": ".spec.r"}],
        }
    ],
}
OWNER = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": True}]
REPLICATED = {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}
OBJECTS = {
    ("v1", "Pod"): {"metadata": {"name": "x", "labels": {"a": "b"}, "ownerReferences": OWNER}, "spec": POD},
    ("apps/v1", "Deployment"): {"spec": {**REPLICATED, "strategy": ROLLING}},
    ("apps/v1", "ReplicaSet"): {"spec": {**REPLICATED, "minReadySeconds": 1}},
    ("batch/v1", "Job"): {
        "spec": {
            "template": {"spec": {**POD, "restartPolicy": "Never"}}, "backoffLimit": 1, "completions": 2,
            "parallelism": 1, "activeDeadlineSeconds": 5, "ttlSecondsAfterFinished": 5,
        },
    },
    ("v1", "Service"): {
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 1, "targetPort": "p"}], "clusterIP": "10.96.0.9"},
    },
    ("v1", "Secret"): {"stringData": {"k": "v"}, "data": {"l": "dg=="}},
    ("v1", "Event"): {
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}, "count": 1, "series": {"count": 2},
    },
    ("events.k8s.io/v1", "Event"): {"regarding": {"kind": "Pod"}, "note": "n", "eventTime": "2026-01-01T00:00:00.0Z"},
    ("coordination.k8s.io/v1", "Lease"): {"spec": {"holderIdentity": "h", "leaseDurationSeconds": 1}},
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): {"metadata": {"name": "things.g.io"}, "spec": CRD},
}  # fmt: skip

JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "x", "50%", "%", "10Gi"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["name", "a", "type"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def planted(obj, path, value):
    obj = clone(obj)
    node = obj
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return obj


@st.composite
def spoilt(draw):
    gvk = draw(st.sampled_from(sorted(OBJECTS)))
    obj = {"metadata": {"name": "x"}, **OBJECTS[gvk]}
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([path for path in places(obj) if path]))
        obj = planted(obj, path, draw(JUNK))
    return gvk, obj


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=spoilt())
def test_creating_nonsense(make_cluster, case):
    cluster = make_cluster()
    (api_version, kind), obj = case
    with contextlib.suppress(ApiError):
        cluster.create(api_version, kind, obj)
    cluster.settle()
    cluster.pass_time(10)
    cluster.tables()


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=spoilt())
def test_changing_to_nonsense(make_cluster, case):
    cluster = make_cluster()
    (api_version, name), obj = case
    kind = cluster.kind(api_version, name)
    good = {"metadata": {"name": "x"}, **OBJECTS[api_version, name]}
    made = cluster.create(api_version, name, good)
    cluster.settle()
    key = (made["metadata"].get("namespace", ""), made["metadata"]["name"])
    body = {**kind.head(), **obj}
    options = WriteOptions(manager="m", force=True)
    for write in (
        lambda: cluster.registry.patch(kind, key, lambda old: strategic_merge(old, body, schema_for(kind))),
        lambda: cluster.registry.apply(kind, key, body, options),
        lambda: cluster.registry.update(kind, key[0], body),
    ):
        with contextlib.suppress(ApiError):
            write()
        cluster.settle()
    cluster.pass_time(10)
    cluster.tables()


@pytest.mark.parametrize(
    "status", [{"phase": "Running", "conditions": [{}]}, {"containerStatuses": [{}]}, {"conditions": None}]
)
def test_a_strange_status_stops_no_controller(cluster, status):
    cluster.create("apps/v1", "Deployment", {"metadata": {"name": "x"}, **OBJECTS["apps/v1", "Deployment"]})
    cluster.settle()
    for pod in cluster.pods(a="b"):
        with contextlib.suppress(ApiError):
            cluster.patch("v1", "Pod", pod["metadata"]["name"], {"status": status}, "status")
    cluster.patch("apps/v1", "Deployment", "x", {"spec": {"replicas": 3}})
    assert len(cluster.pods(a="b")) == 3
