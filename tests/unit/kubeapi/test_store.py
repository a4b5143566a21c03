"""Versions and history of the store."""

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.kubeapi.store import Store


def obj(name, value=0):
    return {"metadata": {"name": name}, "value": value}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=80), st.integers(1, 8))
def test_history_replays_to_the_present_or_says_it_cannot(writes, kept):
    store = Store(history=kept)
    versions = [store.version]
    states = [{}]
    for index, (name, remove) in enumerate(writes):
        if remove and store.get("b", ("", name)) is not None:
            store.remove("b", ("", name))
        else:
            store.put("b", ("", name), obj(name, index))
        versions.append(store.version)
        states.append({stored.obj["metadata"]["name"]: stored.obj for stored in store.list("b")})
    assert versions == sorted(set(versions))
    bucket = store.bucket("b")
    assert len(bucket.changes) < 2 * kept or not writes
    for version, state in zip(versions, states, strict=True):
        position = bucket.position_after(version)
        if position is None:
            assert version < bucket.forgotten
            continue
        replayed = dict(state)
        for change in bucket.since(position):
            name = change.after.obj["metadata"]["name"]
            if change.type == "DELETED":
                del replayed[name]
            else:
                assert (change.type == "ADDED") == (name not in replayed)
                replayed[name] = change.after.obj
        assert replayed == states[-1]


def test_a_stored_version_is_never_changed():
    store = Store()
    first = store.put("b", ("", "a"), obj("a", 1))
    raw = first.raw
    store.put("b", ("", "a"), obj("a", 2))
    gone = store.remove("b", ("", "a"))
    assert first.raw == raw
    assert gone.obj["metadata"]["resourceVersion"] == str(store.version)


def test_forgetting_makes_old_positions_unknown():
    store = Store()
    store.put("b", ("", "a"), obj("a"))
    before = store.version
    store.put("b", ("", "a"), obj("a", 1))
    store.forget()
    assert store.bucket("b").position_after(before) is None
    assert store.bucket("b").position_after(store.version) is not None


def test_versions_are_shared_by_all_buckets():
    store = Store()
    first = store.put("b", ("", "a"), obj("a"))
    second = store.put("c", ("", "a"), obj("a"))
    assert second.version > first.version
    assert store.buckets() == ["b", "c"]
