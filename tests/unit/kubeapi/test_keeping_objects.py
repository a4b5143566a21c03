"""Objects on disk: what is read is what was written, or the file is refused with a sentence."""

import asyncio
import json
from pathlib import Path

import pytest

from flexinfer.local.errors import UserError
from flexinfer.local.kept import Ports, claim, kept_objects
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.kubeapi.keeping import FILE, VERSION_GAP, DamagedState, Keeper, Kept, read_kept
from flexinfer.local.kubeapi.store import Store
from flexinfer.local.ports import free_port


def config_map(name: str, **data: str):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def pod(name: str, node: str | None = None, namespace: str = "default"):
    spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def written(folder: Path, *names: str) -> Store:
    """A store with config maps, kept in ``folder``."""
    store = Store()
    for name in names:
        store.put("configmaps", ("default", name), config_map(name, k="v"))
    asyncio.run(Keeper(store, folder).save())
    return store


def test_what_is_kept_comes_back_with_identity_and_growing_versions(tmp_path: Path) -> None:
    first = EmbeddedApi(folder=tmp_path, controllers=False)
    kind = first.catalog.by_kind("v1", "ConfigMap")
    assert kind is not None
    made = first.registry.create(kind, "default", config_map("a", k="v"))
    asyncio.run(first.freeze())

    second = EmbeddedApi(kept=read_kept(tmp_path), controllers=False)
    found = second.registry.get(kind, "default", "a")

    assert found.obj == made.obj
    assert second.store.version >= first.store.version + VERSION_GAP
    assert second.registry.create(kind, "default", config_map("b")).version > second.store.version - 2
    # A watch from the run before is told to list again: nobody has the history in between.
    assert second.store.bucket("configmaps").position_after(first.store.version) is None
    assert second.store.bucket("secrets").position_after(first.store.version) is None


def test_kinds_of_kept_definitions_are_served_again(tmp_path: Path) -> None:
    from flexinfer.contracts.crds import crd_manifests  # noqa: PLC0415 - of this test alone

    first = EmbeddedApi(folder=tmp_path, controllers=False)
    kind = first.catalog.by_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert kind is not None
    for crd in crd_manifests():
        first.registry.create(kind, "", crd)
    asyncio.run(first.freeze())

    second = EmbeddedApi(kept=read_kept(tmp_path), controllers=False)

    assert second.catalog.by_kind("ai.flexinfer/v1alpha1", "ModelDeployment") is not None


def test_after_a_freeze_nothing_more_is_kept(tmp_path: Path) -> None:
    api = EmbeddedApi(folder=tmp_path, controllers=False)
    asyncio.run(api.freeze())
    before = (tmp_path / FILE).read_bytes()
    kind = api.catalog.by_kind("v1", "ConfigMap")
    assert kind is not None
    api.registry.create(kind, "default", config_map("late"))
    asyncio.run(api.freeze())

    assert (tmp_path / FILE).read_bytes() == before


async def test_a_change_is_kept_without_being_asked(tmp_path: Path) -> None:
    api = await EmbeddedApi(folder=tmp_path, controllers=False).start()
    try:
        kind = api.catalog.by_kind("v1", "ConfigMap")
        assert kind is not None
        api.registry.create(kind, "default", config_map("a"))
        async with asyncio.timeout(60):
            while "configmaps" not in (getattr(read_kept(tmp_path), "objects", None) or {}):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)
    finally:
        await api.stop()


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    written(tmp_path, "a")

    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_no_file_is_an_empty_start(tmp_path: Path) -> None:
    assert read_kept(tmp_path) is None


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    written(tmp_path, "a", "b")
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-cut])

    with pytest.raises(DamagedState, match=r"is damaged: .*; move it away to start without objects"):
        read_kept(tmp_path)


@pytest.mark.parametrize("at", [0, 3, 60, 170, -3])
def test_a_file_with_a_changed_byte_is_refused_as_a_sentence(tmp_path: Path, at: int) -> None:
    written(tmp_path / "api", "a", "b")
    path = tmp_path / "api" / FILE
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x41
    path.write_bytes(bytes(raw))

    with pytest.raises(UserError, match=r"objects\.jsonl"):
        kept_objects(tmp_path)


def test_a_file_of_a_newer_release_is_refused_by_its_format(tmp_path: Path) -> None:
    header = {"flexinfer": "kubernetes objects", "format": 2, "version": 1, "sha256": ""}
    (tmp_path / FILE).write_text(json.dumps(header) + "\n")

    with pytest.raises(DamagedState, match="format 2 is newer than this release reads"):
        read_kept(tmp_path)


def test_a_full_disk_costs_a_save_and_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = written(tmp_path, "a")

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    store.put("configmaps", ("default", "b"), config_map("b"))
    asyncio.run(Keeper(store, tmp_path).save())

    kept = read_kept(tmp_path)
    assert kept is not None
    assert [obj["metadata"]["name"] for obj in kept.objects["configmaps"]] == ["a"]


def test_a_reboot_ends_leases_foreign_nodes_and_their_pods() -> None:
    kept = Kept(7, {
        "leases.coordination.k8s.io": [{"metadata": {"name": "manager", "namespace": "flexinfer-system"}}],
        "nodes": [{"metadata": {"name": "here"}}, {"metadata": {"name": "virtual-1"}}],
        "pods": [pod("mine", "here"), pod("theirs", "virtual-1"), pod("waiting"),
                 pod("flexinfer-manager", "here", "flexinfer-system")],
        "configmaps": [config_map("a")],
    })  # fmt: skip

    left = kept.after_reboot({"here"}, {"flexinfer-system/flexinfer-manager"})

    names = {bucket: [obj["metadata"]["name"] for obj in objects] for bucket, objects in left.objects.items()}
    assert names == {
        "leases.coordination.k8s.io": [], "nodes": ["here"], "pods": ["mine", "waiting"], "configmaps": ["a"],
    }  # fmt: skip
    assert (left.version, left.count, left.gone) == (7, 4, ("virtual-1",))


def test_a_directory_has_one_user(tmp_path: Path) -> None:
    claim(tmp_path / "state")

    with pytest.raises(UserError, match="another flexinfer up uses it"):
        claim(tmp_path / "state")


def test_a_directory_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UserError, match="cannot be used"):
        claim(tmp_path / "file" / "state")


def test_ports_are_those_of_the_run_before_where_they_are_free(tmp_path: Path) -> None:
    first = Ports(tmp_path).pick("proxy")

    assert Ports(tmp_path).pick("proxy") == first
    (tmp_path / "ports.json").write_text("{")
    assert Ports(tmp_path).pick("proxy") > 0
    assert Ports(None).pick("proxy") != free_port()
