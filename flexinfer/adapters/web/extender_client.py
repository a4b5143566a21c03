"""The calling side of the extender protocol, with request bodies of the shape kube-scheduler sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from flexinfer.contracts.extender import HostPriority
from flexinfer.contracts.kubernetes import Object

_HEADERS = {"Content-Type": "application/json", "User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}


class ExtenderFailed(Exception):
    """No answer, an answer that is no filter result, or one with ``Error``; the text is for the pod's events."""


class _Filtered(msgspec.Struct, frozen=True):
    names: tuple[str, ...] | None = msgspec.field(name="NodeNames", default=None)
    failed: dict[str, str] | None = msgspec.field(name="FailedNodes", default=None)
    final: dict[str, str] | None = msgspec.field(name="FailedAndUnresolvableNodes", default=None)
    error: str = msgspec.field(name="Error", default="")


@dataclass(frozen=True, slots=True)
class Filtered:
    """Names that passed, and the reason for each that did not."""

    names: tuple[str, ...]
    reasons: Mapping[str, str]


_decode_filtered = msgspec.json.Decoder(_Filtered).decode
_decode_scores = msgspec.json.Decoder(tuple[HostPriority, ...]).decode


def request_body(pod: Object, names: Sequence[str]) -> bytes:
    """``{"Pod": …, "Nodes": null, "NodeNames": […]}``; the Pod has no kind and no apiVersion, as from Go."""
    bare = {key: value for key, value in pod.items() if key not in {"kind", "apiVersion"}}
    return msgspec.json.encode({"Pod": bare, "Nodes": None, "NodeNames": list(names)})


class ExtenderClient:
    """One extender; make it on the running loop, end it with ``aclose``."""

    def __init__(self, url: str, *, limit: float = 5.0) -> None:
        """``limit``: seconds per call, kube-scheduler's default unless given."""
        self._url = url.rstrip("/")
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=limit), headers=_HEADERS)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def filter(self, pod: Object, names: Sequence[str]) -> Filtered:
        """Raises ExtenderFailed."""
        raw = await self._post("filter", request_body(pod, names))
        try:
            found = _decode_filtered(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise ExtenderFailed(f"the extender's answer is no filter result: {err}") from err
        if found.error:
            raise ExtenderFailed(found.error)
        foreign = set(found.names or ()) - set(names)
        if foreign:
            raise ExtenderFailed(f"the extender claims a node that was not asked about: {min(foreign)}")
        return Filtered(found.names or (), {**(found.failed or {}), **(found.final or {})})

    async def prioritize(self, pod: Object, names: Sequence[str]) -> dict[str, int]:
        """Scores by node; empty if the extender gives none, because its scores are advice. Raises ExtenderFailed."""
        raw = await self._post("prioritize", request_body(pod, names))
        try:
            return {one.host: one.score for one in _decode_scores(raw)}
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise ExtenderFailed(f"the extender's answer is no priority list: {err}") from err

    async def _post(self, verb: str, body: bytes) -> bytes:
        url = f"{self._url}/{verb}"
        try:
            async with self._session.post(url, data=body) as response:
                raw = await response.read()
                if response.status != 200:
                    raise ExtenderFailed(f"the extender at {url} answered {response.status}")
                return raw
        except (aiohttp.ClientError, TimeoutError) as err:
            raise ExtenderFailed(f"the extender at {url} did not answer: {str(err) or type(err).__name__}") from err
