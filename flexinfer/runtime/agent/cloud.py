"""Spot and shutdown notices of a cloud's metadata service. Off unless asked for: the address belongs to somebody else
where there is no such cloud."""

from collections.abc import Awaitable, Mapping
from typing import Literal, Protocol

from flexinfer.core.hardware import notices
from flexinfer.core.hardware.notices import Notice
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import Clock

Cloud = Literal["off", "aws", "azure", "gcp"]

EVERY_SECONDS = 5.0  # what the clouds recommend


class Read(Protocol):
    """A page with headers; None if it cannot be had."""

    def __call__(
        self, url: str, headers: Mapping[str, str] | None = None, method: Literal["GET", "PUT"] = "GET"
    ) -> Awaitable[bytes | None]: ...


class CloudNotices:
    """One cloud's notices, remembered between its polls."""

    def __init__(self, cloud: Cloud, read: Read, clock: Clock) -> None:
        self._cloud = cloud
        self._read = read
        self._clock = clock
        self._due = 0.0
        self._last: Notice | None = None

    async def look(self) -> Notice | None:
        """The notice as of the last poll."""
        if self._cloud != "off" and self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + EVERY_SECONDS
            self._last = await self._ask()
        return self._last

    async def _ask(self) -> Notice | None:
        if self._cloud == "aws":
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
            token = text_of(await self._read(notices.AWS_SESSION, lifetime, "PUT")).strip()
            headers = {"X-aws-ec2-metadata-token": token} if token.isprintable() and token else {}
            return notices.from_aws(await self._read(notices.AWS_ACTION, headers))
        if self._cloud == "azure":
            return notices.from_azure(await self._read(notices.AZURE_EVENTS, {"Metadata": "true"}))
        google = {"Metadata-Flavor": "Google"}
        preempted = await self._read(notices.GCP_PREEMPTED, google)
        return notices.from_gcp(preempted, await self._read(notices.GCP_MAINTENANCE, google))
