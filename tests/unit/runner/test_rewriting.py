"""Texts written for a container hold for a process of this machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.runner.rewriting import Rewriter, expand

REWRITE = Rewriter(
    {"/models": "/real/m", "/models/inner": "/real/i", "/dev/termination-log": "/real/t", "/data/": "/real/d"},
    "127.9.0.1",
)


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("/models", "/real/m"),
        ("/models/", "/real/m/"),
        ("/models/a.gguf", "/real/m/a.gguf"),
        ("/models/inner/a", "/real/i/a"),
        ("/models/innermost/a", "/real/m/innermost/a"),
        ("--model=/models/a", "--model=/real/m/a"),
        ("file:///models/a", "file:///real/m/a"),
        ("/x:/models:/data/y", "/x:/real/m:/real/d/y"),
        ('{"path": "/models/a"}', '{"path": "/real/m/a"}'),
        ("/dev/termination-log", "/real/t"),
        ("/modelsx", "/modelsx"),
        ("/my/models/a", "/my/models/a"),
        ("models/a", "models/a"),
        ("http://host/models/a", "http://host/models/a"),
        ("0.0.0.0", "127.9.0.1"),
        ("0.0.0.0:8080", "127.9.0.1:8080"),
        ("http://0.0.0.0:8080/x", "http://127.9.0.1:8080/x"),
        ("--host=0.0.0.0", "--host=127.9.0.1"),
        ("::", "127.9.0.1"),
        ("a::b", "a::b"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("10.0.0.0", "10.0.0.0"),
        ("0.0.0.01", "0.0.0.01"),
    ],
)
def test_paths_and_addresses(text, here):
    assert REWRITE(text) == here


def test_on_the_host_addresses_stay():
    assert Rewriter({}, None)("0.0.0.0:80") == "0.0.0.0:80"


def test_the_root_is_not_rewritten():
    assert Rewriter({"/": "/real"}, None)("/etc/x") == "/etc/x"


def test_a_mount_in_its_own_target_is_replaced_once():
    assert Rewriter({"/a": "/x/a", "/x": "/y"}, None)("/a/b") == "/x/a/b"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(A)", "1"),
        ("$(A)$(B)", "1two"),
        ("x$(A)y", "x1y"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(C)", "$(C)"),
        ("$(A", "$(A"),
        ("$A ${A}", "$A ${A}"),
        ("$()", "$()"),
        ("$", "$"),
    ],
)
def test_variables_expand_as_in_kubernetes(text, value):
    assert expand(text, {"A": "1", "B": "two"}) == value


@given(st.text(alphabet="$()AB/.0: =x", max_size=30))
def test_any_text_is_accepted(text):
    assert isinstance(REWRITE(expand(text, {"A": "1"})), str)
