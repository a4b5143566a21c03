"""What keeps requests together on one replica: a session, or a common prompt prefix.

A prefix is what later turns of the same conversation repeat: its messages up to the first one of the user. Engines
with a prefix cache then find it where it was left.
"""

import hashlib
from typing import Any

import msgspec
from msgspec import Raw

PREFIX_BYTES = 2048
SESSION_HEADER = b"x-session-id"


class _Body(msgspec.Struct):
    messages: Raw = Raw()
    prompt: Raw = Raw()
    input: Raw = Raw()
    user: Any = None
    prompt_cache_key: Any = None


class _Message(msgspec.Struct):
    role: Any = None


_body = msgspec.json.Decoder(_Body)
_rows = msgspec.json.Decoder(list[Raw])
_message = msgspec.json.Decoder(_Message)


def _read(body: bytes) -> _Body | None:
    try:
        return _body.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def session_of(header: str, body: bytes) -> str:
    """``X-Session-ID``, else the body's ``prompt_cache_key`` or ``user``; empty without any."""
    if header:
        return header
    found = _read(body)
    if found is None:
        return ""
    return next((key for key in (found.prompt_cache_key, found.user) if isinstance(key, str) and key), "")


def prefix_of(body: bytes) -> str:
    """A digest of the prompt's prefix; empty if there is no prompt."""
    found = _read(body)
    if found is None:
        return ""
    raw = bytes(found.messages) or bytes(found.prompt) or bytes(found.input)
    if not raw or raw == b"null":
        return ""
    if raw.startswith(b"["):
        raw = _opening(raw)
    return hashlib.blake2b(raw[:PREFIX_BYTES], digest_size=8).hexdigest()


def _opening(raw: bytes) -> bytes:
    try:
        rows = _rows.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw
    kept: list[bytes] = []
    for row in rows:
        kept.append(bytes(row))
        try:
            role = _message.decode(row).role
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            break  # a list of texts or tokens: the first one is the prefix
        if role == "user":
            break
    return b",".join(kept)
