"""Forks a child per order on stdin; each fetches one model and may be told to kill itself before a step."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from flexinfer.adapters.weights.disk import Cache
from flexinfer.adapters.weights.fetcher import Fetcher
from flexinfer.adapters.weights.sources import Addresses
from flexinfer.adapters.weights.web import Credentials, Patience, Web
from flexinfer.core.lifecycle.sources import parse_source
from flexinfer.runtime.clock import SystemClock


async def fetch(root: str, url: str, die_at: int) -> None:
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    clock = SystemClock()
    web = Web(Credentials(), url, Patience(5), clock)
    try:
        fetcher = Fetcher(Cache(Path(root), step), web, Addresses(url, url), clock)
        await fetcher.fetch(parse_source("hf://o/m", "vllm"), "folder")
    finally:
        await web.aclose()


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                asyncio.run(fetch(order["root"], order["url"], order["die_at"]))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
