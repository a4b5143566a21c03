"""Rules in CEL (``x-kubernetes-validations``), evaluated where the ``cel`` package is installed (extra ``local``)."""

import logging
import re
from contextlib import suppress
from functools import cache
from typing import Any

from flexinfer.local.kubeapi.errors import Cause, show
from flexinfer.local.kubeapi.objects import Json, meta
from flexinfer.local.kubeapi.schema import ANY, Schema

engine: Any = None
with suppress(ImportError):  # the rules are then not enforced, and creating a CRD with rules warns
    import cel as engine

log = logging.getLogger(__name__)

_RESERVED = frozenset(
    (
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
        "let", "loop", "package", "namespace", "return",
    )
)  # fmt: skip
_RULES = "x-kubernetes-validations"
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


def available() -> bool:
    """Whether rules are enforced."""
    return engine is not None


def rule_causes(obj: Json, before: Json | None, schema: Schema) -> list[Cause]:
    """Violated rules of an object; ``before`` is None at creation, when transition rules do not apply."""
    if engine is None or not schema.has_rules:
        return []
    found: list[Cause] = []
    _walk(_root(obj), None if before is None else _root(before), schema, "", found)
    return found


def _root(obj: Json) -> Json:
    """Rules see no more of the metadata than the names."""
    names = {name: value for name, value in meta(obj).items() if name in ("name", "generateName")}
    return obj | {"metadata": names}


def _walk(value: Any, before: Any, schema: Schema, path: str, found: list[Cause]) -> None:
    if value is None or not schema.has_rules:
        return
    for rule in schema.raw.get(_RULES) or ():
        cause = _violation(rule, value, before, schema, path)
        if cause is not None:
            found.append(cause)
    if isinstance(value, dict):
        old = before if isinstance(before, dict) else {}
        for name, item in value.items():
            child = schema.member(name)
            if child is not None:
                _walk(item, old.get(name), child, f"{path}.{name}" if path else name, found)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            # Elements of lists have no identity here, so transition rules below them do not apply.
            _walk(item, None, schema.items, f"{path}[{index}]", found)


def _violation(rule: Json, value: Any, before: Any, schema: Schema, path: str) -> Cause | None:
    text = rule.get("rule", "")
    transition = re.search(r"\boldSelf\b", text) is not None
    if transition and before is None:
        return None
    variables = {"self": _visible(value, schema)}
    if transition:
        variables["oldSelf"] = _visible(before, schema)
    passed, problem = evaluate(text, variables)
    if passed is True:
        return None
    place = f"{path}{rule.get('fieldPath', '')}".lstrip(".") or "<nil>"
    reason = rule.get("reason") or "FieldValueInvalid"
    return Cause(place, reason, _worded(reason, value, problem or _message(rule, variables)))


def _worded(reason: str, value: Any, message: str) -> str:
    """The text of a cause; the real server shows scalars and leaves objects and lists out."""
    shown = "" if isinstance(value, (dict, list)) else f"{show(value)}: "
    match reason:
        case "FieldValueForbidden":
            return f"Forbidden: {message}"
        case "FieldValueRequired":
            return f"Required value: {message}"
        case "FieldValueDuplicate":
            return f"Duplicate value: {shown}{message}"
        case _:
            return f"Invalid value: {shown}{message}"


def _message(rule: Json, variables: Json) -> str:
    expression = rule.get("messageExpression")
    if expression:
        text, problem = evaluate(expression, variables)
        if not problem and isinstance(text, str) and text.strip():
            return text
    return str(rule.get("message") or f"failed rule: {rule.get('rule', '')}")


def _visible(value: Any, schema: Schema) -> Any:
    """A value as rules see it: nulls are absent, property names are escaped."""
    if isinstance(value, dict):
        shown: Json = {}
        for name, item in value.items():
            if item is not None:
                child = schema.member(name) or ANY
                shown[escape(name) if name in schema.properties else name] = _visible(item, child)
        return shown
    if isinstance(value, list):
        return [_visible(item, schema.items or ANY) for item in value]
    return value


def escape(name: str) -> str:
    """A property name as CEL identifiers are written in rules."""
    if name in _RESERVED:
        return f"__{name}__"
    for plain, escaped in _ESCAPES:
        name = name.replace(plain, escaped)
    return name


@cache
def _compile(text: str) -> Any:
    return engine.compile(text)


def compile_problem(text: str) -> str | None:
    """Why a rule does not compile, or None."""
    if engine is None:
        return None
    try:
        _compile(text)
    except (ValueError, RuntimeError, TypeError) as err:
        return str(err).splitlines()[0]
    return None


def evaluate(text: str, variables: Json) -> tuple[Any, str]:
    """(result, problem): a rule that cannot be evaluated is a violation that says why."""
    try:
        context = engine.Context()
        for name, function in _FUNCTIONS.items():
            context.add_function(name, function)
        for name, value in variables.items():
            context.add_variable(name, value)
        return _compile(text).execute(context), ""
    except KeyError as err:
        return None, f"rule evaluation error: no such key: {err.args[0] if err.args else ''}"
    except (ValueError, RuntimeError, TypeError, AttributeError) as err:
        return None, f"rule evaluation error: {str(err).splitlines()[0]}"


# The string and list extensions of Kubernetes' CEL that rules of CRDs commonly use; others are reported as unknown.
_FUNCTIONS: dict[str, Any] = {
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "replace": lambda text, old, new: text.replace(old, new),
    "split": lambda text, separator: text.split(separator),
    "join": lambda items, separator="": separator.join(items),
    "indexOf": lambda text, part: text.find(part) if isinstance(text, str) else _index(text, part),
    "find": lambda text, pattern: found.group(0) if (found := re.search(pattern, text)) else "",
    "findAll": lambda text, pattern: [match.group(0) for match in re.finditer(pattern, text)],
    "isSorted": lambda items: list(items) == sorted(items),
    "sum": sum,
}


def _index(items: list[Any], part: Any) -> int:
    return items.index(part) if part in items else -1
