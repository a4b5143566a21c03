"""The hands that break things: one method per kind of fault. One that finds nothing to act on says so."""

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import nats
from nats.errors import Error as NatsError

from flexinfer.contracts.kubernetes import CONFIGMAPS, DEPLOYMENTS, JOBS, MODELDEPLOYMENTS, PODS, Object
from flexinfer.ports import KubeError, KubeUnavailable
from tests.faults.deck import Fault
from tests.faults.house import House, children_in
from tests.faults.invariants import Invariants

IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
SPACES = {"m0": "default", "m1": "default", "m2": "other", "m3": "other"}
SOURCES = {"m0": "a", "m1": "a", "m2": "a", "m3": "b"}  # three models of one identity while their images agree


def model(slot: str, number: int) -> Object:
    """The object of a slot; ``number`` chooses the image, and with it the identity of its benchmark."""
    return {
        "apiVersion": MODELDEPLOYMENTS.api_version, "kind": MODELDEPLOYMENTS.kind,
        "metadata": {"name": slot, "namespace": SPACES[slot]},
        "spec": {
            "backend": "llamacpp", "model": f"hf://example/{SOURCES[slot]}-GGUF", "image": f"{IMAGE}-b{number % 4}",
            "replicas": 1, "minReplicas": 0, "idleTimeoutSeconds": 600, "coldStartTimeoutSeconds": 30,
            "gpu": {"vendor": "auto", "count": 1, "vramEstimateMB": 4000},
            "benchmark": {
                "concurrency": [1], "minDuration": "1s", "iterations": 1, "warmupIterations": 0, "batchSize": 8,
            },
        },
    }  # fmt: skip


class Hands:
    """``calm`` ends what lasts before its time."""

    def __init__(self, house: House, seen: Invariants) -> None:
        self.house = house
        self.seen = seen
        self.calm = asyncio.Event()
        self._busy: set[str] = set()
        self._do: dict[str, Callable[[Fault], Awaitable[bool]]] = {
            "kill": self._kill, "restart": self._restart, "freeze": self._freeze, "bus-restart": self._bus,
            "bus-wipe": self._bus, "bus-freeze": self._bus_freeze, "api-restart": self._restart,
            "api-freeze": self._freeze, "cut": self._cut, "hold": self._hold, "flap": self._flap,
            "drop-stream": self._stream, "drop-claim": self._claim, "drop-pod": self._pod, "drop-job": self._job,
            "drop-deployment": self._deployment, "kill-engine": self._engine, "create": self._create,
            "delete": self._delete, "scale": self._change, "update": self._change, "sleep": self._change,
        }  # fmt: skip

    async def inject(self, fault: Fault) -> bool:
        """Do it, and undo it after its time; whether it could be done."""
        what = {"api": "api", "bus": "nats"}.get(fault.kind.split("-")[0], fault.target)
        exclusive = what if fault.kind in {
            "kill", "restart", "freeze", "hold", "flap", "bus-restart", "bus-wipe", "bus-freeze", "api-restart",
            "api-freeze",
        } else ""  # fmt: skip
        if exclusive in self._busy:
            return False
        if exclusive:
            self._busy.add(exclusive)
        try:
            return await self._do[fault.kind](fault)
        except (KubeError, KubeUnavailable, NatsError, OSError, TimeoutError):
            return False  # what was to be broken is away already
        finally:
            self._busy.discard(exclusive)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.calm.wait(), seconds)

    # --- processes ---------------------------------------------------------------------------------------------

    async def _kill(self, fault: Fault) -> bool:
        program = self.house.programs[fault.target]
        await program.kill()
        await self._wait(fault.seconds)
        await program.start()
        return True

    async def _restart(self, fault: Fault) -> bool:
        program = self.house.programs[fault.target or "api"]
        await program.end()
        await self._wait(fault.seconds)
        await program.start()
        return True

    async def _freeze(self, fault: Fault) -> bool:
        program = self.house.programs[fault.target or "api"]
        program.signal(signal.SIGSTOP)
        await self._wait(fault.seconds)
        program.signal(signal.SIGCONT)
        return True

    async def _bus(self, fault: Fault) -> bool:
        await self.house.nats.kill()
        if fault.kind == "bus-wipe":
            await asyncio.to_thread(shutil.rmtree, self.house.nats.store, ignore_errors=True)
        await self._wait(fault.seconds)
        await self.house.nats.start()
        return True

    async def _bus_freeze(self, fault: Fault) -> bool:
        process = self.house.nats.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        await self._wait(fault.seconds)
        process.send_signal(signal.SIGCONT)
        return True

    async def _engine(self, fault: Fault) -> bool:
        found = sorted(await asyncio.to_thread(children_in, self.house.folder, "flexinfer.local.fleet.engine"))
        if not found:
            return False
        os.kill(found[fault.number % len(found)][0], signal.SIGKILL)
        return True

    # --- network -----------------------------------------------------------------------------------------------

    async def _cut(self, fault: Fault) -> bool:
        return self.house.links[fault.target].cut() > 0

    async def _hold(self, fault: Fault) -> bool:
        link = self.house.links[fault.target]
        link.hold(fault.way)
        await self._wait(fault.seconds)
        link.heal()
        return True

    async def _flap(self, fault: Fault) -> bool:
        link = self.house.links[fault.target]
        for _ in range(3 + fault.number % 5):
            link.refusing = not link.refusing
            link.cut()
            await self._wait(0.3)
        link.heal()
        return True

    async def _stream(self, fault: Fault) -> bool:
        client = await nats.connect(self.house.nats.url, connect_timeout=2, max_reconnect_attempts=0)
        try:
            answer = await client.request(f"$JS.API.STREAM.DELETE.{fault.target}", b"", timeout=5)
        finally:
            await client.close()
        return bool(msgspec.json.decode(answer.data).get("success"))

    # --- objects -----------------------------------------------------------------------------------------------

    async def _claim(self, fault: Fault) -> bool:
        claims = sorted(self.seen.claims)
        if not claims:
            return False
        await self.house.kube.delete(CONFIGMAPS, claims[fault.number % len(claims)], "flexinfer-system")
        return True

    async def _pod(self, fault: Fault) -> bool:
        uid = (self.seen.models.get((SPACES[fault.target], fault.target)) or {"metadata": {}})["metadata"].get("uid")
        pods = sorted(
            name for name, pod in self.seen.pods.items()
            if uid and uid in (pod["metadata"].get("labels") or {}).values()
        )  # fmt: skip
        if not pods:
            return False
        namespace, name = pods[fault.number % len(pods)]
        await self.house.kube.delete(PODS, name, namespace, grace_seconds=fault.number % 2)
        return True

    async def _job(self, fault: Fault) -> bool:
        jobs = sorted(self.seen.jobs)
        if not jobs:
            return False
        namespace, name = jobs[fault.number % len(jobs)]
        await self.house.kube.delete(JOBS, name, namespace)
        return True

    async def _deployment(self, fault: Fault) -> bool:
        await self.house.kube.delete(DEPLOYMENTS, fault.target, SPACES[fault.target])
        return True

    async def _create(self, fault: Fault) -> bool:
        await self.house.kube.create(MODELDEPLOYMENTS, model(fault.target, fault.number), SPACES[fault.target])
        return True

    async def _delete(self, fault: Fault) -> bool:
        await self.house.kube.delete(MODELDEPLOYMENTS, fault.target, SPACES[fault.target])
        return True

    async def _change(self, fault: Fault) -> bool:
        spec: Object = {
            "scale": {"replicas": fault.number % 3 if fault.target == "m3" else fault.number % 2},
            "update": {"image": f"{IMAGE}-b{fault.number}"},
            "sleep": {"idleTimeoutSeconds": 2 if fault.number % 2 else 600, "replicas": 1},
        }[fault.kind]
        await self.house.kube.patch(MODELDEPLOYMENTS, fault.target, {"spec": spec}, SPACES[fault.target])
        return True
