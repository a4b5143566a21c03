"""Label and field selectors in Kubernetes syntax, compiled to predicates."""

import re
from collections.abc import Callable, Mapping

from flexinfer.local.kubeapi.errors import bad_request
from flexinfer.local.kubeapi.objects import Json, at, meta

Predicate = Callable[[Json], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s,()=!<>]+)")
_EQUALITY = re.compile(r"^(?P<key>[^=!]+?)\s*(?P<op>==|!=|=)\s*(?P<value>.*)$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_LABEL_KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]


def labels_of(obj: Json) -> Labels:
    """Labels of an object."""
    return meta(obj).get("labels") or {}


def label_predicate(text: str) -> Predicate | None:
    """``a=b,c!=d,e in (f,g),!h,i>3`` as a predicate over objects, None for the empty selector. Raises ApiError 400."""
    tests = parse_labels(text)
    if not tests:
        return None

    def matches(obj: Json) -> bool:
        labels = labels_of(obj)
        return all(test(labels) for test in tests)

    return matches


def parse_labels(text: str) -> list[LabelTest]:
    """The requirements of a label selector. Raises ApiError 400."""
    tokens = _tokens(text)
    tests: list[LabelTest] = []
    while tokens:
        tests.append(_requirement(tokens, text))
        if tokens and tokens.pop(0) != ",":
            raise _unparsable(text)
    return tests


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        found = _TOKEN.match(stripped, position)
        if not found:
            raise _unparsable(text)
        tokens.append(found.group(1))
        position = found.end()
    return tokens


def _unparsable(text: str) -> Exception:
    return bad_request(f"unable to parse requirement: invalid label selector {text!r}")


def _requirement(tokens: list[str], text: str) -> LabelTest:
    key = tokens.pop(0)
    if key == "!":
        if not tokens:
            raise _unparsable(text)
        name = _key(tokens.pop(0), text)
        return lambda labels: name not in labels
    _key(key, text)
    if not tokens or tokens[0] == ",":
        return lambda labels: key in labels
    operator = tokens.pop(0)
    if operator in ("in", "notin"):
        return _membership(key, operator, tokens, text)
    if operator in ("<", ">"):
        return _comparison(key, operator, tokens, text)
    if operator not in ("=", "==", "!="):
        raise _unparsable(text)
    value = "" if not tokens or tokens[0] == "," else tokens.pop(0)
    _value(value, text)
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _membership(key: str, operator: str, tokens: list[str], text: str) -> LabelTest:
    if not tokens or tokens.pop(0) != "(":
        raise _unparsable(text)
    values: set[str] = set()
    while tokens and tokens[0] != ")":
        piece = tokens.pop(0)
        if piece != ",":
            _value(piece, text)
            values.add(piece)
    if not tokens:
        raise _unparsable(text)
    tokens.pop(0)
    if operator == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _comparison(key: str, operator: str, tokens: list[str], text: str) -> LabelTest:
    if not tokens or not re.fullmatch(r"-?\d+", tokens[0]):
        raise _unparsable(text)
    bound = int(tokens.pop(0))

    def test(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return test


def _key(key: str, text: str) -> str:
    if not _LABEL_KEY.match(key):
        raise _unparsable(text)
    return key


def _value(value: str, text: str) -> None:
    if not _LABEL_VALUE.match(value) or len(value) > 63:
        raise _unparsable(text)


def selector_tests(selector: Json | None) -> LabelTest:
    """A ``metav1.LabelSelector`` as a predicate over labels; None selects nothing, an empty one everything."""
    if selector is None:
        return lambda _labels: False
    equal = dict(selector.get("matchLabels") or {})
    expressions = list(selector.get("matchExpressions") or ())

    def test(labels: Labels) -> bool:
        if any(labels.get(key) != value for key, value in equal.items()):
            return False
        return all(_expression(requirement, labels) for requirement in expressions)

    return test


def _expression(requirement: Json, labels: Labels) -> bool:
    value = labels.get(requirement["key"])
    values = requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def selector_text(selector: Json | None) -> str:
    """A ``metav1.LabelSelector`` in string form, as ``/scale`` and kubectl print it."""
    if not selector:
        return ""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for requirement in selector.get("matchExpressions") or ():
        key, values = requirement["key"], ",".join(sorted(requirement.get("values") or ()))
        parts.append(
            {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}.get(
                requirement["operator"], f"!{key}"
            )
        )
    return ",".join(parts)


def field_predicate(text: str, known: tuple[str, ...]) -> Predicate | None:
    """``metadata.name=x,status.phase!=Running`` as a predicate. Raises ApiError 400 for unknown fields."""
    tests: list[Predicate] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = _EQUALITY.match(part)
        if not found:
            raise bad_request(f"invalid field selector {part!r}: can't understand it")
        key, negated, value = found["key"].strip(), found["op"] == "!=", found["value"].strip()
        if key not in ("metadata.name", "metadata.namespace") and key not in known:
            raise bad_request(f"field label not supported: {key}")
        tests.append(_field_test(key, value, negated=negated))
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def _field_test(key: str, value: str, *, negated: bool) -> Predicate:
    path = key.split(".")

    def test(obj: Json) -> bool:
        return (field_value(obj, path) == value) is not negated

    return test


def field_value(obj: Json, path: list[str]) -> str:
    """The text a field selector compares with; missing is empty, booleans are lower case."""
    found = at(obj, *path)
    if path == ["source"]:
        found = at(obj, "source", "component") or at(obj, "reportingComponent")
    if isinstance(found, bool):
        return "true" if found else "false"
    if found is None:
        return {"spec.unschedulable": "false", "spec.hostNetwork": "false"}.get(".".join(path), "")
    return str(found)
