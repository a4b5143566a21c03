"""Engine of a virtual node: ``python -m flexinfer.local.fleet.engine``, throttled to the declared speed.

It stands where llama.cpp, vLLM or Ollama would and accepts their command lines, of which it reads host, port and
model name only. Its answers say that they are made up.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from flexinfer.runtime.process import run_app, stop_signals
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.fake_engine import FakeEngine, Speeds
from flexinfer.testing.virtual import signals
from flexinfer.testing.virtual.declared import VirtualNode

LOOK_SECONDS = 0.5


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Our own flags come first; of the engine's only the address and the served name are read."""
    parser = argparse.ArgumentParser(prog="virtual-engine", description=__doc__, allow_abbrev=False)
    parser.add_argument("--virtual-node", type=Path, required=True, help="declaration of the node, JSON")
    parser.add_argument("--virtual-since", type=float, required=True, help="start of the fleet, Unix seconds")
    parser.add_argument("--host", "--hostname", default=_environment_host())
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8080") or 8080))
    parser.add_argument("--alias", "-a", "--served-model-name", default="virtual")
    known, _ = parser.parse_known_args(argv)
    return known


def _environment_host() -> str:
    return os.environ.get("OLLAMA_HOST", os.environ.get("HOST", "127.0.0.1")).partition(":")[0]


async def serve(args: argparse.Namespace, node: VirtualNode) -> int:
    """Answer until SIGTERM, following the declared faults."""
    stop = stop_signals()

    def now() -> Speeds:
        return signals.engine_speeds(node, args.alias, time.time() - args.virtual_since)

    engine = FakeEngine(speeds=now(), host=args.host, port=args.port, models=(args.alias,))
    await engine.start()
    sys.stderr.write(
        f"virtual engine of {node.name} on {engine.url}: {engine.speeds.tokens_per_second:g} tokens/s as declared\n"
    )

    async def follow() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            engine.speeds = now()

    tasks = Supervisor("virtual engine")
    tasks.forever("speed", follow)
    await stop.wait()
    await tasks.close()
    await engine.stop()
    return 0


def main() -> int:
    """Exit code of the process."""
    args = arguments(sys.argv[1:])
    try:
        node = VirtualNode.model_validate_json(args.virtual_node.read_bytes())
        return run_app(lambda: serve(args, node))
    except (OSError, ValidationError) as err:
        sys.stderr.write(f"virtual engine: cannot start on {args.host}:{args.port}: {err}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
