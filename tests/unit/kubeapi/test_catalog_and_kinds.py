"""The table of kinds and its schemas."""

import pytest

from flexinfer.local.kubeapi import builtin_schemas, metadata, openapi, podrules
from flexinfer.local.kubeapi.catalog import Catalog, schema_for, version_priority
from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.requests import negotiate, resolve


def test_versions_are_ordered_as_kubernetes_does():
    wanted = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    found = sorted(wanted, key=version_priority, reverse=True)
    assert found[:8] == wanted[:8]
    assert set(found[8:]) == {"foo1", "foo10"}


def test_every_built_in_kind_has_a_schema_and_a_closed_set_of_references():
    known = builtin_schemas.definitions()
    for kind in Catalog().kinds():
        assert schema_for(kind).member("metadata") is not None, kind.resource
        assert openapi.schema_name(kind) in known
    for name, schema in known.items():
        assert set(openapi.references(schema)) <= set(known), name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ("pods", "", "", "")),
        ("/api/v1/namespaces/a/pods", ("pods", "a", "", "")),
        ("/api/v1/namespaces/a/pods/p", ("pods", "a", "p", "")),
        ("/api/v1/namespaces/a/pods/p/log", ("pods", "a", "p", "log")),
        ("/api/v1/namespaces/a", ("namespaces", "", "a", "")),
        ("/api/v1/namespaces/a/status", ("namespaces", "", "a", "status")),
        ("/api/v1/namespaces/a/finalize", ("namespaces", "", "a", "finalize")),
        ("/api/v1/nodes/n/status", ("nodes", "", "n", "status")),
        ("/apis/apps/v1/namespaces/a/deployments/d/scale", ("deployments", "a", "d", "scale")),
    ],
)
def test_paths_are_resolved(path, expected):
    target = resolve(path, Catalog())
    assert (target.kind.plural, target.namespace, target.name, target.subresource) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/", "/api", "/api/v1", "/api/v2/pods", "/apis/apps/v1", "/apis/apps/v2/deployments", "/api/v1/pods/p",
        "/api/v1/namespaces/a/nodes/n", "/api/v1/namespaces/a/pods/p/log/x", "/apis/none/v1/things",
    ],
)  # fmt: skip
def test_paths_that_lead_nowhere(path):
    with pytest.raises(ApiError) as caught:
        resolve(path, Catalog())
    assert caught.value.code == 404


@pytest.mark.parametrize(
    ("accept", "form", "as_yaml"),
    [
        ("", "object", False),
        ("*/*", "object", False),
        ("application/json", "object", False),
        ("application/yaml", "object", True),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "table", False),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "object", False),
        ("application/vnd.kubernetes.protobuf,application/json", "object", False),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "metadata", False),
    ],
)
def test_the_first_form_that_can_be_served_is_taken(accept, form, as_yaml):
    accepted = negotiate(accept)
    assert (accepted.form, accepted.yaml) == (form, as_yaml)


@pytest.mark.parametrize("accept", ["application/vnd.kubernetes.protobuf", "image/png"])
def test_forms_that_cannot_be_served(accept):
    with pytest.raises(ApiError) as caught:
        negotiate(accept)
    assert caught.value.code == 406


def test_generated_suffixes_avoid_letters_that_look_alike():
    drawn = {metadata.random_suffix() for _ in range(200)}
    assert len(drawn) > 190
    assert not set("".join(drawn)) & set("aeiou013l")


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"), ("a:latest", "Always"), ("a:1", "IfNotPresent"), ("host:5000/a", "Always"),
        ("host:5000/a:1", "IfNotPresent"), ("a@sha256:abc", "IfNotPresent"),
    ],
)  # fmt: skip
def test_images_are_pulled_by_their_tag(image, policy):
    spec = {"containers": [{"name": "c", "image": image}]}
    podrules.default_pod_spec(spec)
    assert spec["containers"][0]["imagePullPolicy"] == policy
