"""Numbers out of the text of tools and files.

Tools write "no number here" in many ways (``[N/A]``, ``[GPU is lost]``, ``ERR!``, an empty file), and new ones come
with each release. So the question asked is never "is it a known bad word" but "is it a number".
"""

import math
import re

MIB = 1 << 20
_NUMBER = re.compile(r"\s*([-+]?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?:[A-Za-z%°][A-Za-z%/]{0,7})?\s*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def text_of(raw: bytes | str | None) -> str:
    """Bytes of any encoding as text; what is not UTF-8 becomes U+FFFD."""
    if raw is None:
        return ""
    return raw if isinstance(raw, str) else raw.decode("utf-8", "replace")


def number(value: object) -> float | None:
    """The finite number in ``118.44``, ``118.44 W``, ``37 %`` or 37; None for anything else, booleans included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            found = float(value)
        except OverflowError:
            return None
        return found if math.isfinite(found) else None
    if not isinstance(value, str):
        return None
    match = _NUMBER.fullmatch(value)
    return float(match.group(1)) if match else None


def count(value: object) -> int | None:
    """A non-negative whole number, or None."""
    found = number(value)
    return int(found) if found is not None and 0 <= found < 1 << 62 else None


def percent(value: object) -> float | None:
    """A number in 0..100, or None: amdsmi 6.0 hands out 65535 for "not available"."""
    found = number(value)
    return found if found is not None and 0 <= found <= 100 else None


def celsius(value: object) -> float | None:
    """A temperature a chip can have, or None."""
    found = number(value)
    return found if found is not None and -60 < found < 250 else None


def watts(value: object) -> float | None:
    """A power a device can draw, or None; 65535 is the raw "not available" of amdsmi."""
    found = number(value)
    return found if found is not None and 0 <= found < 20_000 else None


def mib_of_bytes(value: object) -> int | None:
    """Whole MiB of a byte count, or None."""
    found = count(value)
    return found // MIB if found is not None else None


def integer(value: object, base: int = 10) -> int | None:
    """A whole number in ``base``, ``0x`` allowed for 16, or None."""
    try:
        return int(value, base) if isinstance(value, str) and len(value) < 40 else None
    except ValueError:
        return None


def words(value: object, limit: int = 120) -> str | None:
    """Printable text on one line, or None if there is none, or it says that there is none: ``N/A``, ``[...]``."""
    if not isinstance(value, str):
        return None
    cleaned = " ".join(_CONTROL.sub(" ", value).split())[:limit].strip()
    if cleaned.startswith("[") and cleaned.endswith("]"):
        return None
    return None if cleaned.lower() in {"", "n/a", "none", "unknown", "not supported", "err!"} else cleaned
