"""The Python client library, as it comes, against the server."""

import asyncio

import pytest
from kubernetes_asyncio import client, watch
from kubernetes_asyncio.client.exceptions import ApiException


@pytest.fixture
async def library(api_server):
    configuration = client.Configuration(host=api_server.url)
    configuration.api_key = {"BearerToken": f"Bearer {api_server.token}"}
    configuration.verify_ssl = False
    async with client.ApiClient(configuration) as api:
        yield api


async def test_typed_objects_go_round(library, namespace):
    core = client.CoreV1Api(library)
    pod = client.V1Pod(
        metadata=client.V1ObjectMeta(name="p", labels={"a": "b"}),
        spec=client.V1PodSpec(
            containers=[client.V1Container(name="c", image="example/c:1")], automount_service_account_token=False
        ),
    )
    made = await core.create_namespaced_pod(namespace, pod)
    assert made.metadata.uid
    found = await core.list_namespaced_pod(namespace, label_selector="a=b", field_selector="status.phase=Pending")
    assert [item.metadata.name for item in found.items] == ["p"]
    patched = await core.patch_namespaced_pod("p", namespace, {"metadata": {"labels": {"c": "d"}}})
    assert patched.metadata.labels == {"a": "b", "c": "d"}
    await core.delete_namespaced_pod("p", namespace)
    with pytest.raises(ApiException) as caught:
        await core.read_namespaced_pod("p", namespace)
    assert caught.value.status == 404


async def test_its_watch_follows_changes(library, namespace):
    core = client.CoreV1Api(library)
    listed = await core.list_namespaced_config_map(namespace)
    seen = []

    async def follow():
        stream = watch.Watch()
        arguments = {"resource_version": listed.metadata.resource_version, "timeout_seconds": 10}
        async for event in stream.stream(core.list_namespaced_config_map, namespace, **arguments):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                break
        await stream.close()

    task = asyncio.get_running_loop().create_task(follow())
    await core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a")))
    await core.delete_namespaced_config_map("a", namespace)
    await asyncio.wait_for(task, 20)
    assert seen == [("ADDED", "a"), ("DELETED", "a")]


async def test_custom_objects(library, widgets):
    custom = client.CustomObjectsApi(library)
    place = (widgets.group, "v1", widgets.namespace, "widgets")
    made = await custom.create_namespaced_custom_object(*place, widgets.body("w"))
    assert made["spec"]["replicas"] == 1
    merge = {"_content_type": "application/merge-patch+json"}
    await custom.patch_namespaced_custom_object_status(*place, "w", {"status": {"phase": "Up"}}, **merge)
    apply = {"_content_type": "application/apply-patch+yaml", "field_manager": "tests", "force": True}
    applied = await custom.patch_namespaced_custom_object(*place, "w", widgets.body("w", replicas=2), **apply)
    assert applied["spec"]["replicas"] == 2
    assert applied["status"] == {"phase": "Up"}
    listed = await custom.list_namespaced_custom_object(*place)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["w"]
    await custom.delete_namespaced_custom_object(*place, "w")
    # A dictionary is taken for a JSON patch by this library; that must fail as it does on a real server.
    await custom.create_namespaced_custom_object(*place, widgets.body("w"))
    with pytest.raises(ApiException) as caught:
        await custom.patch_namespaced_custom_object(*place, "w", {"spec": {"replicas": 3}})
    assert caught.value.status == 400


async def test_leases(library, namespace):
    leases = client.CoordinationV1Api(library)
    body = client.V1Lease(
        metadata=client.V1ObjectMeta(name="l"), spec=client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=15)
    )
    lease = await leases.create_namespaced_lease(namespace, body)
    lease.spec.holder_identity = "b"
    await leases.replace_namespaced_lease("l", namespace, lease)
    lease.spec.holder_identity = "c"
    with pytest.raises(ApiException) as caught:
        await leases.replace_namespaced_lease("l", namespace, lease)
    assert caught.value.status == 409
