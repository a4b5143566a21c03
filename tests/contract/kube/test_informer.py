"""The informer's contract: what is delivered, in which order, and how often the server is asked."""

import asyncio
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.pace import Pace
from flexinfer.contracts.kubernetes import CONFIGMAPS
from flexinfer.telemetry import metrics

NS = "default"
MINE = "app=mine"  # a real server keeps ConfigMaps of its own in every namespace
QUICK = Pace(first=0.05, ceiling=0.2)


def mine(configmap, name: str, **data: str):
    body = configmap(name, **data)
    body["metadata"]["labels"] = {"app": "mine"}
    return body


@pytest.fixture
def new(direct, configmap):
    async def create(name: str):
        return await direct.create(CONFIGMAPS, mine(configmap, name), NS)

    return create


@pytest.fixture
def gap(link, server):
    """A time in which the informer sees nothing and after which its version is too old."""

    @contextmanager
    def away():
        link.set("refuse")
        yield
        server.forget_history()
        link.set("pass")

    return away


@pytest.fixture
async def informer(api, facts, tasks):
    found = Informer(api, CONFIGMAPS, facts, namespace=NS, labels=MINE, pace=QUICK)
    tasks.once("informer", found.run())
    return found


async def test_a_list_then_every_change(informer, new, direct, facts, until):
    await informer.wait_synced()
    await new("a")
    await direct.patch(CONFIGMAPS, "a", {"data": {"k": "1"}}, NS)
    await direct.delete(CONFIGMAPS, "a", NS)

    await until(lambda: len(facts.seen) == 4)
    assert facts.told == ["LIST ", "ADDED a", "MODIFIED a", "DELETED a"]
    assert informer.cache == {}


async def test_what_exists_comes_with_the_list_only(api, direct, new, facts, tasks, configmap):
    await new("a")
    await direct.create(CONFIGMAPS, configmap("not-mine"), NS)
    informer = Informer(api, CONFIGMAPS, facts, namespace=NS, labels=MINE)
    assert not informer.synced

    tasks.once("informer", informer.run())
    await informer.wait_synced()

    assert facts.told == ["LIST a"]
    assert set(informer.cache) == {(NS, "a")}


async def test_the_cache_cannot_be_changed_from_outside(informer):
    await informer.wait_synced()

    with pytest.raises(TypeError):
        informer.cache[("x", "y")] = {}


async def test_after_a_gap_the_vanished_are_deleted_first(informer, new, direct, gap, facts, until):
    await informer.wait_synced()
    for name in ("gone", "kept"):
        await new(name)
    await until(lambda: len(facts.seen) == 3)
    relists = metrics.value_of("flexinfer_kube_relists_total", {"kind": "ConfigMap"})

    with gap():
        await direct.delete(CONFIGMAPS, "gone", NS)
        await new("new")

    await until(lambda: len(facts.seen) == 5)
    assert facts.told[3:] == ["DELETED gone", "LIST kept,new"]
    assert facts.seen[3].object["metadata"]["name"] == "gone"
    assert metrics.value_of("flexinfer_kube_relists_total", {"kind": "ConfigMap"}) == relists + 1
    assert set(informer.cache) == {(NS, "kept"), (NS, "new")}


async def test_one_deleted_and_made_again_in_a_gap_is_both(informer, new, direct, gap, facts, until):
    await informer.wait_synced()
    first = await new("a")
    await until(lambda: len(facts.seen) == 2)

    with gap():
        await direct.delete(CONFIGMAPS, "a", NS)
        second = await new("a")

    await until(lambda: len(facts.seen) == 4)
    assert facts.told[2:] == ["DELETED a", "LIST a"]
    assert facts.seen[2].object["metadata"]["uid"] == first["metadata"]["uid"]
    assert informer.cache[(NS, "a")]["metadata"]["uid"] == second["metadata"]["uid"]


async def test_a_cut_link_loses_and_repeats_nothing(informer, new, link, facts, until):
    await informer.wait_synced()
    for number in range(5):
        await new(f"a{number}")
        if number % 2:
            link.cut()

    await until(lambda: len(facts.seen) == 6)
    assert facts.told == ["LIST ", *(f"ADDED a{number}" for number in range(5))]


async def test_a_server_that_ends_watches_loses_nothing(informer, new, server, facts, until):
    await informer.wait_synced()
    await until(lambda: informer.watching)
    server.end_watches()
    await new("a")

    await until(lambda: len(facts.seen) == 2)
    assert facts.told == ["LIST ", "ADDED a"]


async def test_a_restart_of_the_server_is_survived(informer, new, server, facts, until):
    await informer.wait_synced()
    await server.restart()
    await new("a")

    await until(lambda: (NS, "a") in informer.cache)
    assert facts.told[-1] in {"ADDED a", "LIST a"}


async def test_a_server_that_hangs_at_the_start_is_asked_again(api, new, link, facts, tasks, until):
    await new("a")
    link.set("hang")
    informer = Informer(api, CONFIGMAPS, facts, namespace=NS, labels=MINE, pace=QUICK)
    tasks.once("informer", informer.run())
    failed = {"kind": "ConfigMap", "reason": "unavailable"}
    before = metrics.value_of("flexinfer_kube_watch_restarts_total", failed)
    await until(lambda: metrics.value_of("flexinfer_kube_watch_restarts_total", failed) > before)
    assert not informer.synced

    link.set("pass")
    await until(lambda: informer.synced)
    assert facts.told == ["LIST a"]


async def test_a_kind_that_does_not_exist_is_waited_for(scripted, answers, facts, tasks, until):
    empty = {"items": [], "metadata": {"resourceVersion": "1"}}
    scripted.answers = [
        answers.reply(404, {"message": "no such kind"}),
        answers.reply(403, {"message": "no"}),
        answers.reply(200, empty),
        answers.stream(stay=True),
    ]
    client = scripted.client()
    informer = Informer(client, CONFIGMAPS, facts, pace=QUICK)
    tasks.once("informer", informer.run())

    await until(lambda: informer.watching)
    await tasks.close()
    await client.aclose()

    assert facts.told == ["LIST "]


# --- how often the server is asked -------------------------------------------------------------------------------


@dataclass
class Setting:
    """A scripted server, the sink, and an informer's life between them."""

    scripted: Any
    facts: Any
    tasks: Any
    until: Any
    waits: "Waits"

    async def run(self, sleeps: int) -> None:
        client = self.scripted.client()
        informer = Informer(client, CONFIGMAPS, self.facts, pace=self.waits.pace())
        task = self.tasks.once("informer", informer.run())
        await self.until(lambda: len(self.waits.slept) >= sleeps)
        task.cancel()
        await asyncio.wait({task})
        await client.aclose()


@pytest.fixture
def setting(scripted, facts, tasks, until) -> Setting:
    return Setting(scripted, facts, tasks, until, Waits())


class Waits:
    """A Pace whose waits are recorded and not waited, on a clock that they move."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def pace(self) -> Pace:
        return Pace(random=lambda low, high: (low + high) / 2, sleep=self.sleep, monotonic=lambda: self.now)


LIST = {"items": [{"metadata": {"name": "a", "resourceVersion": "1"}}], "metadata": {"resourceVersion": "1"}}


def event(action: str, name: str, version: str) -> bytes:
    body = {"type": action, "object": {"metadata": {"name": name, "resourceVersion": version}}}
    return json.dumps(body).encode() + b"\n"


async def test_a_server_that_closes_at_once_is_asked_ever_more_rarely(setting, answers):
    setting.scripted.answers = [answers.reply(200, LIST), answers.stream()]

    await setting.run(sleeps=8)

    assert setting.waits.slept[:8] == [1.25, 2.5, 5.0, 10.0, 20.0, 30.0, 30.0, 30.0]
    assert sum("watch=true" not in line for line in setting.scripted.requests) == 1


async def test_a_watch_that_brought_something_is_resumed_after_a_second(setting, answers):
    setting.scripted.answers = [
        answers.reply(200, LIST),
        *(answers.stream(event("MODIFIED", "a", str(version))) for version in range(2, 9)),
        answers.stream(),
    ]

    await setting.run(sleeps=7)

    assert setting.waits.slept[:7] == [1.25] * 7
    assert "resourceVersion=5" in setting.scripted.requests[5]


async def test_a_server_that_always_expires_is_not_listed_in_a_tight_loop(setting, answers):
    gone = answers.stream(json.dumps({"type": "ERROR", "object": {"code": 410}}).encode() + b"\n")
    setting.scripted.answers = [each for _ in range(6) for each in (answers.reply(200, LIST), gone)]

    await setting.run(sleeps=5)

    assert setting.waits.slept[:5] == [1.25, 2.5, 5.0, 10.0, 20.0]


async def test_the_server_may_ask_for_more_patience(setting, answers):
    setting.scripted.answers = [answers.reply(429, {"message": "slow down"}, "Retry-After: 9\r\n")]

    await setting.run(sleeps=2)

    assert setting.waits.slept[:2] == [9.0, 9.0]


async def test_bookmarks_move_the_version_on(setting, answers):
    setting.scripted.answers = [answers.reply(200, LIST), answers.stream(event("BOOKMARK", "", "77")), answers.stream()]

    await setting.run(sleeps=2)

    assert "resourceVersion=77" in setting.scripted.requests[2]
    assert setting.facts.told == ["LIST a"]


async def test_watches_ask_for_a_random_time_and_bookmarks(setting, answers):
    setting.scripted.answers = [answers.reply(200, LIST), answers.stream()]

    await setting.run(sleeps=1)

    assert "timeoutSeconds=300" in setting.scripted.requests[1]
    assert "allowWatchBookmarks=true" in setting.scripted.requests[1]


async def test_a_repeated_event_is_dropped_by_its_version(setting, answers):
    setting.scripted.answers = [
        answers.reply(200, LIST),
        answers.stream(
            event("ADDED", "a", "1"), event("ADDED", "b", "2"), event("ADDED", "b", "2"), event("DELETED", "c", "3"),
            event("NONSENSE", "d", "4"), event("MODIFIED", "b", "5"),
        ),
        answers.stream(),
    ]  # fmt: skip

    await setting.run(sleeps=1)

    assert setting.facts.told == ["LIST a", "ADDED b", "MODIFIED b"]


async def test_an_unreadable_line_leads_to_a_list(setting, answers):
    setting.scripted.answers = [
        answers.reply(200, LIST),
        answers.stream(b"{nonsense\n"),
        answers.reply(200, LIST),
        answers.stream(),
    ]

    await setting.run(sleeps=2)

    assert setting.facts.told == ["LIST a", "LIST a"]
