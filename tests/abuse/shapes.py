"""Values of any shape, and values of nearly the right one."""

from typing import Any

from hypothesis import strategies as st

TEXTS = [
    "", "m", "default", "Model", "ModelDeployment", "hf://a/b", "file:///x.gguf", "ollama://x", "llamacpp", "vllm",
    "nvidia", "10s", "-1", "1e999", "../..", "a" * 300, "\x00", "\u202e", "\ud7ff", "${HOME}", "{{x}}", "\x1b[2J",
]  # fmt: skip
LEAVES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(TEXTS) | st.text(st.characters(codec="utf-8"), max_size=6)
)  # fmt: skip
ANY: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(TEXTS[1:9]), inner, max_size=3),
    max_leaves=8,
)


def near(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a structural schema, now and then with one of another shape; objects have up to four members."""
    return st.integers(0, 7).flatmap(lambda dice: ANY if dice == 7 else _right(schema))


def _right(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if options := schema.get("enum"):
        return st.sampled_from(options)
    kind = schema.get("type")
    if kind == "object":
        parts = schema.get("properties") or {}
        if parts:
            names = st.lists(st.sampled_from(sorted(parts)), max_size=4, unique=True)
            return names.flatmap(lambda chosen: st.fixed_dictionaries({name: near(parts[name]) for name in chosen}))
        more = schema.get("additionalProperties")
        return st.dictionaries(st.sampled_from(TEXTS[:8]), near(more) if isinstance(more, dict) else ANY, max_size=3)
    if kind == "array":
        return st.lists(near(schema.get("items") or {}), max_size=3)
    return {
        "string": st.sampled_from(TEXTS), "boolean": st.booleans(),
        "integer": st.integers(-2, 2**33) | st.integers(0, 4), "number": st.floats(0, 1e12),
    }.get(str(kind), ANY)  # fmt: skip


def damaged(samples: list[bytes]) -> st.SearchStrategy[bytes]:
    """A sample cut, overwritten or spliced at one to three places."""
    patch = st.binary(max_size=12) | st.sampled_from(
        [b"", b"null", b"-1", b"1e400", b'"\\ud800"', b"[" * 1500, b'{"":', b"}", b'"', b"\n", b"99999999999999999999"]
    )
    place = st.tuples(st.floats(0, 1), st.integers(0, 40), patch)
    return st.builds(_patched, st.sampled_from(samples), st.lists(place, min_size=1, max_size=3))


def _patched(raw: bytes, places: list[tuple[float, int, bytes]]) -> bytes:
    for share, length, patch in places:
        at = int(share * len(raw))
        raw = raw[:at] + patch + raw[at + length :]
    return raw
