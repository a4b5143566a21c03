"""``python -m flexinfer.local.llama_server``: llama.cpp's server from the xllamacpp wheel, with llama-server's flags.

The same container arguments fit the llama.cpp image and this launcher. Flags that only a build of llama.cpp itself
could honour are refused by name instead of ignored. ``LLAMA_ARG_*`` variables work as they do in the image.
"""

import argparse
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

PROGRAM = "llama-server (local)"


class BadStart(Exception):
    """The server cannot start; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of llama-server: its spellings, the engine parameter it sets, how its text is read."""

    names: tuple[str, ...]
    target: str
    type: Any = str
    value: Any = None  # set without an argument
    env: str = ""


_LOAD_MODES = ("none", "mmap", "mlock", "mmap+mlock")


def _load_mode_name(text: str) -> str:
    if text not in _LOAD_MODES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(_LOAD_MODES)}")
    return text


_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def _cache_type(text: str) -> str:
    if text not in _CACHE_TYPES:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_CACHE_TYPES)}")
    return text


def _layers(text: str) -> int:
    """``-ngl`` takes a number, ``auto`` or ``all``."""
    return {"auto": -1, "all": 9999}[text] if text in {"auto", "all"} else int(text)


_POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}


def _pooling(text: str) -> int:
    if text not in _POOLINGS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_POOLINGS)}")
    return _POOLINGS[text]


FLAGS = (
    Flag(("-m", "--model"), "model.path", env="LLAMA_ARG_MODEL"),
    Flag(("-a", "--alias"), "alias", env="LLAMA_ARG_ALIAS"),
    Flag(("--host",), "host", env="LLAMA_ARG_HOST"),
    Flag(("--port",), "port", int, env="LLAMA_ARG_PORT"),
    Flag(("-c", "--ctx-size"), "n_ctx", int, env="LLAMA_ARG_CTX_SIZE"),
    Flag(("-n", "--predict", "--n-predict"), "n_predict", int, env="LLAMA_ARG_N_PREDICT"),
    Flag(("-t", "--threads"), "cpuparams.n_threads", int, env="LLAMA_ARG_THREADS"),
    Flag(("-tb", "--threads-batch"), "cpuparams_batch.n_threads", int),
    Flag(("--poll",), "cpuparams.poll", int),
    Flag(("--threads-http",), "n_threads_http", int, env="LLAMA_ARG_THREADS_HTTP"),
    Flag(("-np", "--parallel"), "n_parallel", int, env="LLAMA_ARG_N_PARALLEL"),
    Flag(("-b", "--batch-size"), "n_batch", int, env="LLAMA_ARG_BATCH"),
    Flag(("-ub", "--ubatch-size"), "n_ubatch", int, env="LLAMA_ARG_UBATCH"),
    Flag(("-ngl", "--gpu-layers", "--n-gpu-layers"), "n_gpu_layers", _layers, env="LLAMA_ARG_N_GPU_LAYERS"),
    Flag(("-mg", "--main-gpu"), "main_gpu", int, env="LLAMA_ARG_MAIN_GPU"),
    Flag(("-fa", "--flash-attn"), "flash_attn", env="LLAMA_ARG_FLASH_ATTN"),
    Flag(("-ctk", "--cache-type-k"), "cache_type_k", _cache_type, env="LLAMA_ARG_CACHE_TYPE_K"),
    Flag(("-ctv", "--cache-type-v"), "cache_type_v", _cache_type, env="LLAMA_ARG_CACHE_TYPE_V"),
    Flag(("-nkvo", "--no-kv-offload"), "no_kv_offload", value=True),
    Flag(("-kvu", "--kv-unified"), "kv_unified", value=True),
    Flag(("--load-mode",), "load_mode_name", _load_mode_name, env="LLAMA_ARG_LOAD_MODE"),
    Flag(("--mlock",), "mlock", value=True, env="LLAMA_ARG_MLOCK"),
    Flag(("--no-mmap",), "no_mmap", value=True, env="LLAMA_ARG_NO_MMAP"),
    Flag(("--mmap",), "no_mmap", value=False),
    Flag(("-cb", "--cont-batching"), "cont_batching", value=True),
    Flag(("-nocb", "--no-cont-batching"), "cont_batching", value=False),
    Flag(("--context-shift",), "ctx_shift", value=True),
    Flag(("--no-context-shift",), "ctx_shift", value=False),
    Flag(("--no-warmup",), "warmup", value=False),
    Flag(("--warmup",), "warmup", value=True),
    Flag(("--metrics",), "endpoint_metrics", value=True, env="LLAMA_ARG_ENDPOINT_METRICS"),
    Flag(("--slots",), "endpoint_slots", value=True, env="LLAMA_ARG_ENDPOINT_SLOTS"),
    Flag(("--no-slots",), "endpoint_slots", value=False),
    Flag(("--props",), "endpoint_props", value=True, env="LLAMA_ARG_ENDPOINT_PROPS"),
    Flag(("--no-webui", "--no-ui"), "ui", value=False, env="LLAMA_ARG_NO_WEBUI"),
    Flag(("--webui", "--ui"), "ui", value=True),
    Flag(("--embedding", "--embeddings"), "embedding", value=True, env="LLAMA_ARG_EMBEDDINGS"),
    Flag(("--pooling",), "pooling_type", _pooling, env="LLAMA_ARG_POOLING"),
    Flag(("--api-key",), "api_key", env="LLAMA_API_KEY"),
    Flag(("--api-key-file",), "api_key_file"),
    Flag(("--api-prefix",), "api_prefix", env="LLAMA_ARG_API_PREFIX"),
    Flag(("--jinja",), "use_jinja", value=True, env="LLAMA_ARG_JINJA"),
    Flag(("--no-jinja",), "use_jinja", value=False),
    Flag(("--chat-template",), "chat_template", env="LLAMA_ARG_CHAT_TEMPLATE"),
    Flag(("--chat-template-file",), "chat_template_file", env="LLAMA_ARG_CHAT_TEMPLATE_FILE"),
    Flag(("--lora",), "lora"),
    Flag(("--rope-freq-base",), "rope_freq_base", float, env="LLAMA_ARG_ROPE_FREQ_BASE"),
    Flag(("--rope-freq-scale",), "rope_freq_scale", float, env="LLAMA_ARG_ROPE_FREQ_SCALE"),
    Flag(("-to", "--timeout"), "timeout", int, env="LLAMA_ARG_TIMEOUT"),
    Flag(("-s", "--seed"), "sampling.seed", int),
    Flag(("--temp",), "sampling.temp", float),
    Flag(("--top-k",), "sampling.top_k", int),
    Flag(("--top-p",), "sampling.top_p", float),
    Flag(("--min-p",), "sampling.min_p", float),
    Flag(("-lv", "--verbosity", "--log-verbosity"), "verbosity", int, env="LLAMA_LOG_VERBOSITY"),
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        text = message if unknown == message else f"this launcher does not know {unknown.split()[0]}"
        self.exit(2, f"{PROGRAM}: {text}; see --help for the flags of llama-server it takes\n")


def parser() -> argparse.ArgumentParser:
    """The command line; each flag's ``dest`` is its target, absent unless given."""
    found = _Parser(prog=PROGRAM, description=__doc__, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flag in FLAGS:
        if flag.value is not None:
            found.add_argument(*flag.names, dest=flag.target, action="store_const", const=flag.value)
        elif flag.target == "flash_attn":
            found.add_argument(*flag.names, dest=flag.target, nargs="?", const="on", choices=("on", "off", "auto"))
        else:
            found.add_argument(*flag.names, dest=flag.target, type=flag.type, metavar="VALUE")
    return found


def options(argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """target → value from flags, then from the variables llama-server reads. Exits 2 for a flag it does not know."""
    command = parser()
    given = vars(command.parse_args(argv))
    for flag in FLAGS:
        text = environ.get(flag.env, "") if flag.env else ""
        if text and flag.target not in given:
            try:
                given[flag.target] = _switch(flag, text) if flag.value is not None else flag.type(text)
            except (ValueError, argparse.ArgumentTypeError) as err:
                command.error(f"{flag.env}: {err}")
    return given


def _switch(flag: Flag, text: str) -> bool:
    on = text.lower() in {"1", "true", "on", "yes", "enabled"}
    return bool(flag.value) if on else not flag.value


def check(given: Mapping[str, Any]) -> None:
    """What can be told before the engine starts. Raises BadStart."""
    path = given.get("model.path")
    if not path:
        raise BadStart("no model: pass -m FILE.gguf")
    if not Path(path).is_file():
        raise BadStart(f"model file {path} does not exist")
    for adapter in filter(None, [given.get("lora"), given.get("chat_template_file"), given.get("api_key_file")]):
        if not Path(adapter).is_file():
            raise BadStart(f"file {adapter} does not exist")
    host, port = given.get("host", "127.0.0.1"), given.get("port", 8080)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as err:
            raise BadStart(f"cannot listen on {host}:{port}: {err.strerror}") from err


def fill(params: Any, given: Mapping[str, Any], engine: Any) -> None:
    """Set the engine's parameters; llama-server's own defaults where a flag was not given."""
    params.hostnames = [given.get("host", "127.0.0.1")]
    params.port = given.get("port", 8080)
    params.model_alias = set(filter(None, str(given.get("alias", "")).split(",")))
    params.api_keys = _keys(given)
    if "chat_template_file" in given:
        params.chat_template = Path(given["chat_template_file"]).read_text()
    if "lora" in given:
        adapter = engine.CommonAdapterLoraInfo()
        adapter.path, adapter.scale = given["lora"], 1.0
        params.lora_adapters = [adapter]
    if "flash_attn" in given:
        name = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[given["flash_attn"]]
        params.flash_attn_type = engine.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{name}"]
    params.load_mode = _load_mode(given, engine)
    if "timeout" in given:
        params.timeout_read = params.timeout_write = given["timeout"]
    for kind in ("cache_type_k", "cache_type_v"):
        if kind in given:
            setattr(params, kind, engine.ggml_type[f"GGML_TYPE_{given[kind].upper()}"])
    for name, value in given.items():
        if name not in _HANDLED:
            owner, _, field = name.rpartition(".")
            setattr(getattr(params, owner) if owner else params, field, value)
    _batch_follows(params, given)


def _batch_follows(params: Any, given: Mapping[str, Any]) -> None:
    """Prompt processing uses what was asked for generation, unless it has a flag of its own."""
    for name in ("n_threads", "poll"):
        if f"cpuparams.{name}" in given and f"cpuparams_batch.{name}" not in given:
            setattr(params.cpuparams_batch, name, given[f"cpuparams.{name}"])


_HANDLED = frozenset({
    "host", "port", "alias", "api_key", "api_key_file", "chat_template_file", "lora", "flash_attn", "mlock", "no_mmap",
    "timeout", "cache_type_k", "cache_type_v", "load_mode_name",
})  # fmt: skip


def _keys(given: Mapping[str, Any]) -> list[str]:
    keys = str(given.get("api_key", "")).split(",")
    if "api_key_file" in given:
        keys += Path(given["api_key_file"]).read_text().splitlines()
    return [key.strip() for key in keys if key.strip()]


def _load_mode(given: Mapping[str, Any], engine: Any) -> Any:
    if "load_mode_name" in given:
        return engine.llama_load_mode[f"LLAMA_LOAD_MODE_{given['load_mode_name'].upper().replace('+', '_')}"]
    mapped, locked = not given.get("no_mmap", False), given.get("mlock", False)
    if not locked and "no_mmap" not in given:
        return engine.llama_load_mode.LLAMA_LOAD_MODE_AUTO
    name = {(True, True): "MMAP_MLOCK", (True, False): "MMAP", (False, True): "MLOCK", (False, False): "NONE"}
    return engine.llama_load_mode[f"LLAMA_LOAD_MODE_{name[mapped, locked]}"]


def serve(given: Mapping[str, Any]) -> None:
    """Run the engine until SIGTERM or SIGINT. Raises BadStart."""
    check(given)
    try:
        import xllamacpp  # noqa: PLC0415 - optional, and only this process needs it
    except ImportError as err:
        raise BadStart(f"the llama.cpp wheel cannot be loaded ({err}): run `make setup`, or install xllamacpp") from err
    # While the model loads the engine holds the interpreter, so only the kernel's own action can stop us.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    params = xllamacpp.CommonParams()
    fill(params, given, xllamacpp)
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as err:
        raise BadStart(f"the engine did not start with {given['model.path']}: {err}") from err
    sys.stderr.write(f"{PROGRAM}: listening on {server.listening_address}\n")
    _wait_for_signal()
    # The engine's destructor waits for generations in flight and holds the interpreter meanwhile: for ever, when
    # tried. llama-server cuts them too, and the kernel frees the memory of either.
    os._exit(0)


def _wait_for_signal() -> None:
    """A wake-up descriptor, because the kernel may hand the signal to a thread of the engine."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)  # noqa: FBT003 - the socket API
    signal.set_wakeup_fd(theirs.fileno())
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda _signum, _frame: None)
    select.select([ours], [], [])


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a signal, 1 if it cannot start, 2 for a wrong command line."""
    given = options(sys.argv[1:] if argv is None else argv, os.environ)
    try:
        serve(given)
    except BadStart as err:
        sys.stderr.write(f"{PROGRAM}: {err}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
