"""The arithmetic of a rolling update."""

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.kubeapi.controllers.rollout import Sizes, next_sizes, share


def sizes(limit=6):
    return st.integers(0, limit).flatmap(lambda spec: st.builds(Sizes, st.just(spec), st.integers(0, spec)))


@given(st.integers(0, 6), st.integers(0, 3), st.integers(0, 3), sizes(), st.lists(sizes(), max_size=3))
def test_a_step_stays_within_its_limits(wanted, surge, missing, current, old):
    asked = next_sizes(wanted, surge, missing, current, old)
    assert len(asked) == 1 + len(old)
    assert all(size >= 0 for size in asked)
    total = current.spec + sum(item.spec for item in old)
    assert sum(asked) <= max(total, wanted + surge)
    # Pods that serve are only taken while enough others do.
    lost = sum(max(item.available - size, 0) for item, size in zip(old, asked[1:], strict=True))
    serving = min(current.available, asked[0]) + sum(item.available for item in old)
    assert lost <= max(0, serving - (wanted - missing))


@given(st.integers(1, 5), st.integers(0, 2), st.integers(0, 2), st.integers(0, 5))
def test_a_rollout_ends_when_pods_become_available(wanted, surge, missing, before):
    if surge == 0 and missing == 0:
        missing = 1
    new, old = 0, before
    for _ in range(30):
        new, old = next_sizes(wanted, surge, missing, Sizes(new, new), [Sizes(old, old)])
    assert (new, old) == (wanted, 0)


def test_shares_round_in_favour_of_service():
    assert share("25%", 10, up=True) == 3
    assert share("25%", 10, up=False) == 2
    assert share(2, 10, up=True) == 2
