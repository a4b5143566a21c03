"""JSON merge patch, JSON patch, strategic merge patch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.kubeapi.builtin_schemas import schema_of
from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.objects import clone
from flexinfer.local.kubeapi.patching import json_patch, merge_patch
from flexinfer.local.kubeapi.strategic import strategic_merge

LEAVES = st.one_of(st.booleans(), st.integers(-5, 5), st.sampled_from(["", "a", "b"]))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc/~"), inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def difference(old, new):
    """The merge patch from one object to another."""
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif isinstance(value, dict) and isinstance(old[key], dict):
            inner = difference(old[key], value)
            if inner:
                patch[key] = inner
        elif old[key] != value or type(old[key]) is not type(value):
            patch[key] = value
    return patch


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_leads_to_the_object_it_was_made_for(old, new):
    before = clone(old)
    assert merge_patch(old, difference(old, new)) == new
    assert old == before


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [  # the examples of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_of_the_standard(target, patch, expected):
    assert merge_patch(target, patch) == expected


@given(OBJECTS, st.sampled_from("abcxyz/~"), VALUES)
def test_what_a_json_patch_adds_it_can_remove(target, key, value):
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    added = json_patch(target, [{"op": "add", "path": pointer, "value": value}])
    assert added[key] == value
    removed = json_patch(added, [{"op": "remove", "path": pointer}])
    assert removed == {name: item for name, item in target.items() if name != key}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/l/1", "value": 9}], {"l": [1, 9, 2]}),
        ([{"op": "add", "path": "/l/-", "value": 9}], {"l": [1, 2, 9]}),
        ([{"op": "remove", "path": "/l/0"}], {"l": [2]}),
        ([{"op": "replace", "path": "/l/1", "value": 9}], {"l": [1, 9]}),
        ([{"op": "move", "from": "/l/0", "path": "/l/-"}], {"l": [2, 1]}),
        ([{"op": "copy", "from": "/l", "path": "/m"}], {"l": [1, 2], "m": [1, 2]}),
        ([{"op": "test", "path": "/l/0", "value": 1}], {"l": [1, 2]}),
        ([{"op": "replace", "path": "", "value": {"x": 1}}], {"x": 1}),
    ],
)
def test_json_patch_operations(operations, expected):
    assert json_patch({"l": [1, 2]}, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "remove", "path": "/l/7"},
        {"op": "add", "path": "/l/9", "value": 1},
        {"op": "add", "path": "/none/deep", "value": 1},
        {"op": "add", "path": "no-slash", "value": 1},
        {"op": "add", "path": "/l"},
        {"op": "replace", "path": "/l/x", "value": 1},
        {"op": "test", "path": "/l", "value": []},
        {"op": "move", "path": "/l"},
        {"op": "jump", "path": "/l"},
        {"path": 5},
    ],
)
def test_json_patches_that_do_not_fit(operation):
    with pytest.raises(ApiError) as caught:
        json_patch({"l": [1, 2]}, [operation])
    assert caught.value.code in (400, 422)


POD_SPEC = schema_of("", "v1", "Pod").member("spec")
CONTAINERS = st.dictionaries(
    st.sampled_from("abc"),
    st.fixed_dictionaries({"image": st.sampled_from(["i:1", "i:2"])}),
    max_size=3,
).map(lambda found: [{"name": name, **rest} for name, rest in found.items()])


@given(CONTAINERS, CONTAINERS)
def test_a_strategic_patch_is_idempotent_and_keeps_what_it_does_not_name(old, new):
    once = strategic_merge({"containers": old}, {"containers": new}, POD_SPEC)
    assert strategic_merge(once, {"containers": new}, POD_SPEC) == once
    images = {item["name"]: item["image"] for item in once.get("containers", ())}
    expected = {item["name"]: item["image"] for item in old} | {item["name"]: item["image"] for item in new}
    assert images == expected


def test_a_list_can_be_replaced_whole():
    old = {"containers": [{"name": "a", "image": "i"}]}
    patch = {"containers": [{"name": "b", "image": "j"}, {"$patch": "replace"}]}
    assert strategic_merge(old, patch, POD_SPEC)["containers"] == [{"name": "b", "image": "j"}]


def test_a_map_can_be_replaced_whole():
    old = {"nodeSelector": {"a": "b"}}
    assert strategic_merge(old, {"nodeSelector": {"c": "d", "$patch": "replace"}}, POD_SPEC)["nodeSelector"] == {
        "c": "d"
    }


def test_retained_keys_drop_the_others():
    old = {"volumes": [{"name": "v", "emptyDir": {}}]}
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}
    assert strategic_merge(old, patch, POD_SPEC)["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_an_order_reorders_elements_it_names():
    old = {"containers": [{"name": name} for name in "abc"]}
    patch = {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]}
    assert [item["name"] for item in strategic_merge(old, patch, POD_SPEC)["containers"]] == ["c", "b", "a"]
