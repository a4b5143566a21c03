"""Leader election: one at a time, through outages, hangs, kills and takeovers."""

import asyncio
import time
from datetime import datetime

import pytest

from flexinfer.adapters.kube.lease import Elector, LeaseTimes
from flexinfer.contracts.kubernetes import LEASES
from flexinfer.ports import KubeUnavailable
from flexinfer.runtime.clock import SystemClock

NS = "default"
TIMES = LeaseTimes(duration=1.0, renew_deadline=0.8, retry=0.1)


class Work:
    """Leading work that notes when it led, and takes ``slow`` seconds to stop."""

    def __init__(self, slow: float = 0.0) -> None:
        self.reigns: list[tuple[int, float, float]] = []
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self._slow = slow

    async def __call__(self, fencing: int) -> None:
        start = time.monotonic()
        self.began.set()
        self.ended.clear()
        try:
            await asyncio.Event().wait()
        finally:
            # Cancelled work may still have something to finish; others must not lead meanwhile.
            await asyncio.sleep(self._slow)
            self.reigns.append((fencing, start, time.monotonic()))
            self.began.clear()
            self.ended.set()


def elector(api, identity: str) -> Elector:
    return Elector(api, NS, "lead", identity, SystemClock(), times=TIMES, jitter=lambda low, _high: low)


async def end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_one_leads_and_the_lease_says_who(api, tasks):
    work, first = Work(), elector(api, "one")
    assert not first.leading

    task = tasks.once("one", first.run(work))
    await asyncio.wait_for(work.began.wait(), 5)

    lease = await api.get(LEASES, "lead", NS)
    assert first.leading
    assert first.holder == "one"
    assert lease["spec"]["holderIdentity"] == "one"
    assert lease["spec"]["leaseTransitions"] == 1
    written = datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp()
    assert abs(written - time.time()) < 5
    assert lease["spec"]["renewTime"].endswith("Z")
    await end(task)


async def test_a_stop_waits_for_the_work_and_gives_the_lease_back(api, direct, tasks):
    work = Work(slow=0.2)
    first = elector(api, "one")
    task = tasks.once("one", first.run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    await end(task)

    assert work.ended.is_set()
    assert not first.leading
    assert (await api.get(LEASES, "lead", NS))["spec"]["holderIdentity"] == ""

    began = time.monotonic()
    next_work = Work()
    task = tasks.once("two", elector(direct, "two").run(next_work))
    await asyncio.wait_for(next_work.began.wait(), 5)
    assert time.monotonic() - began < TIMES.duration
    await end(task)
    assert next_work.reigns[0][0] > work.reigns[0][0]


async def test_the_lease_is_kept_while_the_work_runs(api, direct, tasks):
    work, other = Work(), Work()
    one = tasks.once("one", elector(api, "one").run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    two = tasks.once("two", elector(direct, "two").run(other))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(other.began.wait(), TIMES.duration * 1.2)

    assert work.began.is_set()
    await end(one)
    await asyncio.wait_for(other.began.wait(), 5)
    await end(two)


@pytest.mark.parametrize("outage", ["hang", "refuse"])
async def test_in_an_outage_the_work_is_stopped_before_the_lease_ends(api, direct, link, tasks, outage):
    work, other = Work(slow=0.05), Work()
    one = tasks.once("one", elector(api, "one").run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    two = tasks.once("two", elector(direct, "two").run(other))

    link.set(outage)
    cut = time.monotonic()
    await asyncio.wait_for(work.ended.wait(), 5)
    stopped = time.monotonic() - cut
    await asyncio.wait_for(other.began.wait(), 5)

    assert stopped < TIMES.duration
    link.set("pass")
    await end(two)
    await end(one)
    assert other.reigns[0][1] > work.reigns[0][2], "two led at once"
    assert other.reigns[0][0] > work.reigns[0][0], "the fencing number did not grow"


async def test_after_an_outage_the_same_one_leads_again_with_a_new_number(api, link, tasks):
    work = Work()
    task = tasks.once("one", elector(api, "one").run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    link.set("refuse")
    await asyncio.wait_for(work.ended.wait(), 5)
    link.set("pass")
    await asyncio.wait_for(work.began.wait(), 5)
    await end(task)

    first, second = work.reigns
    assert second[0] == first[0] + 1


async def test_a_short_outage_goes_unnoticed(api, link, tasks):
    work, first = Work(), elector(api, "one")
    task = tasks.once("one", first.run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    link.set("refuse")
    with pytest.raises(KubeUnavailable):
        await api.get(LEASES, "lead", NS)
    link.set("pass")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work.ended.wait(), TIMES.duration)
    assert first.leading
    await end(task)


async def test_a_killed_leader_is_followed_after_the_lease(api, direct, link, tasks):
    work = Work()
    one = tasks.once("one", elector(api, "one").run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    link.set("refuse")  # so that nothing can be given back, as after kill -9
    await end(one)
    killed = time.monotonic()

    other = Work()
    two = tasks.once("two", elector(direct, "two").run(other))
    await asyncio.wait_for(other.began.wait(), 5)

    assert time.monotonic() - killed >= TIMES.duration
    await end(two)


async def test_a_lease_taken_by_force_ends_the_work(api, direct, tasks):
    work = Work()
    task = tasks.once("one", elector(api, "one").run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    spec = {"holderIdentity": "thief", "leaseDurationSeconds": 60, "leaseTransitions": 9}
    await direct.patch(LEASES, "lead", {"spec": spec}, NS)

    await asyncio.wait_for(work.ended.wait(), 5)
    await end(task)
    assert (await direct.get(LEASES, "lead", NS))["spec"]["holderIdentity"] == "thief"


async def test_a_deleted_lease_is_campaigned_for_again(api, direct, tasks):
    work = Work()
    task = tasks.once("one", elector(api, "one").run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    await direct.delete(LEASES, "lead", NS)

    await asyncio.wait_for(work.ended.wait(), 5)
    await asyncio.wait_for(work.began.wait(), 5)
    await end(task)
    assert work.reigns[1][0] > work.reigns[0][0]


async def test_another_writer_of_the_lease_costs_no_reign(api, direct, tasks):
    work = Work()
    task = tasks.once("one", elector(api, "one").run(work))
    await asyncio.wait_for(work.began.wait(), 5)
    await direct.patch(LEASES, "lead", {"metadata": {"labels": {"a": "b"}}}, NS)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work.ended.wait(), TIMES.duration)
    await end(task)


async def test_work_that_returns_ends_the_run_and_gives_the_lease_back(api):
    async def nothing(fencing: int) -> None:
        assert fencing == 1

    await elector(api, "one").run(nothing)

    assert (await api.get(LEASES, "lead", NS))["spec"]["holderIdentity"] == ""


async def test_work_that_fails_fails_the_run_and_gives_the_lease_back(api):
    async def fail(_fencing: int) -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await elector(api, "one").run(fail)

    assert (await api.get(LEASES, "lead", NS))["spec"]["holderIdentity"] == ""


async def test_of_many_candidates_one_leads(api, direct, tasks):
    works = [Work() for _ in range(5)]
    running = [tasks.once(str(number), elector(direct, str(number)).run(work)) for number, work in enumerate(works)]
    await asyncio.wait([tasks.once("any", work.began.wait()) for work in works], return_when=asyncio.FIRST_COMPLETED)

    assert sum(work.began.is_set() for work in works) == 1
    for task in running:
        await end(task)


@pytest.mark.parametrize("values", [(1, 2, 0.1), (3, 2, 2), (3, 2, 0)])
def test_times_that_cannot_work_are_refused(values):
    with pytest.raises(ValueError, match="retry"):
        LeaseTimes(*values)
