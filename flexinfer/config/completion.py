"""Shell completion, generated from the settings classes: commands, their options, and the values of choices."""

from collections.abc import Mapping
from typing import get_args

from flexinfer.config.common import Settings

Commands = Mapping[str, tuple[type[Settings], str]]


def options_of(cls: type[Settings]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """``--flag`` → (help, values to choose from)."""
    found = {}
    for name, info in cls.model_fields.items():
        extra = info.json_schema_extra
        if not (isinstance(extra, dict) and extra.get("positional")):
            found["--" + name.replace("_", "-")] = (info.description or "", _choices(info.annotation))
    return found


def positional_of(cls: type[Settings]) -> tuple[str, ...]:
    """Values of the argument without a flag, if they are known."""
    for info in cls.model_fields.values():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and extra.get("positional"):
            return _choices(info.annotation)
    return ()


def _choices(annotation: object) -> tuple[str, ...]:
    if annotation is bool:
        return ("true", "false")
    return tuple(arg for arg in get_args(annotation) if isinstance(arg, str))


def script(shell: str, commands: Commands, bench: Commands) -> str:
    """The script for ``bash``, ``zsh`` or ``fish``."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands, bench)


def _bash(commands: Commands, bench: Commands) -> str:
    cases = []
    for name, (cls, _) in [*commands.items(), *((f"bench {action}", found) for action, found in bench.items())]:
        for flag, (_, values) in options_of(cls).items():
            if values:
                cases.append(f'    "{name} {flag}") words="{" ".join(values)}" ;;')
        cases.append(f'    "{name} "*) words="{" ".join([*options_of(cls), *positional_of(cls)])}" ;;')
    return "\n".join(
        [
            "# flexinfer completion for bash: source <(flexinfer completion bash)",
            "_flexinfer() {",
            '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
            '  local command="${COMP_WORDS[1]}" words=""',
            f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join([*commands, "bench"])}"',
            f'  elif [ "$command" = bench ] && [ "$COMP_CWORD" -eq 2 ]; then words="{" ".join(bench)}"',
            "  else",
            '    [ "$command" = bench ] && command="bench ${COMP_WORDS[2]}"',
            '    case "$command $prev" in',
            *cases,
            "    esac",
            "  fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$cur"))',
            '  [ ${#COMPREPLY[@]} -eq 0 ] && COMPREPLY=($(compgen -f -- "$cur"))',
            "  return 0",
            "}",
            "complete -F _flexinfer flexinfer",
            "",
        ]
    )


def _zsh(commands: Commands, bench: Commands) -> str:
    return "#compdef flexinfer\nautoload -U +X bashcompinit && bashcompinit\n" + _bash(commands, bench)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish(commands: Commands, bench: Commands) -> str:
    lines = ["# flexinfer completion for fish: flexinfer completion fish | source"]
    first = "__fish_use_subcommand"
    for name, (_, text) in [*commands.items(), ("bench", (Settings, "measure any server, look at results"))]:
        lines.append(f"complete -c flexinfer -f -n {first} -a {name} -d {_quoted(text)}")
    none = "'__fish_seen_subcommand_from bench; and not __fish_seen_subcommand_from " + " ".join(bench) + "'"
    lines.extend(
        f"complete -c flexinfer -f -n {none} -a {action} -d {_quoted(text)}" for action, (_, text) in bench.items()
    )
    for name, (cls, _) in [*commands.items(), *bench.items()]:
        seen = f"'__fish_seen_subcommand_from {name}'"
        lines.extend(f"complete -c flexinfer -n {seen} -a {value}" for value in positional_of(cls))
        for flag, (text, values) in options_of(cls).items():
            choice = f" -x -a {_quoted(' '.join(values))}" if values else ""
            lines.append(f"complete -c flexinfer -n {seen} -l {flag.removeprefix('--')} -d {_quoted(text)}{choice}")
    return "\n".join([*lines, ""])
