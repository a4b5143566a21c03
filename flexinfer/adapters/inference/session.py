"""One measurement from settings to findings: the client, the seed, the wait, the stages."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from flexinfer.adapters.inference.client import OpenAIClient
from flexinfer.adapters.inference.driver import Driver, Findings, Target
from flexinfer.config.bench import MeasureSettings
from flexinfer.contracts.events import BenchSample, BenchSettings
from flexinfer.core.benchmark.findings import Unusable
from flexinfer.core.benchmark.prompts import request_options
from flexinfer.ports import Clock


@dataclass(frozen=True, slots=True)
class Listener:
    """Told when the server answers (plan, seconds waited) and after each finished request."""

    ready: Callable[[BenchSettings, float], Awaitable[None]]
    sample: Callable[[BenchSample], Awaitable[None]]


async def measure_server(
    settings: MeasureSettings, backend: str, key: str, clock: Clock, listener: Listener
) -> tuple[BenchSettings, Findings]:
    """Everything from checking the settings to the last stage. Raises Unusable."""
    try:
        plan = settings.plan()
    except ValueError as err:
        raise Unusable("BadSettings", str(err)) from err
    client = OpenAIClient(
        settings.url, api=settings.api, timeout=settings.request_timeout, api_key=settings.api_key, ca=settings.ca
    )
    try:
        await client.open()
    except OSError as err:
        raise Unusable("BadSettings", f"the CA file {settings.ca} cannot be used: {err.strerror or err}") from err
    seed = settings.seed or secrets.randbits(62)
    target = Target(
        client=client,
        model=settings.model,
        clock=clock,
        options=request_options(backend, seed),
        seed=seed,
        ready_timeout=settings.ready_timeout,
        time_limit=settings.time_limit,
    )
    driver = Driver(target, plan, key, listener.sample)
    await listener.ready(plan, await driver.ready())
    return plan, await driver.run()
