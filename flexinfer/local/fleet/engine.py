"""Engine of a virtual node: ``python -m flexinfer.local.fleet.engine``, throttled to the declared speed.

It stands where llama.cpp, vLLM or Ollama would and accepts their command lines, of which it reads host, port and
model name only. Its answers say that they are virtual.
"""

import argparse
import sys
from collections.abc import Sequence

from flexinfer.runtime.process import run_app, stop_signals
from flexinfer.testing.fake_engine import FakeEngine, Speeds


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Our own flags come first; of the engine's only the address and the served name are read."""
    parser = argparse.ArgumentParser(prog="virtual-engine", description=__doc__, allow_abbrev=False)
    parser.add_argument("--virtual-tokens-per-second", type=float, required=True)
    parser.add_argument("--virtual-first-token", type=float, default=0.0, help="seconds")
    parser.add_argument("--host", "--hostname", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--alias", "-a", "--served-model-name", default="virtual")
    known, _ = parser.parse_known_args(argv)
    return known


async def serve(args: argparse.Namespace) -> int:
    """Answer until SIGTERM."""
    stop = stop_signals()
    first = args.virtual_first_token
    speeds = Speeds(args.virtual_tokens_per_second, prompt_tokens_per_second=1e9 if first <= 0 else 64 / first)
    engine = FakeEngine(speeds=speeds, host=args.host, port=args.port, models=(args.alias,))
    await engine.start()
    sys.stderr.write(f"virtual engine on {engine.url}: {args.virtual_tokens_per_second:g} tokens/s as declared\n")
    await stop.wait()
    await engine.stop()
    return 0


def main() -> int:
    """Exit code of the process."""
    args = arguments(sys.argv[1:])
    try:
        return run_app(lambda: serve(args))
    except OSError as err:
        sys.stderr.write(f"virtual engine: cannot listen on {args.host}:{args.port}: {err}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
