"""What is read out of paths and bodies, and what is not let through."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.routing import affinity, target
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.target import Target


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", Target("/v1/chat/completions")),
        ("/v1/responses/resp_1:x", Target("/v1/responses/resp_1:x")),
        ("/model/m/v1/embeddings", Target("/v1/embeddings", "m")),
        ("/model/ns/m/v1/embeddings", Target("/v1/embeddings", "ns/m")),
        ("/model/ns%2Fm/v1/embeddings", Target("/v1/embeddings", "ns/m")),
        ("/model/llama3%3A8b/v1/embeddings", Target("/v1/embeddings", "llama3:8b")),
        ("/v1/models/ns%2Fm", Target("/v1/models/ns%2Fm")),
    ],
)
def test_paths(path: str, expected: Target) -> None:
    assert target.read_target(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/", "/v1", "/admin", "/v1/../x", "/v1/./x", "/v1/x/..", "/v1//x", "//v1/x", "/v1/%2e%2e/x", "/v1/%2E./x",
        "/v1/x%00", "/v1/x%0a", "/v1/x%5cy", "/v1/x\\y", "/v1/x%2fy", "/v1/%252e%252e/x", "/v1/x%", "/v1/x%zz",
        "/v1/x y", "/v1/x\ty", "/v1/x?y", "/v1/x#y", "/v1/é", "/model/v1/x", "/model//v1/x", "/model/m/slots",
        "/model/../v1/x", "/model/-m/v1/x", "http://evil/v1/x", "*", "", "/v1/load_lora_adapter",
        "/v1/unload%5Flora_adapter/", "/model/m/v1/load_lora_adapter",
    ],
)  # fmt: skip
def test_paths_no_engine_gets_to_see(path: str) -> None:
    with pytest.raises(Refusal) as refusal:
        target.read_target(path)
    assert refusal.value.status in {400, 404}


def outcome(act: Callable[[], object]) -> object:
    """What it returns, or how it refuses; anything else raised is a failure of the test."""
    try:
        return act()
    except Refusal as refusal:
        return refusal


@given(st.text(max_size=60))
def test_a_path_is_read_or_refused_and_never_climbs(path: str) -> None:
    try:
        found = target.read_target(path)
    except Refusal:
        return
    assert found.path.startswith("/v1/")
    assert "/../" not in found.path + "/"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for read in (target.json_model, affinity.prefix_of, lambda b: affinity.session_of("", b)):
        assert isinstance(outcome(lambda read=read: read(body)), str | Refusal)  # type: ignore[misc]
    assert isinstance(outcome(lambda: target.with_model(body, "x")), bytes | Refusal)
    assert isinstance(target.with_multipart_model(body, b"B", "x"), bytes)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    body = b'{"model": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    with pytest.raises(Refusal):
        target.json_model(body)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), values, max_size=5))
def test_only_the_model_changes(body: dict[str, object]) -> None:
    changed = json.loads(target.with_model(json.dumps(body).encode(), "served"))

    assert changed == {**body, "model": "served"}


def test_a_doubled_model_becomes_one() -> None:
    assert target.json_model(b'{"model": "a", "model": "b"}') == "b"
    assert target.with_model(b'{"model": "a", "model": "b"}', "x") == b'{"model":"x"}'


FORM = (
    b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%s\r\n'
    b"--B\r\ncontent-disposition: form-data; name=model\r\n\r\nwhisper\r\n--B--\r\n"
)


@given(st.binary(max_size=80).filter(lambda b: b"--B" not in b))
def test_the_form_field_is_found_and_replaced_whatever_the_file_holds(file: bytes) -> None:
    form = FORM % file

    assert target.multipart_model(form, b"B") == "whisper"
    assert target.multipart_model(target.with_multipart_model(form, b"B", "other"), b"B") == "other"
    assert target.with_multipart_model(form, b"B", "whisper") == form


def test_a_form_without_a_boundary_is_refused() -> None:
    with pytest.raises(Refusal):
        target.boundary_of("multipart/form-data")
    assert target.boundary_of('multipart/form-data; boundary="a b"') == b"a b"
    assert target.boundary_of("application/json") is None


def _chat(*turns: tuple[str, str], **more: object) -> bytes:
    return json.dumps({"messages": [{"role": r, "content": c} for r, c in turns], **more}).encode()


def test_later_turns_of_a_conversation_share_its_prefix() -> None:
    first = _chat(("system", "be kind"), ("user", "hello"))
    later = _chat(("system", "be kind"), ("user", "hello"), ("assistant", "hi"), ("user", "more"), temperature=1)
    other = _chat(("system", "be kind"), ("user", "bye"))

    assert affinity.prefix_of(first) == affinity.prefix_of(later) != affinity.prefix_of(other)
    assert affinity.prefix_of(b'{"prompt": "x"}') != ""
    assert affinity.prefix_of(b'{"input": ["x", "y"]}') == affinity.prefix_of(b'{"input": ["x", "z"]}')
    assert affinity.prefix_of(b"{}") == affinity.prefix_of(b"nonsense") == ""


def test_a_session_is_the_header_then_the_body() -> None:
    body = b'{"user": "u", "prompt_cache_key": "k"}'

    assert affinity.session_of("h", body) == "h"
    assert affinity.session_of("", body) == "k"
    assert affinity.session_of("", b'{"user": "u"}') == "u"
    assert affinity.session_of("", b'{"user": 7}') == ""
