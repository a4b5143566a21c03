"""Replays a capture: fake commands plus a fake file tree.

In process: ``FakeNode(case).run(["nvidia-smi", "-L"])``. Out of process: ``materialize(case, folder)`` writes
``folder/bin/<tool>`` and ``folder/root/<files>``; start the agent with PATH=folder/bin and --root folder/root.

A command line is answered by the first of: its exact key; the longest key of two or more tokens that is a prefix of
it; a model (``<prefix>nvidia-smi#fields`` answers any query, ``<prefix>rocm-smi#json`` any ``--show`` flags); the
bare program's key; otherwise the program does not exist. A chroot nobody mentions fails the way coreutils does.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Case = dict[str, Any]
_NOT_COMMANDS = {"files", "links", "env", "python"}
_ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}
_ROCM_FLAGS = {
    "--showproductname": ("Card ", "Subsystem", "Device Rev", "Node ID", "GUID", "GFX Version"),
    "--showuse": ("GPU use", "GFX Activity"),
    "--showtemp": ("Temperature",),
    "--showpower": ("Average Graphics", "Current Socket"),
    "--showid": ("Device ID", "GPU ID"),
    "--showbus": ("PCI Bus",),
    "--showuniqueid": ("Unique ID",),
}
_ROCM_POOLS = {"vram": "VRAM ", "gtt": "GTT ", "vis_vram": "VIS_VRAM"}


@dataclass(frozen=True, slots=True)
class Result:
    """What one command did."""

    stdout: str = ""
    stderr: str = ""
    rc: int = 0
    found: bool = True
    timeout: bool = False


def _fixed(answer: Mapping[str, Any], env: Mapping[str, str]) -> Result:
    if answer.get("timeout"):
        return Result(rc=124, timeout=True)
    for variable, other in (answer.get("when_env") or {}).items():
        if variable in env:
            return _fixed(other, {})
    return Result(answer.get("stdout", ""), answer.get("stderr", ""), answer.get("rc", 0))


def _options(args: Sequence[str]) -> dict[str, str]:
    """Long options by name, ``-i`` and ``-L`` included."""
    found: dict[str, str] = {}
    rest = iter(args)
    for arg in rest:
        name, _, value = arg.partition("=")
        if name in {"-i", "--id"}:
            found["--id"] = value or next(rest, "")
        else:
            found["-L" if name == "--list-gpus" else name] = value
    return found


def _nvidia_smi(model: Mapping[str, Any], args: Sequence[str]) -> Result | None:
    """Any ``--query-gpu``; None for a listing, which has a key of its own."""
    options = _options(args)
    gpus = model["gpus"]
    if "--id" in options:
        gpus = [gpu for gpu in gpus if options["--id"] in (gpu["index"], gpu["uuid"], gpu["pci.bus_id"])]
        if not gpus:
            return Result("No devices were found\n", rc=6)
    elif model.get("fail_unfiltered"):
        return _fixed(model["fail_unfiltered"], {})
    if "-L" in options:
        return None
    if "--query-gpu" not in options:
        return Result("(table output is not modelled)\n", rc=model.get("rc", 0))
    fields = options["--query-gpu"].split(",")
    for field in fields:
        if _ALIASES.get(field, field) in model["bad_fields"]:
            return Result(f'Field "{field}" is not a valid field to query.\n\n', rc=2)
    return Result(_csv(model, gpus, fields, options.get("--format", "").split(",")), rc=model.get("rc", 0))


def _csv(
    model: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], fields: Sequence[str], form: Sequence[str]
) -> str:
    units = model.get("units", {})
    lines = []
    if "noheader" not in form:
        lines.append(
            ", ".join(f + (f" [{units[_ALIASES.get(f, f)]}]" if _ALIASES.get(f, f) in units else "") for f in fields)
        )
    for gpu in gpus:
        cells = []
        for field in fields:
            key = _ALIASES.get(field, field)
            value = gpu.get(key)
            text = "[N/A]" if value is None else value
            plain = "nounits" in form or key not in units or not re.match(r"^[0-9.]+$", text)
            cells.append(text if plain else f"{text} {units[key]}")
        lines.append(", ".join(cells))
    return "\n".join(lines) + "\n" + model.get("trailer", "")


def _rocm_smi(model: Mapping[str, Any], args: Sequence[str]) -> Result:
    stderr, code = model.get("stderr", ""), model.get("rc", 0)
    if "--json" not in args:
        return Result("(text output is not modelled)\n", stderr, code)
    wanted = [prefix for arg in args for prefix in _ROCM_FLAGS.get(arg, ())]
    pools = False
    for arg in args:
        pools = arg == "--showmeminfo" or (pools and not arg.startswith("-"))
        if pools:
            wanted += _ROCM_POOLS.values() if arg == "all" else [_ROCM_POOLS[arg]] if arg in _ROCM_POOLS else []
    everything = "-a" in args or "--showall" in args
    if not wanted and not everything:
        return Result("NOT_SUPPORTED: Cannot print JSON/CSV output for concise output\n", stderr, 1)
    cards = {
        card: {key: value for key, value in shown.items() if everything or key.startswith(tuple(wanted))}
        for card, shown in model["cards"].items()
    }
    text = json.dumps({card: shown for card, shown in cards.items() if shown})
    return Result(f"{model.get('before', '')}{text}\n{model.get('after', '')}", stderr, code)


class FakeNode:
    """One machine: ``files`` and ``links`` by absolute path, commands by ``run``."""

    def __init__(self, case: Case) -> None:
        self.inputs: dict[str, Any] = case["inputs"]
        self.files: dict[str, str] = self.inputs.get("files", {})
        self.links: dict[str, str] = self.inputs.get("links", {})
        self.commands = {key: value for key, value in self.inputs.items() if key not in _NOT_COMMANDS}

    def run(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Result:
        """The answer to a command line; ``env`` is what the tool would see."""
        env = self.inputs.get("env", {}) if env is None else env
        key = " ".join(argv) if " ".join(argv) in self.commands else self._longest_prefix(argv)
        if key:
            return _fixed(self.commands[key], env)
        modelled = self._modelled(argv, env)
        if modelled:
            return modelled
        if argv[0] in self.commands:
            return _fixed(self.commands[argv[0]], env)
        return self._missing(argv)

    def _longest_prefix(self, argv: Sequence[str]) -> str:
        keys = [key for key in self.commands if "#" not in key and " " in key]
        fitting = [key for key in keys if list(argv[: len(key.split(" "))]) == key.split(" ")]
        return max(fitting, key=lambda key: len(key.split(" ")), default="")

    def _modelled(self, argv: Sequence[str], env: Mapping[str, str]) -> Result | None:
        for key, model in self.commands.items():
            head, _, kind = key.partition("#")
            tokens = head.split(" ")
            if not kind or list(argv[: len(tokens)]) != tokens:
                continue
            rest = argv[len(tokens) :]
            if kind == "json":
                return _rocm_smi(model, rest)
            listing = self.commands.get(f"{head} -L")
            return _nvidia_smi(model, rest) or (_fixed(listing, env) if listing else Result())
        return None

    def _missing(self, argv: Sequence[str]) -> Result:
        if argv[0] != "chroot" or len(argv) < 3:
            return Result(rc=127, found=False)
        root = argv[1].rstrip("/") + "/"
        known = root.startswith("/host/") and any(path.startswith(root) for path in self.files)
        if known or any(key.startswith(f"chroot {argv[1]} ") for key in self.commands):
            return Result("", f"chroot: failed to run command '{argv[2]}': No such file or directory\n", 127)
        return Result("", f"chroot: cannot change root directory to '{argv[1]}': No such file or directory\n", 125)

    def names_in(self, path: str) -> tuple[str, ...]:
        """Sorted names below a directory, empty if there is none."""
        start = path.rstrip("/") + "/"
        inside = [entry for entry in (*self.files, *self.links) if entry.startswith(start)]
        return tuple(sorted({entry[len(start) :].split("/")[0] for entry in inside}))


_SCRIPT = """#!{python}
import json, os, sys, time
sys.path.insert(0, {here!r})
from player import FakeNode
with open({case!r}) as text:
    found = FakeNode(json.load(text)).run([{program!r}] + sys.argv[1:], env=dict(os.environ))
if found.timeout:
    time.sleep(3600)
sys.stdout.write(found.stdout)
sys.stderr.write(found.stderr)
sys.exit(found.rc)
"""


def materialize(case: Case, folder: Path) -> tuple[Path, Path]:
    """Write real fake tools and files; returns (bin directory, root directory)."""
    tools, root, text = folder / "bin", folder / "root", folder / "case.json"
    tools.mkdir(parents=True)
    root.mkdir()
    text.write_text(json.dumps(case))
    node = FakeNode(case)
    for program in {re.split(r"[ #]", key)[0] for key in node.commands}:
        script = tools / program
        here = str(Path(__file__).resolve().parent)
        script.write_text(_SCRIPT.format(python=sys.executable, here=here, case=str(text), program=program))
        script.chmod(0o755)
    for path, content in node.files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    for path, points_to in node.links.items():
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() and not link.exists():
            link.symlink_to(points_to)
    return tools, root


def load(folder: Path) -> Iterator[Case]:
    """Every capture of a folder, in the order of its name."""
    for path in sorted(folder.glob("*.json")):
        yield json.loads(path.read_text())


def matches(expected: object, got: object) -> bool:
    """``expected`` is an exact value, None for "must be absent", or a list of acceptable ones."""
    if isinstance(expected, list):
        return any(matches(each, got) for each in expected)
    return got == expected
