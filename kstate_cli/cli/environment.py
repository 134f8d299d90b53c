"""Environment variables of options, and the difference between them and the command line itself.

Options that say how kstate works have a variable; options that decide what it does have none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import typer
import typer.core

from kstate_cli.texts import close_to, some
from kstate_cli.texts import command as command_line

_MAX_LISTED = 2
_ALIKE = 0.8

SETTINGS: Final = frozenset(
    {
        "barrier-timeout",
        "bootstrap-server",
        "conf",
        "delete-retention",
        "engine",
        "kafka-settings",
        "key-serde",
        "master",
        "max-age",
        "max-rate",
        "memory",
        "metrics-file",
        "on-state-change",
        "output",
        "reason",
        "spec",
        "staging",
        "timeout",
        "topology",
        "value-serde",
        "verify",
        "wait",
        "workers",
    }
)
"""Long names of options with a value, for all commands. An option that is not listed has no variable."""
FLAGS: Final = frozenset({"each-sst", "explain", "quiet"})
"""The few flags that are settings."""


def name_of(option: Any) -> str:
    """Return the first long name of an option of Click."""
    # Long names only: a variable made of a short one would say nothing.
    return next(str(name)[2:] for name in (*option.opts, *option.secondary_opts) if name.startswith("--"))


def variable_of(*words: str) -> str:
    """Return the variable of a command and an option: ``KSTATE_QUERY_KEY_KEY_SERDE``."""
    return "_".join(("kstate", *words)).replace("-", "_").replace(" ", "_").upper()


def is_setting(option: Any) -> bool:
    """Return whether an option of Click has a variable."""
    if option.is_flag:
        return name_of(option) in FLAGS
    return name_of(option) in SETTINGS


def options_of(click_command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the options of a command and of its subcommands, each with the words of its command."""
    yield from ((path, parameter) for parameter in click_command.params if parameter.param_type_name == "option")
    for name, inner in getattr(click_command, "commands", {}).items():
        # The subcommands of query have options of their own, and so variables of their own.
        yield from options_of(inner, f"{path} {name}")


def give_variables(click_command: Any, path: str) -> None:
    """Set the variables of the settings of ``click_command`` and its subcommands."""
    for words, option in options_of(click_command, path):
        if is_setting(option):
            option.envvar = variable_of(words, name_of(option))


def warn_of_unread(context: Any) -> None:
    """Print a warning for each variable that looks like one of the command, and that no option reads."""
    # While a shell completes, standard error would appear in the middle of the command line.
    if not context.resilient_parsing:
        _warn(unread(context.command, context.command.words))


def unread(click_command: Any, path: str) -> list[str]:
    """Return warnings for variables that start like those of the command, or lack the command in their name."""
    options = list(options_of(click_command, path))
    settings = {option.envvar: option for _, option in options if option.envvar}
    alone: dict[str, list[str]] = {}
    for words, option in options:
        if option.envvar:
            alone.setdefault(variable_of(name_of(option)), []).append(variable_of(words, name_of(option)))
    decisions = {variable_of(words, name_of(option)): name_of(option) for words, option in options if not option.envvar}
    warnings = []
    # Sorted, so that two runs warn in the same order: the environment has that of the shell.
    for name in sorted(os.environ):
        if name in alone:
            warnings.append(
                f"{name} is not read: a variable has the command in its name: {some(alone[name], _MAX_LISTED)}"
            )
        elif name in decisions:
            warnings.append(f"{name} is not read: pass it on the command line: --{decisions[name]}")
        elif name.startswith(f"{variable_of(path)}_") and name not in settings:
            warnings.append(f"{name} is not read{_instead(name, [*settings])}: {command_line(*path.split(), '--help')}")
    return warnings


def _instead(name: str, names: list[str]) -> str:

    close = close_to(name, names, _ALIKE)
    if close:
        return f"; it may be that {close} is meant"
    return ", there is no such setting"


def _warn(lines: list[str]) -> None:
    if lines:
        from kstate_cli.cli.output import say

        for line in lines:
            # Not with quiet=: --quiet may be a variable too.
            say(f"warning: {line}")


_COMMAND_LINE: Final = "COMMANDLINE"
"""Click's ``ParameterSource``, by its name: newer releases of typer bring a Click of their own."""


def typed(context: typer.Context, *parameters: str) -> list[str]:
    """Return those of ``parameters``, as ``--option``, that the command line itself sets."""
    spelt = {
        parameter.name: f"--{name_of(parameter)}"
        for parameter in context.command.params
        if parameter.param_type_name == "option"
    }
    sources = ((name, context.get_parameter_source(name)) for name in parameters)
    return [spelt[name] for name, source in sources if source is not None and source.name == _COMMAND_LINE]


def nothing_typed() -> typer.Context:
    """Return a context without options, for a command that another one calls."""
    return typer.Context(typer.core.TyperCommand(None))
