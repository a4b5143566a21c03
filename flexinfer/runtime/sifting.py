"""Which events a person wants to see, in words, and which words must not be seen."""

from collections.abc import Callable, Sequence

import msgspec

from flexinfer.contracts.envelope import Event, MalformedEvent, decode_event, encode_event
from flexinfer.runtime.redaction import redact

Wanted = Callable[[Event], bool]


def wanted(text: str) -> Wanted:
    """Words that must all occur in type, subject or source; ``-word`` must not. Empty text wants everything."""
    words = text.lower().split()
    out = [word[1:] for word in words if word.startswith("-") and len(word) > 1]
    need = [word for word in words if not word.startswith("-")]

    def test(event: Event) -> bool:
        said = f"{event.type} {event.subject} {event.source}".lower()
        return all(word in said for word in need) and not any(word in said for word in out)

    return test


def hiding(words: Sequence[str]) -> Callable[[Event], Event | None]:
    """Events without secrets, and with ``words`` (names, addresses) written as ``hidden-1``, ``hidden-2``, ...

    None for an event that makes no sense without them.
    """
    names = {word: f"hidden-{number}" for number, word in enumerate(words, start=1)}

    def hide(event: Event) -> Event | None:
        raw = encode_event(event)
        body = msgspec.json.decode(raw)
        clean = redact(body)
        if clean is body and not any(word in raw.decode() for word in names):
            return event
        text = msgspec.json.encode(clean).decode()
        for word, name in names.items():
            text = text.replace(word, name)
        try:
            return decode_event(text.encode())
        except MalformedEvent:
            return None

    return hide
