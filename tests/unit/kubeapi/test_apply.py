"""Server-side apply on plain objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.kubeapi.apply import Owner, apply, display, owners_of, track_update
from flexinfer.local.kubeapi.builtin_schemas import schema_of
from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.fieldsets import decode_fields, encode_fields, fields_of
from flexinfer.local.kubeapi.lastapplied import ANNOTATION
from flexinfer.local.kubeapi.objects import clone

DEPLOYMENT = schema_of("apps", "v1", "Deployment")
NOW = "2026-01-01T00:00:00Z"
ME, OTHER = Owner("me", "Apply", "apps/v1"), Owner("other", "Apply", "apps/v1")

CONTAINER = st.fixed_dictionaries(
    {"image": st.sampled_from(["i:1", "i:2"])},
    optional={"env": st.dictionaries(st.sampled_from("XY"), st.sampled_from("12"), min_size=1), "args": st.just(["a"])},
).map(lambda c: c | ({"env": [{"name": k, "value": v} for k, v in c["env"].items()]} if "env" in c else {}))
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), min_size=1),
        "replicas": st.integers(0, 3),
        "containers": st.dictionaries(st.sampled_from("cd"), CONTAINER, min_size=1),
    },
)


def manifest(parts):
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"paused": True}}
    if "labels" in parts:
        body["metadata"]["labels"] = parts["labels"]
    if "replicas" in parts:
        body["spec"]["replicas"] = parts["replicas"]
    if "containers" in parts:
        containers = [{"name": name, **rest} for name, rest in parts["containers"].items()]
        body["spec"]["template"] = {"spec": {"containers": containers}}
    return body


def blank():
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}}


def without_bookkeeping(obj):
    plain = clone(obj)
    plain["metadata"].pop("managedFields", None)
    return plain


@given(OBJECTS.map(manifest))
def test_field_sets_survive_their_encoding(obj):
    fields = fields_of(obj, DEPLOYMENT)
    assert decode_fields(encode_fields(fields)) == fields


@given(OBJECTS.map(manifest))
def test_applying_twice_changes_nothing(wanted):
    once = apply(blank(), wanted, DEPLOYMENT, ME, force=False, now=NOW)
    assert apply(once, wanted, DEPLOYMENT, ME, force=False, now=NOW) == once
    assert without_bookkeeping(once) == wanted


@given(OBJECTS.map(manifest), OBJECTS.map(manifest))
def test_a_sole_manager_gets_exactly_what_it_applies(first, second):
    once = apply(blank(), first, DEPLOYMENT, ME, force=False, now=NOW)
    twice = apply(once, second, DEPLOYMENT, ME, force=False, now=NOW)
    assert normal(without_bookkeeping(twice)) == normal(second)


def normal(obj):
    """Without the order of containers and env, which apply keeps where it was."""
    plain = clone(obj)
    containers = plain["spec"].get("template", {}).get("spec", {}).get("containers")
    if containers:
        containers.sort(key=lambda item: item["name"])
        for container in containers:
            if "env" in container:
                container["env"].sort(key=lambda item: item["name"])
    return plain


@given(OBJECTS.map(manifest), OBJECTS.map(manifest))
def test_force_wins_and_leaves_the_rest(first, second):
    once = apply(blank(), first, DEPLOYMENT, ME, force=False, now=NOW)
    both = apply(once, second, DEPLOYMENT, OTHER, force=True, now=NOW)
    claimed = fields_of(second, DEPLOYMENT)
    assert claimed <= fields_of(without_bookkeeping(both), DEPLOYMENT)
    owners, _ = owners_of(both)
    assert owners[OTHER] == claimed
    again = apply(both, second, DEPLOYMENT, OTHER, force=False, now=NOW)
    assert again == both


@given(OBJECTS.map(manifest), OBJECTS.map(manifest))
def test_without_force_nothing_of_others_changes(first, second):
    once = apply(blank(), first, DEPLOYMENT, ME, force=False, now=NOW)
    try:
        both = apply(once, second, DEPLOYMENT, OTHER, force=False, now=NOW)
    except ApiError as err:
        assert err.code == 409  # noqa: PT017 - either outcome is right, if for the right reason
        return
    owners, _ = owners_of(both)
    assert owners[ME] == fields_of(first, DEPLOYMENT)


def test_a_conflict_names_manager_and_field():
    first = manifest({"replicas": 1, "containers": {"c": {"image": "i:1"}}})
    second = manifest({"replicas": 2, "containers": {"c": {"image": "i:2"}}})
    once = apply(blank(), first, DEPLOYMENT, ME, force=False, now=NOW)
    with pytest.raises(ApiError, match=r'^Apply failed with 2 conflicts: conflicts with "me":') as caught:
        apply(once, second, DEPLOYMENT, OTHER, force=False, now=NOW)
    assert "\n- .spec.replicas" in caught.value.message
    assert '.spec.template.spec.containers[name="c"].image' in caught.value.message


def test_an_update_moves_ownership_only_where_somebody_applied():
    plain = manifest({"replicas": 1})
    changed = clone(plain)
    changed["spec"]["replicas"] = 2
    track_update(plain, changed, DEPLOYMENT, Owner("editor", "Update", "apps/v1"), NOW)
    assert "managedFields" not in changed["metadata"]
    applied = apply(blank(), plain, DEPLOYMENT, ME, force=False, now=NOW)
    changed = clone(applied)
    changed["spec"]["replicas"] = 2
    track_update(applied, changed, DEPLOYMENT, Owner("editor", "Update", "apps/v1"), NOW)
    owners, _ = owners_of(changed)
    assert owners[Owner("editor", "Update", "apps/v1")] == {("f:spec", "f:replicas")}
    assert ("f:spec", "f:replicas") not in owners[ME]


def test_kubectl_may_take_over_what_it_applied_from_the_client_side():
    live = manifest({"replicas": 1})
    live["metadata"]["annotations"] = {ANNOTATION: '{"spec":{"replicas":1}}\n'}
    wanted = manifest({"replicas": 2})
    kubectl = Owner("kubectl", "Apply", "apps/v1")
    result = apply(live, wanted, DEPLOYMENT, kubectl, force=False, now=NOW)
    assert result["spec"]["replicas"] == 2
    assert '"replicas":2' in result["metadata"]["annotations"][ANNOTATION]
    with pytest.raises(ApiError):
        apply(live, wanted, DEPLOYMENT, ME, force=False, now=NOW)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:spec", 'k:{"name":"x"}', "f:image"), '.spec[name="x"].image'),
        (("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), '.ports[containerPort=80,protocol="TCP"]'),
        (("f:finalizers", 'v:"a"'), '.finalizers[="a"]'),
    ],
)
def test_paths_are_shown_as_people_write_them(path, expected):
    assert display(path) == expected
