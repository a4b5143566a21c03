"""Reading the stored state of some topics."""

from collections.abc import Iterable

from nats.aio.msg import Msg

from flexinfer.adapters.bus import inbound
from flexinfer.adapters.bus.nats.cursor import Cursor
from flexinfer.adapters.bus.nats.link import ApiRefused, Session
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.topics import Bucket, Topic, bucket_name, key_pattern
from flexinfer.ports import BusRefused

NO_STREAM = 10059


class BucketMissing(BusRefused):
    """A bucket does not exist (yet)."""


def by_bucket(topics: Iterable[Topic]) -> dict[Bucket, list[Topic]]:
    """Topics that have state, by bucket."""
    found: dict[Bucket, list[Topic]] = {}
    for topic in topics:
        if topic.bucket is not None:
            found.setdefault(topic.bucket, []).append(topic)
    return found


async def open_bucket(session: Session, bucket: Bucket, topics: Iterable[Topic]) -> Cursor:
    """A cursor at the last value of every key of these topics. Raises BucketMissing, BusUnavailable, BusRefused."""
    name = bucket_name(bucket)
    filters = [f"$KV.{name}.{key_pattern(topic)}" for topic in topics]
    start = {"deliver_policy": "last_per_subject", "filter_subjects": filters}
    try:
        return await Cursor.open(session, f"KV_{name}", start)
    except ApiRefused as err:
        if err.code == NO_STREAM:
            raise BucketMissing(f"bucket {name} does not exist yet; the manager creates it") from err
        raise


def entry(bucket: Bucket, msg: Msg) -> Event | None:
    """The event a bucket message holds; None for a deletion marker or malformed content."""
    if msg.headers and ("KV-Operation" in msg.headers or "Nats-Marker-Reason" in msg.headers):
        return None
    return inbound.from_state(bucket, msg.subject.split(".", 2)[2], msg.data)


async def read(session: Session, topics: Iterable[Topic]) -> tuple[Event, ...]:
    """All stored events of the topics. Raises BucketMissing, BusUnavailable, BusRefused."""
    found: list[Event] = []
    for bucket, wanted in by_bucket(topics).items():
        cursor = await open_bucket(session, bucket, wanted)
        try:
            for msg in await cursor.available():
                event = entry(bucket, msg)
                if event is not None:
                    found.append(event)
        finally:
            await cursor.close()
    return tuple(found)
