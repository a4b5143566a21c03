"""rocm-smi's JSON and rocminfo's listing."""

import re

from flexinfer.core.hardware import gfx
from flexinfer.core.hardware.amd import Agent, Reading
from flexinfer.core.hardware.findings import Live
from flexinfer.core.hardware.json_text import documents, lowered, mapping
from flexinfer.core.hardware.pci import address_of
from flexinfer.core.hardware.readings import celsius, count, percent, watts, words

SMI_ARGS = (
    "--showproductname", "--showmeminfo", "vram", "gtt", "--showuse", "--showtemp", "--showpower", "--json",
)  # fmt: skip
SMI_IDENTITY_ARGS = ("--showbus", "--showuniqueid", "--showdriverversion", "--json")

_CARD = re.compile(r"card(\d{1,4})")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_FAILURES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("driver not initialized", "module is not loaded", "not loaded, possibly", "not live"),
        "driver-not-loaded",
    ),
    (("unable to open /dev/kfd", "permission denied"), "no-permission"),
    (("no json data to report", "no amd gpu", "no supported", "no gpus found", "no gpu found"), "no-devices"),
    (("libamd_smi", "librocm_smi", "cannot open shared object"), "library-not-found"),
    (("env: 'python", "env: python", "python3: no such file"), "no-interpreter"),
)
_TEMPERATURES = (
    "temperature (sensor edge) (c)",
    "temperature (sensor junction) (c)",
    "temperature (sensor hotspot) (c)",
)
_POWERS = ("current socket graphics package power (w)", "average graphics package power (w)")


def parse_smi(text: str) -> tuple[Reading, ...]:
    """Cards of ``rocm-smi ... --json``, numbered as it numbers them; the ``system`` key is no card."""
    for document in documents(text):
        cards = [(found, lowered(item)) for key, item in mapping(document).items() if (found := _CARD.fullmatch(key))]
        if cards:
            return tuple(_reading(int(found.group(1)), card) for found, card in cards)
    return ()


def _reading(index: int, card: dict[str, object]) -> Reading:
    # Activity of 100 and more than 100 both occur; only 0..100 is a percentage.
    return Reading(
        index=index,
        name=words(card.get("card series")) or words(card.get("card model")),
        arch=gfx.canonical(words(card.get("gfx version"))),
        pci=address_of(words(card.get("pci bus"))),
        node=count(card.get("node id")),
        unique_id=unique_id(words(card.get("unique id"))),
        vram_bytes=count(card.get("vram total memory (b)")) or None,
        vram_used_bytes=count(card.get("vram total used memory (b)")),
        gtt_bytes=count(card.get("gtt total memory (b)")) or None,
        gtt_used_bytes=count(card.get("gtt total used memory (b)")),
        live=Live(
            util_percent=percent(card.get("gpu use (%)")),
            temperature_celsius=next((t for key in _TEMPERATURES if (t := celsius(card.get(key))) is not None), None),
            power_watts=next((p for key in _POWERS if (p := watts(card.get(key))) is not None), None),
        ),
    )


def identities(text: str) -> tuple[dict[int, tuple[str | None, str | None]], str | None]:
    """Card → (PCI address, unique id), and the driver version, of the identity query."""
    found: dict[int, tuple[str | None, str | None]] = {}
    driver: str | None = None
    for document in documents(text):
        for key, item in mapping(document).items():
            card, match = lowered(item), _CARD.fullmatch(key)
            driver = driver or words(card.get("driver version"))
            if match:
                place, unique = address_of(words(card.get("pci bus"))), unique_id(words(card.get("unique id")))
                found[int(match.group(1))] = (place, unique)
    return found, driver


def unique_id(text: str | None) -> str | None:
    """``0x4f1c...`` or ``GPU-4f1c...`` as 16 hexadecimal digits; None for zeros and placeholders."""
    digits = (text or "").strip().lower().removeprefix("gpu-").removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{4,16}", digits) or not int(digits, 16):
        return None
    return digits.zfill(16)


def parse_rocminfo(text: str) -> tuple[Agent, ...]:
    """GPU agents in order. Processors are agents too; fields indented by more than two belong to ISAs and pools."""
    blocks: list[dict[str, str]] = []
    for line in _ESCAPES.sub("", text).splitlines():
        if re.match(r"Agent\s+\d", line):
            blocks.append({})
        match = re.match(r"  (\w[\w ]{0,40}?):\s+(\S.*?)\s*$", line)
        if match and blocks:
            blocks[-1].setdefault(match.group(1), match.group(2))
    return tuple(_agent(block) for block in blocks if block.get("Device Type", "").strip().upper() == "GPU")


def _agent(block: dict[str, str]) -> Agent:
    place = count(block.get("BDFID"))
    domain = count(block.get("Domain")) or 0
    return Agent(
        arch=gfx.canonical(block.get("Name")),
        uuid=unique_id(block.get("Uuid")),
        pci=location(place, domain) if place else None,
        apu="APU" in block.get("Memory Properties", "").upper().split(),
    )


def location(place: int | None, domain: int = 0) -> str | None:
    """KFD's ``location_id`` (bus, slot and function in 16 bits; a partition number may sit above) as an address."""
    if not place or place < 0:
        return None
    low = place & 0xFFFF
    return f"{domain & 0xFFFFFFFF:04x}:{low >> 8:02x}:{low >> 3 & 31:02x}.{low & 7}"


def failure_of(text: str, code: int) -> tuple[str, str]:
    """(reason, first line of what it said) of an answer without any GPU; exit codes say little here."""
    plain = _ESCAPES.sub("", text)
    line = next((words(part, 200) for part in plain.splitlines() if words(part)), None) or ""
    lowered_text = plain.lower()
    for phrases, reason in _FAILURES:
        if any(phrase in lowered_text for phrase in phrases):
            return reason, line
    return (f"exit-{code}" if code else "no-output" if not line else "unreadable"), line
