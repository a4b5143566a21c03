"""ConfigMaps, Secrets and tokens that pods refer to, read from the API when a container starts."""

import base64
import binascii
from collections.abc import Iterable, Mapping

from flexinfer.contracts.kubernetes import CONFIGMAPS, SECRETS, Object, Resource
from flexinfer.local.runner.downward import BadReference
from flexinfer.local.runner.environment import Data
from flexinfer.ports import KubeApi, KubeError, NotFound


class ClusterData:
    """Reads; nothing is cached, a restarted container sees the current content."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def content(self, kind: Resource, namespace: str, name: str) -> dict[str, bytes] | None:
        """Key → bytes of a ConfigMap or Secret, None if it does not exist. Raises BadReference, KubeUnavailable."""
        try:
            found = await self._api.get(kind, name, namespace)
        except NotFound:
            return None
        except KubeError as err:
            raise BadReference(f"{kind.kind} {name}: {err}") from err
        return _secret(found, name) if kind is SECRETS else _configmap(found, name)

    async def data(self, namespace: str, configmaps: Iterable[str], secrets: Iterable[str]) -> Data:
        """What the environment of a pod refers to. Raises BadReference, KubeUnavailable."""
        return Data(
            configmaps=await self._texts(CONFIGMAPS, namespace, configmaps),
            secrets=await self._texts(SECRETS, namespace, secrets),
        )

    async def _texts(self, kind: Resource, namespace: str, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        found = {}
        for name in sorted(names):
            content = await self.content(kind, namespace, name)
            if content is not None:
                found[name] = {key: value.decode(errors="replace") for key, value in content.items()}
        return found

    async def token(self, kind: Resource, namespace: str, account: str, pod: Object, wanted: Object) -> str:
        """A ServiceAccount token bound to the pod. Raises BadReference, KubeUnavailable."""
        meta = pod["metadata"]
        spec: Object = {
            "expirationSeconds": int(wanted.get("expirationSeconds") or 3600),
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta.get("uid")},
        }
        if wanted.get("audience"):
            spec["audiences"] = [wanted["audience"]]
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": account, "namespace": namespace},
            "spec": spec,
        }
        try:
            answer = await self._api.create(kind, body, namespace, subresource="token")
        except KubeError as err:
            raise BadReference(f"token of ServiceAccount {account}: {err}") from err
        return str((answer.get("status") or {}).get("token") or "")


def _configmap(found: Object, name: str) -> dict[str, bytes]:
    content = {str(key): str(value).encode() for key, value in (found.get("data") or {}).items()}
    return content | _decoded(found.get("binaryData") or {}, name)


def _secret(found: Object, name: str) -> dict[str, bytes]:
    return _decoded(found.get("data") or {}, name)


def _decoded(pairs: Mapping[str, object], name: str) -> dict[str, bytes]:
    try:
        return {str(key): base64.b64decode(str(value)) for key, value in pairs.items()}
    except binascii.Error as err:
        raise BadReference(f"{name} holds a value that is not base64") from err
