"""Pruning, defaults, validation and rules of custom resources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.kubeapi import cel
from flexinfer.local.kubeapi.crds import structural_causes
from flexinfer.local.kubeapi.objects import clone
from flexinfer.local.kubeapi.pruning import fill, format_quantity, prune
from flexinfer.local.kubeapi.schema import Schema
from flexinfer.local.kubeapi.validation import validate

SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "default": 7},
            "b": {
                "type": "object",
                "default": {},
                "properties": {"c": {"type": "string", "default": "x"}, "d": {"type": "boolean"}},
            },
            "l": {"type": "array", "items": {"type": "object", "properties": {"e": {"type": "integer", "default": 1}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "k": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "n": {"type": "string", "nullable": True, "default": "z"},
        },
    }
)

ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "q"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abcdeklmn?"), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from("abklmn?"), ANYTHING, max_size=6))
def test_pruning_and_defaults_are_idempotent(value):
    once = fill(prune(clone(value), SCHEMA, "", []), SCHEMA)
    unknown = []
    assert fill(prune(clone(once), SCHEMA, "", unknown), SCHEMA) == once
    assert unknown == []


@given(ANYTHING)
def test_validation_never_fails_by_itself(value):
    assert isinstance(validate(value, SCHEMA, "spec"), list)


def test_defaults_reach_into_defaults():
    assert fill({}, SCHEMA) == {"a": 7, "b": {"c": "x"}, "n": "z"}
    assert fill({"l": [{}, {"e": 5}]}, SCHEMA)["l"] == [{"e": 1}, {"e": 5}]


def test_null_takes_the_default_unless_it_is_allowed():
    assert fill({"a": None}, SCHEMA)["a"] == 7
    assert fill({"n": None}, SCHEMA)["n"] is None


def test_unknown_members_are_named():
    unknown = []
    value = {"x": 1, "b": {"y": 2}, "l": [{"z": 3}], "k": {"any": 1}, "m": {"free": "name"}}
    pruned = prune(value, SCHEMA, "spec", unknown)
    assert pruned == {"b": {}, "l": [{}], "k": {"any": 1}, "m": {"free": "name"}}
    assert sorted(unknown) == ["spec.b.y", "spec.l[0].z", "spec.x"]


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ({"type": "integer"}, True, 'must be of type integer: "boolean"'),
        ({"type": "integer"}, 1.5, 'must be of type integer: "number"'),
        ({"type": "number"}, "1", 'must be of type number: "string"'),
        ({"type": "object"}, None, 'must be of type object: "null"'),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 1, "should be greater than 1"),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": True}, 1, "should be less than 1"),
        ({"type": "integer", "multipleOf": 3}, 4, "should be a multiple of 3"),
        ({"type": "string", "minLength": 2}, "a", "should be at least 2 chars long"),
        ({"type": "string", "format": "date-time"}, "soon", "must be of type date-time"),
        ({"type": "array", "minItems": 1}, [], "should have at least 1 items"),
        ({"type": "array", "x-kubernetes-list-type": "set"}, ["a", "a"], 'Duplicate value: "a"'),
        ({"type": "object", "minProperties": 1}, {}, "should have at least 1 properties"),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "must have at most 0 items"),
        ({"type": "string", "not": {"enum": ["a"]}}, "a", "must not validate the schema (not)"),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3, "must validate at least one schema"),
    ],
)
def test_what_is_wrong_is_said_as_the_real_server_does(schema, value, text):
    causes = validate(value, Schema(schema), "spec.x")
    assert len(causes) == 1
    assert causes[0].field.startswith("spec.x")
    assert text in causes[0].message


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 1),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00.123Z"),
        ({"type": "string", "format": "unheard-of"}, "x"),
        ({}, {"any": "thing"}),
    ],
)
def test_what_is_right_passes(schema, value):
    assert validate(value, Schema(schema), "spec.x") == []


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({}, "s.type"),
        ({"type": "array"}, "s.type"),
        ({"type": "object", "properties": {"a": {}}}, "s.properties[a].type"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "s.properties[a].items"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}, "s.properties[a].pattern"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {}},
            "s.additionalProperties",
        ),
    ],
)
def test_schemas_must_be_structural(schema, field):
    assert field in [cause.field for cause in structural_causes(schema, "s", root=True)]


@pytest.mark.parametrize(("number", "text"), [(2, "2"), (2.0, "2"), (0.5, "500m"), (0, "0")])
def test_numbers_become_quantities(number, text):
    assert format_quantity(number) == text


RULES = pytest.mark.skipif(not cel.available(), reason="needs the extra `local`")


def ruled(rule, kind="object", **extra):
    return Schema({"type": kind, "x-kubernetes-validations": [{"rule": rule, **extra}], **extra.pop("schema", {})})


@RULES
@pytest.mark.parametrize(
    ("rule", "value", "passes"),
    [
        ("self.a < self.b", {"a": 1, "b": 2}, True),
        ("self.a < self.b", {"a": 3, "b": 2}, False),
        ("!has(self.a) || self.a > 0", {}, True),
        ("self.l.all(x, x.startsWith('a'))", {"l": ["ab", "ac"]}, True),
        ("self.s.matches('^[a-z]+://')", {"s": "hf://x"}, True),
        ("self.s.lowerAscii() == 'abc'", {"s": "ABC"}, True),
        ("self.l.isSorted()", {"l": [1, 3, 2]}, False),
        ("self.l.sum() == 6", {"l": [1, 3, 2]}, True),
        ("self.none == 1", {}, False),
    ],
)
def test_rules(rule, value, passes):
    properties = {name: {} for name in ("a", "b", "l", "s")}
    schema = Schema({"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]})
    assert (cel.rule_causes(value, None, schema) == []) is passes


@RULES
def test_a_rule_that_cannot_be_evaluated_is_violated_and_says_why():
    causes = cel.rule_causes({}, None, ruled("self.none == 1"))
    assert "no such key: none" in causes[0].message


@RULES
def test_messages_may_be_computed():
    schema = ruled("self.a < 2", messageExpression="'a is ' + string(self.a)")
    assert cel.rule_causes({"a": 5}, None, schema)[0].message == "Invalid value: a is 5"


@RULES
def test_transition_rules_wait_for_an_old_object():
    schema = ruled("self.a == oldSelf.a", message="fixed")
    assert cel.rule_causes({"a": 1}, None, schema) == []
    assert cel.rule_causes({"a": 1}, {"a": 1}, schema) == []
    assert cel.rule_causes({"a": 1}, {"a": 2}, schema)[0].message == "Invalid value: fixed"


@RULES
@pytest.mark.parametrize(
    ("name", "escaped"),
    [("plain", "plain"), ("x-y", "x__dash__y"), ("a.b/c", "a__dot__b__slash__c"), ("in", "__in__")],
)
def test_names_are_escaped_as_rules_write_them(name, escaped):
    assert cel.escape(name) == escaped
    schema = Schema(
        {
            "type": "object",
            "properties": {name: {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": f"self.{escaped} > 0"}],
        }
    )
    assert cel.rule_causes({name: 1}, None, schema) == []
    assert cel.rule_causes({name: 0}, None, schema) != []
