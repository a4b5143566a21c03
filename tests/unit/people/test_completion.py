"""Completion scripts name every command and option, and bash runs its own."""

import shutil
import subprocess

import pytest

from flexinfer.cli import _COMMANDS, run_command
from flexinfer.config import people
from flexinfer.config.completion import options_of

COMMANDS = {name: getattr(people, cls) for name, (cls, _, _) in _COMMANDS.items()}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_everything_is_completed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)

    for name, cls in COMMANDS.items():
        assert name in text
        for flag in options_of(cls):
            assert (flag if shell != "fish" else f"-l {flag.removeprefix('--')} ") in text, (name, flag)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rep"], ["replay"]),
        (["replay", "--unt"], ["--until"]),
        (["bench", "li"], ["list"]),
        (["bench", "list", "--out"], ["--output"]),
        (["events", "rec"], ["record"]),
        (["status", "--output", ""], ["text", "json", "yaml"]),
        (["up", "--check", ""], ["true", "false"]),
    ],
)
def test_bash_completes(words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    quoted = " ".join(f"'{word}'" for word in ["flexinfer", *words])
    ask = f'COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _flexinfer; printf "%s\\n" "${{COMPREPLY[@]}}"'

    told = subprocess.run(
        ["bash", "--norc", "-c", script("bash", capsys) + ask], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert told.stdout.split() == expected


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command(["completion", "tcsh"])
