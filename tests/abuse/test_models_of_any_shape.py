"""Models of nearly the right shape: the API takes or refuses them, and the manager serves the good one beside them."""

from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.crds import Model, ModelDeployment
from flexinfer.contracts.crds.schema import structural
from flexinfer.local.kubeapi import EmbeddedApi
from tests.abuse.budget import examples
from tests.abuse.shapes import ANY, TEXTS, near
from tests.unit.lifecycle.conftest import Sim

ROOT = Path(__file__).parents[2]
PLURALS = {"Model": "models", "ModelDeployment": "modeldeployments"}
SPECS = {
    kind: structural(cls)["properties"]["spec"]
    for kind, cls in (("Model", Model), ("ModelDeployment", ModelDeployment))
}
VERSIONS = {"Model": "v1alpha2", "ModelDeployment": "v1alpha1"}
KINDS = st.sampled_from(sorted(SPECS))
WITH_SPEC = KINDS.flatmap(lambda kind: st.tuples(st.just(kind), near(SPECS[kind])))


@examples(20)
@given(st.lists(WITH_SPEC, min_size=1, max_size=3))
def test_the_manager_serves_the_good_model_beside_bad_ones(strange: list[tuple[str, Any]]) -> None:
    sim = Sim()
    sim.node()
    for number, (kind, spec) in enumerate(strange):
        if isinstance(spec, dict):
            sim.apply(f"strange-{number}", kind, **{key: value for key, value in spec.items() if key.isidentifier()})
    sim.apply("good", benchmark={"enabled": False})

    sim.run()

    assert sim.status("good")["phase"] == "Running"


async def _post(api: EmbeddedApi, path: str, body: bytes) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"authorization", f"Bearer {api.token}".encode()), (b"content-type", b"application/json")],
    }  # fmt: skip
    await api._app(scope, receive, send)
    return int(sent[0]["status"])


@examples(60)
@given(WITH_SPEC, st.sampled_from(["good-name", *TEXTS]) | ANY, ANY)
async def test_the_api_takes_an_object_or_says_why_not(found: tuple[str, Any], name: Any, status: Any) -> None:
    kind, spec = found
    api = await _with_crds()
    version = VERSIONS[kind]
    obj = {
        "apiVersion": f"ai.flexinfer/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }
    path = f"/apis/ai.flexinfer/{version}/namespaces/default/{PLURALS[kind]}"

    assert await _post(api, path, msgspec.json.encode(obj)) in {201, 400, 409, 422}


async def _with_crds() -> EmbeddedApi:
    if not _APIS:
        api = EmbeddedApi(controllers=False)
        for file in sorted((ROOT / "deploy/crds").glob("*.yaml")):
            crd = msgspec.json.encode(yaml.safe_load(file.read_text()))
            assert await _post(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd) == 201
        _APIS.append(api)
    return _APIS[0]


_APIS: list[EmbeddedApi] = []
