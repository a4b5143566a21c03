"""Server-sent events: bytes in any portions to the data of whole events (WHATWG HTML, section 9.2.6)."""

MAX_EVENT_BYTES = 4 << 20


class StreamProblem(ValueError):
    """The stream cannot be used. ``reason`` is the CamelCase code of ports.EngineError."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class EventStream:
    """Feed it what arrives; it gives the ``data`` of each complete event. Other fields and comments are dropped."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> list[bytes]:
        """Data of the events that ``received`` completes, in order. Raises StreamProblem for an endless event."""
        text = self._rest + received if self._rest else received
        if b"\r" in text:
            # A CR at the very end may be the first half of CRLF: it waits for the next portion.
            held = b"\r" if text.endswith(b"\r") else b""
            text = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        *blocks, self._rest = text.split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise StreamProblem("MalformedStream", f"an event is longer than {MAX_EVENT_BYTES} bytes")
        return [data for block in blocks if (data := _data_of(block)) is not None]

    @property
    def pending(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._rest.strip())


def _data_of(block: bytes) -> bytes | None:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    found: list[bytes] = []
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if name == b"data":
            found.append(value.removeprefix(b" ") if colon else b"")
    return b"\n".join(found) if found else None
