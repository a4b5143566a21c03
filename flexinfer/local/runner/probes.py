"""Probes: when to look, what a look says, and how many looks make a verdict."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from flexinfer.contracts.kubernetes import Object

ProbeKind = Literal["startup", "readiness", "liveness"]
Look = tuple[bool, str]


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe with Kubernetes' defaults filled in, seconds."""

    kind: ProbeKind
    action: Object
    delay: float
    period: float
    timeout: float
    successes: int
    failures: int
    grace: float | None = None

    @classmethod
    def parse(cls, kind: ProbeKind, spec: Object) -> "Probe":
        """From ``startupProbe``, ``readinessProbe`` or ``livenessProbe``."""
        grace = spec.get("terminationGracePeriodSeconds")
        return cls(
            kind=kind,
            action=spec,
            delay=float(spec.get("initialDelaySeconds") or 0),
            period=float(spec.get("periodSeconds") or 10),
            timeout=float(spec.get("timeoutSeconds") or 1),
            successes=int(spec.get("successThreshold") or 1),
            failures=int(spec.get("failureThreshold") or 3),
            grace=None if grace is None else float(grace),
        )


def probes_of(container: Object) -> dict[ProbeKind, Probe]:
    """The probes a container declares."""
    kinds: tuple[ProbeKind, ...] = ("startup", "readiness", "liveness")
    return {kind: Probe.parse(kind, container[f"{kind}Probe"]) for kind in kinds if container.get(f"{kind}Probe")}


@dataclass(slots=True)
class Tally:
    """Counts looks in a row; ``holds`` is None until a threshold was reached."""

    probe: Probe
    holds: bool | None = None
    _run: int = 0
    _last: bool | None = None

    def count(self, success: bool) -> bool:  # noqa: FBT001 - the outcome of a look
        """Take one look into account; tells whether the verdict changed."""
        self._run = self._run + 1 if success == self._last else 1
        self._last = success
        needed = self.probe.successes if success else self.probe.failures
        if self._run < needed or self.holds == success:
            return False
        self.holds = success
        return True


Runner = Callable[[list[str], float], Awaitable[Look]]


@dataclass(slots=True)
class Prober:
    """Performs probe and lifecycle actions against one container.

    ``address``: of its pod. ``ports``: its named ports. ``execute``: runs a command beside the container.
    """

    address: str
    ports: Mapping[str, int]
    execute: Runner

    async def look(self, action: Object, limit: float) -> Look:
        """(success, text for people). Any failure to look is a failed look."""
        try:
            async with asyncio.timeout(limit):
                return await self._act(action, limit)
        except TimeoutError:
            return False, f"no answer within {limit:g} s"
        except OSError as err:
            return False, str(err)
        except (ValueError, LookupError) as err:
            return False, f"the probe cannot be run: {err}"

    async def _act(self, action: Object, limit: float) -> Look:
        if "httpGet" in action:
            return await self._http(action["httpGet"])
        if "tcpSocket" in action:
            target = action["tcpSocket"]
            _reader, writer = await asyncio.open_connection(target.get("host") or self.address, self._port(target))
            writer.close()
            return True, ""
        if "exec" in action:
            return await self.execute([str(word) for word in action["exec"].get("command") or ()], limit)
        if "sleep" in action:
            await asyncio.sleep(float(action["sleep"].get("seconds") or 0))
            return True, ""
        kinds = [key for key in ("grpc",) if key in action] or sorted(action)
        raise ValueError(f"{', '.join(kinds)} is not supported here")

    async def _http(self, target: Object) -> Look:
        host, port = str(target.get("host") or self.address), self._port(target)
        secure = str(target.get("scheme") or "HTTP").upper() == "HTTPS"
        reader, writer = await asyncio.open_connection(host, port, ssl=_unverified() if secure else None)
        try:
            writer.write(_request(target, host, port))
            line = await reader.readline()
        finally:
            writer.close()
        words = line.split()
        if len(words) < 2 or not words[0].startswith(b"HTTP/"):
            return False, "the answer is not HTTP"
        status = int(words[1])
        return 200 <= status < 400, f"HTTP probe failed with statuscode: {status}"

    def _port(self, target: Object) -> int:
        port = target.get("port")
        if isinstance(port, str) and not port.isdigit():
            return self.ports[port]
        return int(str(port))


def _unverified() -> ssl.SSLContext:
    """Probes do not verify certificates, as the kubelet's do not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _request(target: Object, host: str, port: int) -> bytes:
    path = str(target.get("path") or "/")
    headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/flexinfer", "Accept": "*/*", "Connection": "close"}
    headers |= {str(entry["name"]): str(entry["value"]) for entry in target.get("httpHeaders") or ()}
    lines = [f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
