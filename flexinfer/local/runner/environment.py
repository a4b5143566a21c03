"""Environment and command line of a container, from its spec and the objects it refers to."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flexinfer.contracts.kubernetes import Object
from flexinfer.local.runner.downward import BadReference, PodFacts, field_value, resource_value
from flexinfer.local.runner.images import LocalImage
from flexinfer.local.runner.rewriting import expand

TERMINATION_LOG = "FLEXINFER_TERMINATION_LOG"
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


@dataclass(frozen=True, slots=True)
class Data:
    """Decoded ConfigMaps and Secrets of the pod's namespace by name; a missing object is absent."""

    configmaps: Mapping[str, Mapping[str, str]]
    secrets: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def needed(containers: Sequence[Object]) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the ConfigMaps and Secrets that the environment of these containers refers to."""
    configmaps, secrets = set(), set()
    for container in containers:
        for source in container.get("envFrom") or ():
            configmaps.add(str((source.get("configMapRef") or {}).get("name") or ""))
            secrets.add(str((source.get("secretRef") or {}).get("name") or ""))
        for variable in container.get("env") or ():
            origin = variable.get("valueFrom") or {}
            configmaps.add(str((origin.get("configMapKeyRef") or {}).get("name") or ""))
            secrets.add(str((origin.get("secretKeyRef") or {}).get("name") or ""))
    return frozenset(configmaps - {""}), frozenset(secrets - {""})


def variables(container: Object, facts: PodFacts, data: Data, base: Mapping[str, str]) -> dict[str, str]:
    """All variables in the order Kubernetes applies them: base, envFrom, env with ``$(NAME)`` of earlier ones.

    Raises BadReference for a missing object or key that is not optional.
    """
    found = dict(base)
    for source in container.get("envFrom") or ():
        found.update(_all_of(source, data))
    for variable in container.get("env") or ():
        name = str(variable["name"])
        if "valueFrom" not in variable:
            found[name] = expand(str(variable.get("value") or ""), found)
            continue
        value = _value_from(variable["valueFrom"], container, facts, data)
        if value is not None:
            found[name] = value
    return found


def _all_of(source: Object, data: Data) -> dict[str, str]:
    prefix = str(source.get("prefix") or "")
    pairs: dict[str, str] = {}
    for field, kind, objects in (("configMapRef", "configmap", data.configmaps), ("secretRef", "secret", data.secrets)):
        reference = source.get(field)
        if not reference:
            continue
        content = objects.get(str(reference.get("name")))
        if content is None and not reference.get("optional"):
            raise BadReference(f'{kind} "{reference.get("name")}" not found')
        pairs |= {prefix + key: value for key, value in (content or {}).items() if _NAME.fullmatch(prefix + key)}
    return pairs


def _value_from(origin: Object, container: Object, facts: PodFacts, data: Data) -> str | None:
    if "fieldRef" in origin:
        return field_value(str(origin["fieldRef"].get("fieldPath")), facts)
    if "resourceFieldRef" in origin:
        return resource_value(origin["resourceFieldRef"], container, facts)
    if "configMapKeyRef" in origin:
        return _key_of(origin["configMapKeyRef"], "configmap", data.configmaps)
    if "secretKeyRef" in origin:
        return _key_of(origin["secretKeyRef"], "secret", data.secrets)
    raise BadReference(f"a variable comes from {', '.join(origin) or 'nowhere'}, which is not known here")


def _key_of(reference: Object, kind: str, objects: Mapping[str, Mapping[str, str]]) -> str | None:
    name, key = str(reference.get("name")), str(reference.get("key"))
    content = objects.get(name)
    if content is not None and key in content:
        return content[key]
    if reference.get("optional"):
        return None
    raise BadReference(f'{kind} "{name}" not found' if content is None else f"couldn't find key {key} in {kind} {name}")


def command(container: Object, image: LocalImage, env: Mapping[str, str], rewrite: Callable[[str], str]) -> Command:
    """argv and environment as executed here: expanded as in a cluster, then rewritten for this machine."""
    given = [expand(str(word), env) for word in container.get("command") or ()]
    args = [expand(str(word), env) for word in container.get("args") or ()]
    if given:
        program = image.programs.get(given[0]) or image.programs.get(given[0].rpartition("/")[2]) or (given[0],)
        words = [*program, *map(rewrite, given[1:]), *map(rewrite, args)]
        words[0] = words[0] if given[0] in image.programs else rewrite(words[0])
    else:
        words = [*image.entrypoint, *map(rewrite, args)]
    return Command(tuple(words), {name: rewrite(value) for name, value in env.items()})
