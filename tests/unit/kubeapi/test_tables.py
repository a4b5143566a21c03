"""Ages, cells and columns."""

import pytest

from flexinfer.local.kubeapi.columns import age, pod_status
from flexinfer.local.kubeapi.kinds import Column
from flexinfer.local.kubeapi.tables import cell, lookup, table_of


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [
        (-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (599, "9m59s"), (600, "10m"),
        (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (5 * 3600 + 60, "5h1m"), (8 * 3600, "8h"), (47 * 3600, "47h"),
        (48 * 3600, "2d"), (50 * 3600, "2d2h"), (8 * 86400, "8d"), (400 * 86400, "400d"), (730 * 86400, "2y"),
        (740 * 86400, "2y10d"),
    ],
)  # fmt: skip
def test_ages_are_written_as_kubectl_does(elapsed, text):
    assert age(elapsed) == text


def container(state, ready=False, restarts=0, name="c"):
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


RUNNING = {"running": {}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Pending"}, ("Pending", 0, 1, 0)),
        ({"phase": "Running", "containerStatuses": [container(RUNNING, ready=True)]}, ("Running", 1, 1, 0)),
        (
            {
                "phase": "Running",
                "containerStatuses": [container({"waiting": {"reason": "CrashLoopBackOff"}}, restarts=3)],
            },
            ("CrashLoopBackOff", 0, 1, 3),
        ),
        (
            {"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 2}})]},
            ("ExitCode:2", 0, 1, 0),
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [container({"terminated": {"reason": "Completed"}})]},
            ("Completed", 0, 1, 0),
        ),
        ({"phase": "Failed", "reason": "Evicted"}, ("Evicted", 0, 1, 0)),
    ],
)
def test_the_status_of_a_pod(status, expected):
    assert pod_status({"metadata": {}, "spec": {"containers": [{"name": "c"}]}, "status": status}) == expected


def test_sidecars_count_and_waiting_init_containers_show():
    spec = {
        "containers": [{"name": "c"}],
        "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "setup"}],
    }
    statuses = [container(RUNNING, ready=True, name="side") | {"started": True}]
    status = {"phase": "Pending", "initContainerStatuses": [*statuses, container(RUNNING, name="setup")]}
    assert pod_status({"metadata": {}, "spec": spec, "status": status}) == ("Init:1/2", 1, 2, 0)


def test_a_pod_that_is_going_says_so():
    pod = {"metadata": {"deletionTimestamp": "x"}, "spec": {"containers": []}, "status": {"phase": "Running"}}
    assert pod_status(pod)[0] == "Terminating"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.a", [1]),
        (".spec.none", []),
        (".spec.l[0].v", ["x"]),
        (".spec.l[*].v", ["x", "y"]),
        (".spec.l[9].v", []),
        ('.spec.l[?(@.n=="two")].v', ["y"]),
        (".spec.m['a.b/c']", ["z"]),
        (".spec.a.b.c", []),
    ],
)
def test_json_paths_of_columns(path, expected):
    obj = {"spec": {"a": 1, "l": [{"n": "one", "v": "x"}, {"n": "two", "v": "y"}], "m": {"a.b/c": "z"}}}
    assert lookup(obj, path) == expected


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "x", "x"),
        ("string", 5, "5"),
        ("string", {"a": 1}, '{"a":1}'),
        ("integer", 5, 5),
        ("boolean", True, True),
        ("date", "2023-11-14T22:13:20Z", "100s"),
        ("date", "no date", None),
    ],
)
def test_cells(kind, value, expected):
    assert cell({"v": value}, Column("C", kind, ".v"), 1_700_000_100.0) == expected


def test_every_built_in_kind_has_a_table(cluster):
    for kind in cluster.registry.catalog.kinds():
        obj = {**kind.head(), "metadata": {"name": "x", "creationTimestamp": "2023-11-14T22:13:20Z"}, "spec": {}}
        table = table_of(kind, [obj], 1_700_000_100.0, "Metadata", {})
        assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"]), kind.resource
        assert table["rows"][0]["object"]["metadata"]["name"] == "x"
