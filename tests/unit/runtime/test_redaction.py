"""No secret reaches a tape, and what holds none is left as it is."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.runtime.journal import Webhook, encode_line
from flexinfer.runtime.redaction import GONE, redact


def pod(**container: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **container}]}}


@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": "HF_TOKEN", "value": "hunter2"}]},
        {"env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "A", "value": "b"}]},
        {"args": ["--api-key", "hunter2", "--port", "1"]},
        {"args": ["--hf-token=hunter2"]},
        {"command": ["serve", "nats://user:hunter2@bus:4222"]},
        {"config": {"api_key": "hunter2"}},
    ],
    ids=str,
)
def test_secrets_are_left_out(container: dict[str, Any]) -> None:
    line = encode_line(1.0, KubeDelta(plural="pods", action="ADDED", object=pod(**container)))
    body = msgspec.json.encode({"Pod": pod(**container), "NodeNames": ["n"]}).decode()

    assert b"hunter2" not in line
    assert b"hunter2" not in encode_line(1.0, Webhook(path="filter", body=body))


def test_a_secret_keeps_its_names_only() -> None:
    told = {"metadata": {"name": "s"}, "data": {"token": "aHVudGVyMg=="}, "type": "Opaque"}

    line = msgspec.json.decode(encode_line(1.0, KubeDelta(plural="secrets", action="ADDED", object=told)))

    assert line["body"]["object"]["data"] == {"token": GONE}


def test_copies_of_whole_objects_are_left_out() -> None:
    meta = {"name": "p", "managedFields": [{}], "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "b"}}  # fmt: skip

    assert redact({"metadata": meta}) == {"metadata": {"name": "p", "annotations": {"a": "b"}}}


def test_a_request_that_cannot_be_read_is_cut() -> None:
    assert b"hunter2" not in encode_line(1.0, Webhook(path="filter", body='{"Pod":' + " " * 80 + '"hunter2'))


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["--max-tokens", "5", "--tokenizer", "gpt2", "--benchmark-key=k"]},
        {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]},
        {"env": [{"name": "FLEXINFER_KEY", "value": "model-0123"}, {"name": "URL", "value": "http://h:1/a@b"}]},
    ],
    ids=str,
)
def test_what_is_no_secret_stays_the_same_object(container: dict[str, Any]) -> None:
    told = pod(**container)

    assert redact(told) is told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["env", "args", "token", "kind", "data", "name", "value", "x"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_can_be_redacted_and_once_is_enough(told: Any) -> None:
    once = redact(told)

    assert redact(once) == once
