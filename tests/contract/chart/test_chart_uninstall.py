"""The hooks of helm uninstall: when they run, with what rights, and what of them stays."""

import pytest
from chart_rendering import Object, Render


def hooks(objects: list[Object]) -> list[Object]:
    return [obj for obj in objects if "-uninstall" in obj["metadata"]["name"]]


def annotation(obj: Object, name: str) -> str:
    return str(obj["metadata"]["annotations"][f"helm.sh/{name}"])


def commands(objects: list[Object]) -> dict[str, list[str]]:
    """When each Job runs, and what."""
    jobs = [obj for obj in hooks(objects) if obj["kind"] == "Job"]
    containers = [(job, job["spec"]["template"]["spec"]["containers"][0]) for job in jobs]
    return {annotation(job, "hook"): [*c["command"], *c.get("args", [])] for job, c in containers}


def test_nodes_and_models_are_cleaned_once_the_release_is_gone(render: Render) -> None:
    assert commands(render()) == {"post-delete": ["flexinfer", "clean"]}


def test_where_the_models_would_go_they_are_a_reason_to_refuse(render: Render) -> None:
    expected = {"pre-delete": ["flexinfer", "clean", "--refuse-models"], "post-delete": ["flexinfer", "clean"]}

    assert commands(render("--set", "crds.keep=false")) == expected
    # CRDs of somebody else stay.
    assert "pre-delete" not in commands(render("--set", "crds.keep=false,crds.install=false"))


@pytest.mark.parametrize("values", [(), ("--set", "crds.keep=false"), ("--set", "manager.watchNamespace=models")])
def test_everything_of_a_hook_goes_with_it_and_its_rights_come_first(render: Render, values: tuple[str, ...]) -> None:
    objects = hooks(render(*values))
    on = {annotation(job, "hook") for job in objects if job["kind"] == "Job"}
    for obj in objects:
        assert annotation(obj, "hook-delete-policy") == "before-hook-creation,hook-succeeded"
        assert annotation(obj, "hook-weight") == ("1" if obj["kind"] == "Job" else "0")
        if obj["kind"] != "Job":
            assert set(annotation(obj, "hook").split(",")) == on


def test_its_rights_are_to_look_and_to_patch(render: Render) -> None:
    def verbs(objects: list[Object]) -> dict[tuple[str, str], list[str]]:
        return {
            (obj["kind"], resource): rule["verbs"]
            for obj in hooks(objects)
            for rule in obj.get("rules") or ()
            for resource in rule["resources"]
        }

    look = ["list", "patch"]
    everywhere = {("ClusterRole", "models"): look, ("ClusterRole", "modeldeployments"): look}
    pods = {("Role", "pods"): ["list"], ("ClusterRole", "nodes"): look}
    assert verbs(render()) == {**everywhere, **pods}
    one = {("Role", "models"): look, ("Role", "modeldeployments"): look}
    assert verbs(render("--set", "manager.watchNamespace=models")) == {**one, **pods}


def test_it_needs_nothing_of_the_release_that_is_gone_and_has_a_limit(render: Render) -> None:
    [job] = [
        obj
        for obj in hooks(render("--set", "uninstall.timeout=90s", "--set", "manager.tolerations[0].operator=Exists"))
        if obj["kind"] == "Job"
    ]
    pod = job["spec"]["template"]["spec"]

    told = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
    assert (job["spec"]["activeDeadlineSeconds"], told["FLEXINFER_WAIT"]) == (90, "45s")
    assert "priorityClassName" not in pod
    assert "volumes" not in pod
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_by_value_there_is_none(render: Render) -> None:
    assert hooks(render("--set", "uninstall.clean=false")) == []
