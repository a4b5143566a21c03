"""Print what FlexInfer says, with nothing but nats-py: ``python subscribe.py [URL] [SUBJECT] [COUNT]``.

First the state as it is (one value per key), then what is new. COUNT 0 (the default) goes on until Ctrl-C.
"""
# ruff: noqa: INP001, T201 - a script that prints

import asyncio
import json
import sys

import nats


async def main(url: str, subject: str, count: int) -> None:
    # A bus with users lets the user "viewer" receive answers below this prefix.
    bus = await nats.connect(url, inbox_prefix="_INBOX_events")
    live = await bus.subscribe(subject)  # before the state is read, so that nothing falls between
    models = await bus.jetstream().key_value("flexinfer_models")
    async for entry in await models.watch("*.*.phase", ignore_deletes=True):
        if entry is None:  # that was all there is
            break
        show("state", json.loads(entry.value))
    print("listening", flush=True)
    seen = 0
    async for message in live.messages:
        show("live", json.loads(message.data))
        seen += 1
        if seen == count:
            break
    await bus.close()


def show(kind: str, event: dict) -> None:
    print(kind, event["time"], event["type"], event["subject"], json.dumps(event["data"])[:120], flush=True)


if __name__ == "__main__":
    defaults = ["nats://127.0.0.1:4222", "flexinfer.v1.*.model.*.*.phase", "0"]
    given = sys.argv[1:]
    url, subject, count = given + defaults[len(given) :]
    asyncio.run(main(url, subject, int(count)))
