"""Kubernetes Events: aggregated, bounded, and never in the way."""

import asyncio

import pytest

from flexinfer.adapters.kube import recorder as module
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.contracts.kubernetes import CONFIGMAPS, EVENTS
from flexinfer.ports import KubeUnavailable
from flexinfer.telemetry import metrics

NS = "default"


class Time:
    def __init__(self) -> None:
        self.at = 1_800_000_000.25

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
async def regarding(direct, configmap):
    return await direct.create(CONFIGMAPS, configmap("a"), NS)


async def events(direct) -> list[dict]:
    found = await direct.list(EVENTS, NS)
    return sorted(found.items, key=lambda event: event["reason"])


async def test_an_event_says_who_what_and_about_whom(api, direct, regarding):
    recorder = EventRecorder(api, "manager", Time(), instance="m-1")
    recorder.emit(regarding, "Normal", "Deployed", "the model is deployed")
    await recorder.flush()

    (event,) = await events(direct)
    assert event["type"] == "Normal"
    assert event["reason"] == "Deployed"
    assert event["note"] == "the model is deployed"
    assert event["regarding"]["name"] == "a"
    assert event["regarding"]["uid"] == regarding["metadata"]["uid"]
    assert event["reportingController"] == "flexinfer.ai/manager"
    assert event["reportingInstance"] == "m-1"
    assert event["eventTime"] == "2027-01-15T08:00:00.250000Z"


async def test_repeats_become_a_series(api, direct, regarding):
    clock = Time()
    recorder = EventRecorder(api, "manager", clock)
    for _ in range(3):
        recorder.emit(regarding, "Warning", "Failed", "no")
        await recorder.flush()
        clock.at += 10

    (event,) = await events(direct)
    assert event["series"]["count"] == 3
    assert event["series"]["lastObservedTime"] == "2027-01-15T08:00:20.250000Z"


async def test_a_repeat_after_the_series_ended_is_a_new_event(api, direct, regarding):
    clock = Time()
    recorder = EventRecorder(api, "manager", clock)
    recorder.emit(regarding, "Warning", "Failed", "no")
    await recorder.flush()
    clock.at += module.SERIES_SECONDS + 1
    recorder.emit(regarding, "Warning", "Failed", "no")
    await recorder.flush()

    assert len(await events(direct)) == 2


async def test_a_series_whose_event_is_gone_starts_again(api, direct, regarding):
    recorder = EventRecorder(api, "manager", Time())
    recorder.emit(regarding, "Warning", "Failed", "no")
    await recorder.flush()
    (event,) = await events(direct)
    await direct.delete(EVENTS, event["metadata"]["name"], NS)

    recorder.emit(regarding, "Warning", "Failed", "no")
    await recorder.flush()
    await recorder.flush()

    (again,) = await events(direct)
    assert again["metadata"]["name"] != event["metadata"]["name"]


async def test_what_is_emitted_before_it_runs_is_written_when_it_does(api, direct, regarding, tasks, until):
    recorder = EventRecorder(api, "manager", Time())
    for number in range(20):
        recorder.emit(regarding, "Normal", f"Reason{number:02}", "m")
    task = tasks.once("events", recorder.run())

    written = {"type": "Normal"}
    before = metrics.value_of("flexinfer_kube_events_total", written)
    await until(lambda: metrics.value_of("flexinfer_kube_events_total", written) >= before + 20)
    task.cancel()

    assert len(await events(direct)) == 20


async def test_an_outage_delays_and_loses_nothing(api, direct, link, regarding, tasks, until):
    clock = Time()
    recorder = EventRecorder(api, "manager", clock)
    link.set("refuse")
    recorder.emit(regarding, "Normal", "During", "m")
    await recorder.flush()
    assert await events(direct) == []

    link.set("pass")
    clock.at += 60
    before = metrics.value_of("flexinfer_kube_events_total", {"type": "Normal"})
    task = tasks.once("events", recorder.run())
    await until(lambda: metrics.value_of("flexinfer_kube_events_total", {"type": "Normal"}) > before)
    task.cancel()

    assert len(await events(direct)) == 1


class LostAnswer:
    """The API through a link that breaks once an Event is stored and before the server's answer is back."""

    def __init__(self, api) -> None:
        self._api = api
        self.creates = 0

    async def create(self, *args):
        self.creates += 1
        await self._api.create(*args)
        if self.creates == 1:
            raise KubeUnavailable("the connection broke")

    async def patch(self, *args, **options):
        return await self._api.patch(*args, **options)


async def test_an_event_whose_answer_was_lost_is_there_and_goes_on_as_a_series(api, direct, regarding):
    clock, lossy = Time(), LostAnswer(api)
    recorder = EventRecorder(lossy, "scheduler", clock)
    counted = ("flexinfer_kube_events_dropped_total", {"why": "refused"})
    before = metrics.value_of(*counted)
    recorder.emit(regarding, "Normal", "PlacementRanked", "a leads")
    await recorder.flush()
    recorder.emit(regarding, "Normal", "PlacementRanked", "a leads")
    for _ in range(2):
        clock.at += 60
        await recorder.flush()

    (event,) = await events(direct)
    assert lossy.creates == 2
    assert event["series"]["count"] == 2
    assert metrics.value_of(*counted) == before


async def test_a_flush_beside_a_write_under_way_makes_one_event(api, direct, regarding, tasks, until):
    counted = ("flexinfer_kube_events_dropped_total", {"why": "refused"})
    before = metrics.value_of(*counted)

    class Slow(LostAnswer):
        def __init__(self, api) -> None:
            super().__init__(api)
            self.go = asyncio.Event()

        async def create(self, *args):
            self.creates += 1
            await self.go.wait()
            await self._api.create(*args)

    slow = Slow(api)
    recorder = EventRecorder(slow, "scheduler", Time())
    recorder.emit(regarding, "Normal", "PlacementRanked", "a leads")
    running = tasks.once("events", recorder.run())
    await until(lambda: slow.creates == 1)
    recorder.emit(regarding, "Normal", "PlacementRanked", "a leads")
    flushing = tasks.once("flush", recorder.flush(60.0))
    for _ in range(10):
        await asyncio.sleep(0)  # a turn of the loop: it is at its first write
    slow.go.set()
    await flushing
    await recorder.flush(60.0)
    running.cancel()

    (event,) = await events(direct)
    assert event["series"]["count"] == 2
    assert (slow.creates, metrics.value_of(*counted)) == (1, before)


async def test_a_flood_is_bounded_and_counted(api, regarding, monkeypatch):
    monkeypatch.setattr(module, "MAX_PENDING", 5)
    recorder = EventRecorder(api, "manager", Time())
    before = metrics.value_of("flexinfer_kube_events_dropped_total", {"why": "queue full"})
    for number in range(12):
        recorder.emit(regarding, "Normal", f"R{number}", "m")

    assert metrics.value_of("flexinfer_kube_events_dropped_total", {"why": "queue full"}) == before + 7


async def test_what_the_server_refuses_is_dropped(api, direct):
    recorder = EventRecorder(api, "manager", Time())
    nowhere = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "no-such-namespace"}}
    before = metrics.value_of("flexinfer_kube_events_dropped_total", {"why": "refused"})
    recorder.emit(nowhere, "Normal", "R", "m")
    await recorder.flush()

    assert metrics.value_of("flexinfer_kube_events_dropped_total", {"why": "refused"}) == before + 1


async def test_odd_objects_and_long_texts_never_raise(api, direct):
    recorder = EventRecorder(api, "manager", Time())
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n" * 253}}
    recorder.emit(node, "Warning", "R" * 300, "ä" * 2000)
    recorder.emit({}, "Normal", "R", "")
    await recorder.flush()

    found = await events(direct)
    assert any(len(event["note"].encode()) <= 1024 and event["regarding"]["kind"] == "Node" for event in found)
