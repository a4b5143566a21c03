"""Environment and command line of a container."""

import pytest

from flexinfer.local.runner.downward import BadReference, PodFacts, field_value, resource_value
from flexinfer.local.runner.environment import Data, command, needed, variables
from flexinfer.local.runner.images import LocalImage
from flexinfer.local.runner.rewriting import Rewriter

POD = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"app": "x", "b": 'say "hi"\n'},
        "annotations": {"flexinfer.ai/model": "m"},
    },
    "spec": {
        "serviceAccountName": "sa",
        "containers": [
            {"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "250m"}}}
        ],
    },
}
FACTS = PodFacts(POD, ip="127.1.0.1", host_ip="127.0.0.1", node="n", allocatable={"cpu": "4", "memory": "8Gi"})
CONTAINER = POD["spec"]["containers"][0]
DATA = Data(configmaps={"cm": {"K": "v", "bad name": "x", "L": "w"}}, secrets={"s": {"P": "secret"}})


def env(*entries: dict, envFrom: list | None = None, base: dict | None = None) -> dict:  # noqa: N803 - the API's name
    return variables({"name": "c", "env": list(entries), "envFrom": envFrom or []}, FACTS, DATA, base or {})


def field(path: str) -> dict:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['flexinfer.ai/model']", "m"),
        ("metadata.labels", 'app="x"\nb="say \\"hi\\"\\n"'),
        ("spec.nodeName", "n"),
        ("spec.serviceAccountName", "sa"),
        ("status.podIP", "127.1.0.1"),
        ("status.podIPs", "127.1.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields(path, value):
    assert env(field(path)) == {"X": value}


def test_an_unknown_field_is_refused():
    with pytest.raises(BadReference, match=r"spec\.hostname"):
        field_value("spec.hostname", FACTS)


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.cpu", "1m", "250"),
        ("limits.memory", "1Mi", "1024"),
        ("requests.memory", None, "1073741824"),
        ("limits.ephemeral-storage", None, "0"),
    ],
)
def test_resources(resource, divisor, value):
    reference = {"resource": resource, **({"divisor": divisor} if divisor else {})}

    assert resource_value(reference, CONTAINER, FACTS) == value


def test_a_missing_limit_is_the_node_s_own():
    assert resource_value({"resource": "limits.cpu"}, {"name": "other"}, FACTS) == "4"


@pytest.mark.parametrize("reference", [{}, {"resource": "cpu"}, {"resource": "limits.cpu", "containerName": "none"}])
def test_a_wrong_resource_reference_is_refused(reference):
    with pytest.raises(BadReference):
        resource_value(reference, CONTAINER, FACTS)


def test_variables_see_earlier_ones_and_the_base():
    found = env(
        {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(BASE)-$(C)"}, {"name": "C"}, base={"BASE": "b"}
    )

    assert found == {"BASE": "b", "A": "1", "B": "1-b-$(C)", "C": ""}


def test_whole_objects_come_first_and_single_variables_win():
    found = env(
        {"name": "K", "value": "mine"},
        envFrom=[{"prefix": "X_", "configMapRef": {"name": "cm"}}, {"configMapRef": {"name": "cm"}}],
    )

    assert found == {"X_K": "v", "X_L": "w", "K": "mine", "L": "w"}


def test_keys_of_configmaps_and_secrets():
    found = env(
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "K"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "P"}}},
        {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "none", "optional": True}}},
        {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k", "optional": True}}},
        envFrom=[{"secretRef": {"name": "none", "optional": True}}],
    )

    assert found == {"A": "v", "B": "secret"}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, 'configmap "none" not found'),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, "couldn't find key k in secret s"),
        ({"fileKeyRef": {"path": "x"}}, "fileKeyRef"),
    ],
)
def test_what_is_missing_is_named(entry, says):
    with pytest.raises(BadReference, match=says):
        env({"name": "A", "valueFrom": entry})


def test_a_missing_whole_object_is_named():
    with pytest.raises(BadReference, match='secret "none" not found'):
        env(envFrom=[{"secretRef": {"name": "none"}}])


def test_which_objects_a_container_needs():
    containers = [
        {"name": "a", "envFrom": [{"configMapRef": {"name": "c1"}}, {"secretRef": {"name": "s1"}}]},
        {"name": "b", "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}}, {"name": "Y"}]},
    ]

    assert needed(containers) == ({"c1"}, {"s1", "s2"})


IMAGE = LocalImage(("prog", "--fixed"), programs={"llama-server": ("python", "-m", "x")})
REWRITE = Rewriter({"/models": "/real"}, "127.1.0.1")


def argv(**container: list[str]) -> tuple[str, ...]:
    return command({"name": "c", **container}, IMAGE, {"V": "1", "P": "/models/a"}, REWRITE).argv


def test_args_follow_the_entry_point():
    assert argv(args=["--m", "/models/x", "$(V)"]) == ("prog", "--fixed", "--m", "/real/x", "1")


def test_a_command_replaces_the_entry_point():
    assert argv(command=["tool", "/models"], args=["a"]) == ("tool", "/real", "a")


def test_a_command_may_name_a_program_of_the_image():
    assert argv(command=["/app/llama-server"], args=["a"]) == ("python", "-m", "x", "a")
    assert argv(command=["llama-server"]) == ("python", "-m", "x")


def test_values_are_rewritten():
    found = command({"name": "c"}, IMAGE, {"P": "/models/a", "H": "0.0.0.0"}, REWRITE)

    assert found.env == {"P": "/real/a", "H": "127.1.0.1"}
