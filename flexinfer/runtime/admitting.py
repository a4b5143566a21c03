"""Who may connect to the bus, asked of the Kubernetes API: the token's review, and what the rule needs beside it."""

from flexinfer.contracts.kubernetes import CONFIGMAPS, PODS, TOKENREVIEWS, Object, Resource
from flexinfer.contracts.permissions import Grant, Refusal
from flexinfer.core.lifecycle.callers import (
    Caller,
    House,
    agent_grant,
    bench_grant,
    caller_of,
    claimed_key,
    is_agent,
)
from flexinfer.ports import KubeApi, KubeError, KubeUnavailable

LONGEST_TOKEN = 16 << 10


class Door:
    """Decides about one token at a time; nothing is remembered, so that what was revoked stays out."""

    def __init__(self, api: KubeApi, house: House) -> None:
        self._api = api
        self._house = house

    async def admit(self, token: str) -> Grant | Refusal:
        """Never raises for what the API says or does not say."""
        if not token:
            return Refusal("token", "it shows neither a password nor a token")
        if len(token) > LONGEST_TOKEN:
            return Refusal("token", "its token is too long")
        try:
            return await self._decide(token)
        except (KubeError, KubeUnavailable) as err:
            return Refusal("unavailable", f"the Kubernetes API cannot be asked about it: {err}")

    async def _decide(self, token: str) -> Grant | Refusal:
        caller = caller_of(await self._reviewed(token), self._house)
        if isinstance(caller, Refusal):
            return caller
        if is_agent(caller, self._house):
            pod = None if caller.node else await self._pod(caller)
            return agent_grant(caller, pod, self._house)
        pod = await self._pod(caller)
        key = claimed_key(pod)
        claim = await self._one(CONFIGMAPS, key, self._house.namespace) if key else None
        return bench_grant(caller, pod, claim, self._house)

    async def _reviewed(self, token: str) -> Object:
        spec = {"token": token, "audiences": [self._house.audience]}
        body = {"apiVersion": TOKENREVIEWS.api_version, "kind": TOKENREVIEWS.kind, "spec": spec}
        return await self._api.create(TOKENREVIEWS, body)

    async def _pod(self, caller: Caller) -> Object | None:
        return await self._one(PODS, caller.pod, caller.namespace)

    async def _one(self, resource: Resource, name: str, namespace: str) -> Object | None:
        """By a list, which the manager may make anyway, where a get would be one more right."""
        page = await self._api.list(resource, namespace, fields=f"metadata.name={name}")
        return page.items[0] if page.items else None
