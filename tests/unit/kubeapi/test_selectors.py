"""Label and field selectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.selectors import (
    field_predicate,
    label_predicate,
    parse_labels,
    selector_tests,
    selector_text,
)

KEYS = st.sampled_from(["a", "b", "example.com/c"])
VALUES = st.sampled_from(["x", "y", "z-1", ""])
LABELS = st.dictionaries(KEYS, VALUES)

REQUIREMENT = st.one_of(
    st.tuples(KEYS, st.just("="), VALUES),
    st.tuples(KEYS, st.just("!="), VALUES),
    st.tuples(KEYS, st.just("in"), st.lists(VALUES.filter(bool), min_size=1)),
    st.tuples(KEYS, st.just("notin"), st.lists(VALUES.filter(bool), min_size=1)),
    st.tuples(KEYS, st.just("exists"), st.none()),
    st.tuples(KEYS, st.just("absent"), st.none()),
)


def text_of(key, operator, value):
    return {
        "=": f"{key}={value}",
        "!=": f"{key} != {value}",
        "in": f"{key} in ({', '.join(value or ())})",
        "notin": f"{key} notin ({','.join(value or ())})",
        "exists": key,
        "absent": f"!{key}",
    }[operator]


def holds(labels, key, operator, value):
    return {
        "=": lambda: labels.get(key) == value,
        "!=": lambda: labels.get(key) != value,
        "in": lambda: labels.get(key) in value,
        "notin": lambda: labels.get(key) not in value,
        "exists": lambda: key in labels,
        "absent": lambda: key not in labels,
    }[operator]()


@given(LABELS, st.lists(REQUIREMENT, min_size=1, max_size=4))
def test_a_parsed_selector_means_what_its_requirements_say(labels, requirements):
    predicate = label_predicate(",".join(text_of(*requirement) for requirement in requirements))
    expected = all(holds(labels, *requirement) for requirement in requirements)
    assert predicate({"metadata": {"labels": labels}}) == expected


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text):
    try:
        tests = parse_labels(text)
    except ApiError as err:
        assert err.code == 400  # noqa: PT017 - either outcome is right, if for the right reason
    else:
        assert isinstance(tests, list)


def test_the_empty_selector_selects_everything():
    assert label_predicate("") is None
    assert label_predicate("  ") is None


@given(LABELS, st.dictionaries(KEYS, VALUES, max_size=2))
def test_the_text_of_a_selector_means_the_selector(labels, wanted):
    selector = {"matchLabels": wanted, "matchExpressions": [{"key": "d", "operator": "DoesNotExist"}]}
    predicate = label_predicate(selector_text(selector))
    assert predicate({"metadata": {"labels": labels}}) == selector_tests(selector)(labels)


def test_no_selector_selects_nothing_and_an_empty_one_everything():
    assert not selector_tests(None)({"a": "b"})
    assert selector_tests({})({"a": "b"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n1", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=", False),
        ("status.phase=", True),
        ("spec.hostNetwork=true", True),
        ("metadata.name=p,spec.nodeName=n1", True),
    ],
)
def test_field_selectors(text, expected):
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "hostNetwork": True}}
    known = ("spec.nodeName", "status.phase", "spec.hostNetwork")
    assert field_predicate(text, known)(pod) is expected


@pytest.mark.parametrize("text", ["spec.other=x", "spec.nodeName", "=x"])
def test_unknown_fields_are_refused(text):
    with pytest.raises(ApiError):
        field_predicate(text, ("spec.nodeName",))
