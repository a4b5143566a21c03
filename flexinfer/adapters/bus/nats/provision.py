"""Creating and adjusting the buckets and the log. Nothing here deletes: others hold what is in them."""

import logging
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from flexinfer.adapters.bus.nats.link import ApiRefused, Session
from flexinfer.adapters.bus.nats.snapshot import NO_STREAM
from flexinfer.contracts.topics import BUCKETS, DEMAND_TTL_SECONDS, LOG_STREAM, Bucket, bucket_name, log_subjects
from flexinfer.ports import BusRefused

log = logging.getLogger(__name__)

_MIB = 1 << 20
_NANO = 1_000_000_000
_DEDUPE_SECONDS = 120
_NO_ROOM = (10047, 10028)
_NAME_TAKEN = 10058
_SMALLEST_LOG = 8 * _MIB
_USABLE = 0.9  # of the account's storage: files need room beyond what they count


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes each part may take on the bus's disk, how long the log keeps events, and copies in a cluster.

    5,000 nodes with 8 devices take about 60 MiB of ``nodes``. If the account allows less than the sum, all shrink
    alike; if the server's disk does, the log alone shrinks, so that state always has room.
    """

    nodes: int = 128 * _MIB
    bench: int = 32 * _MIB
    models: int = 64 * _MIB
    demand: int = 32 * _MIB
    log: int = 512 * _MIB
    log_seconds: float = 7 * 86400.0
    replicas: int = 1

    def fit(self, storage: int) -> "Limits":
        """The same proportions within ``storage`` bytes (0 or less: unlimited)."""
        wanted = self.nodes + self.bench + self.models + self.demand + self.log
        share = storage * _USABLE / (wanted * self.replicas)
        if storage <= 0 or share >= 1:
            return self
        return replace(self, **{name: int(getattr(self, name) * share) for name in (*BUCKETS, "log")})


def bucket_config(bucket: Bucket, limits: Limits) -> dict[str, Any]:
    """Stream configuration of a key-value bucket with one value per key; full means refused, never evicted."""
    name = bucket_name(bucket)
    age = DEMAND_TTL_SECONDS if bucket == "demand" else 0.0
    return {
        "name": f"KV_{name}",
        "description": "Newest state per key. Written by FlexInfer; do not delete.",
        "subjects": [f"$KV.{name}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_bytes": getattr(limits, bucket),
        "max_age": int(age * _NANO),
        "duplicate_window": int(min(_DEDUPE_SECONDS, age or _DEDUPE_SECONDS) * _NANO),
        "num_replicas": limits.replicas,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
    }


def log_config(limits: Limits) -> dict[str, Any]:
    """Stream configuration of the log: the oldest events go first."""
    return {
        "name": LOG_STREAM,
        "description": "Events of the last days, telemetry as samples. Written by FlexInfer; do not delete.",
        "subjects": list(log_subjects()),
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_bytes": limits.log,
        "max_age": int(limits.log_seconds * _NANO),
        "duplicate_window": _DEDUPE_SECONDS * _NANO,
        "num_replicas": limits.replicas,
        "compression": "s2",
        "allow_direct": True,
    }


async def provision(session: Session, limits: Limits) -> dict[Bucket, str]:
    """Make everything exist with these limits; when each bucket was created. Raises BusUnavailable, BusRefused."""
    born: dict[Bucket, str] = {}
    account = await session.api("INFO")
    fitted = limits.fit(int(account.get("limits", {}).get("max_storage", -1)))
    if fitted is not limits:
        log.warning("the bus account has less storage than wanted: all limits shrink alike", extra={"log": fitted.log})
    for bucket in BUCKETS:
        try:
            born[bucket] = await _exists(session, bucket_config(bucket, fitted))
        except ApiRefused as err:
            if err.code in _NO_ROOM:
                raise BusRefused(f"no room on the bus for bucket {bucket_name(bucket)}: give it a larger disk") from err
            raise
    await _exists_somehow(session, fitted)
    return born


async def _exists_somehow(session: Session, limits: Limits) -> None:
    """The log in whatever room is left."""
    size = limits.log
    while True:
        try:
            await _exists(session, log_config(replace(limits, log=size)))
            break
        except ApiRefused as err:
            if err.code not in _NO_ROOM:
                raise
            size //= 2
            if size < _SMALLEST_LOG:
                raise BusRefused(f"no room on the bus for {LOG_STREAM}: give it a larger disk") from err
    if size != limits.log:
        log.warning("%s is limited to %d MiB, the room left on the bus", LOG_STREAM, size // _MIB)


async def _exists(session: Session, wanted: dict[str, Any]) -> str:
    """Created or adjusted; the time of its creation, as the server writes it."""
    name = wanted["name"]
    present = await _info(session, name)
    if present is None:
        try:
            made = await session.api(f"STREAM.CREATE.{name}", msgspec.json.encode(wanted))
        except ApiRefused as err:
            if err.code != _NAME_TAKEN:
                raise
            present = await _info(session, name)  # somebody was faster, with other limits
        else:
            log.info("created %s", name)
            return str(made.get("created", ""))
    if present is None:
        return ""
    await _adjust(session, dict(present["config"]), wanted)
    return str(present.get("created", ""))


async def _info(session: Session, name: str) -> dict[str, Any] | None:
    try:
        return dict(await session.api(f"STREAM.INFO.{name}"))
    except ApiRefused as err:
        if err.code == NO_STREAM:
            return None
        raise


async def _adjust(session: Session, present: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Change what differs; what we do not name stays as an administrator set it."""
    fixed = {key for key in ("retention", "storage") if present.get(key) != wanted[key]}
    if fixed:
        raise BusRefused(f"{wanted['name']} exists with another {' and '.join(sorted(fixed))}, which cannot be changed")
    different = {key: value for key, value in wanted.items() if _value(present, key) != value}
    if not different:
        return
    await session.api(f"STREAM.UPDATE.{wanted['name']}", msgspec.json.encode({**present, **different}))
    log.info("adjusted %s: %s", wanted["name"], ", ".join(sorted(different)))


def _value(present: dict[str, Any], key: str) -> Any:
    """Zero values are left out of the server's answers."""
    value = present.get(key)
    return 0 if value is None and key in ("max_age", "duplicate_window") else value
