"""When a pod is tried: priorities, backoff after failures, parking until something changes."""

from flexinfer.local.schedqueue import FIRST_BACKOFF, LONGEST_BACKOFF, PARKED_SECONDS, SchedulingQueue


def pod(name, priority=0, uid=None, **annotations):
    meta = {"name": name, "namespace": "d", "uid": uid or name, "annotations": annotations}
    return {"metadata": meta, "spec": {"priority": priority}}


def tried(queue, now):
    found, _ = queue.next(now)
    return found["metadata"]["name"] if found else None


def test_higher_priority_first_then_longest_waiting():
    queue = SchedulingQueue()
    queue.put(pod("first"), 1.0)
    queue.put(pod("second"), 2.0)
    queue.put(pod("urgent", priority=10), 3.0)

    order = []
    for _ in range(3):
        order.append(tried(queue, 4.0))
        queue.remove(("d", order[-1]))

    assert order == ["urgent", "first", "second"]
    assert len(queue) == 0


def test_an_error_is_retried_after_a_growing_wait():
    queue = SchedulingQueue()
    queue.put(pod("p"), 0.0)
    waits = []
    now = 0.0
    for _ in range(6):
        queue.failed(("d", "p"), now, rejected=False)
        _, wait = queue.next(now)
        waits.append(wait)
        now += wait
        assert tried(queue, now) == "p"

    assert waits == [FIRST_BACKOFF, 2.0, 4.0, 8.0, LONGEST_BACKOFF, LONGEST_BACKOFF]


def test_a_rejected_pod_waits_for_a_change_and_out_its_backoff():
    queue = SchedulingQueue()
    queue.put(pod("p"), 0.0)
    queue.failed(("d", "p"), 0.0, rejected=True)

    assert tried(queue, 100.0) is None
    assert tried(queue, PARKED_SECONDS) == "p"
    queue.failed(("d", "p"), 400.0, rejected=True)
    queue.stir()
    assert tried(queue, 401.0) is None, "still in its backoff of 2 s"
    assert tried(queue, 402.0) == "p"


def test_a_change_of_the_pod_itself_wakes_it_and_our_own_condition_does_not():
    queue = SchedulingQueue()
    queue.put(pod("p"), 0.0)
    queue.failed(("d", "p"), 0.0, rejected=True)

    queue.put(pod("p") | {"status": {"conditions": [{"type": "PodScheduled"}]}}, 1.0)
    assert tried(queue, 50.0) is None
    queue.put(pod("p", touched="1"), 50.0)
    assert tried(queue, 50.0) == "p"


def test_a_new_pod_of_the_same_name_starts_afresh():
    queue = SchedulingQueue()
    queue.put(pod("p"), 0.0)
    queue.failed(("d", "p"), 0.0, rejected=True)

    queue.put(pod("p", uid="another"), 1.0)

    assert tried(queue, 1.0) == "p"


def test_failures_of_pods_that_are_gone_are_no_matter():
    queue = SchedulingQueue()

    queue.failed(("d", "gone"), 0.0, rejected=True)
    queue.remove(("d", "gone"))

    assert queue.next(0.0)[0] is None
