"""``--config FILE``, or KSTATE_CONFIG: what a command is not told on its command line stands in a ``kstate.toml``.

Command line, then environment, then the file. Which key of ``[defaults]`` stands for which option is one table
(:data:`kstate_cli.specification.tables.DEFAULTS`).
The file itself is also the ``--spec`` of commands that take one, and its
``application`` the ``--app`` of a dump without.

A file that KSTATE_CONFIG names says no more than variables may (:mod:`kstate_cli.cli.environment`): how kstate works,
never what a command touches. ``kstate wipe --all`` with a forgotten variable must not find a directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.main

from kstate_cli.cli.environment import is_setting, name_of
from kstate_cli.cli.help_panels import OUTPUT_PANEL
from kstate_cli.specification.tables import APP, DEFAULTS

if TYPE_CHECKING:
    from kstate_cli.specification.configuration import Configuration

VARIABLE: Final = "KSTATE_CONFIG"
OPTION: Final = "config"
_SPEC: Final = "spec"
_ID: Final = "dump --app"
_INSTEAD: Final = {
    "--spec": ("--app", "--topic"),
    "--app": ("--spec", "--topic"),
    "--bootstrap-server": ("--offsets",),
    "--kafka-settings": ("--offsets",),
}
"""Option -> those of which one, given on the command line, says something else in its place."""


def give_config(click_command: Any, path: str) -> None:
    """Gives ``click_command``, called as ``path``, its ``--config``, where the file has anything to say to it."""
    if not list(_filled(click_command, path)) or any(parameter.name == OPTION for parameter in click_command.params):
        return
    option = _option()
    option.callback = lambda ctx, _, value: _read(click_command, path, ctx, value)
    click_command.params.append(option)


def _option() -> Any:
    """As typer makes one, of whatever version it is."""
    maker = typer.Typer(add_completion=False)
    maker.command()(_declaration)
    return next(parameter for parameter in typer.main.get_command(maker).params if parameter.name == OPTION)


def _declaration(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Read [defaults] from this kstate.toml.",
            rich_help_panel=OUTPUT_PANEL,
            readable=False,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None:
    """Declares the option."""


def _filled(click_command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(key, parameter) for all that the file may say; the key of the file itself, and of its application, too."""
    arguments = [parameter for parameter in click_command.params if parameter.param_type_name == "argument"]
    options = {
        name_of(parameter): parameter for parameter in click_command.params if parameter.param_type_name == "option"
    }
    for key, rule in DEFAULTS.items():
        if APP in rule.fills and len(arguments) == 1 and arguments[0].name == "app":
            yield key, arguments[0]
        yield from (
            (key, parameter)
            for name, parameter in options.items()
            if not parameter.is_flag and {name, f"{path} --{name}"} & {*rule.fills}
        )
    if _SPEC in options and not options[_SPEC].is_flag:
        yield _SPEC, options[_SPEC]
    if path == _ID.split()[0]:
        yield _ID, options["app"]


def _read(click_command: Any, path: str, ctx: Any, value: Any) -> None:
    if ctx.resilient_parsing:
        return
    path_text = value or os.environ.get(VARIABLE)
    if not path_text:
        return
    from kstate_cli.specification.configuration import read_configuration

    configuration = read_configuration(Path(path_text))
    missing = [
        (key, parameter)
        for key, parameter in _filled(click_command, path)
        if value or (parameter.param_type_name == "option" and is_setting(parameter))
    ]
    ctx.default_map = _Defaults(ctx, configuration, missing)


class _Defaults(dict[str, Any]):
    """What Click takes where neither the command line nor the environment says anything."""

    def __init__(self, ctx: Any, configuration: Configuration, parameters: list[tuple[str, Any]]) -> None:
        super().__init__(
            (parameter.name, value)
            for key, parameter in parameters
            if (value := _value(configuration, key)) is not None
        )
        self._ctx = ctx
        options = {
            f"--{name_of(parameter)}": parameter.name
            for parameter in ctx.command.params
            if parameter.param_type_name == "option"
        }
        self._instead = {
            options[name]: [options[other] for other in others if other in options]
            for name, others in _INSTEAD.items()
            if name in options
        }

    def get(self, name: str, default: Any = None) -> Any:
        """The value; ``default`` where the command line says something in its place."""
        if any(self._ctx.params.get(other) for other in self._instead.get(name, ())):
            return default  # what is on the command line is processed before what is not
        return super().get(name, default)


def _value(configuration: Configuration, key: str) -> Any:
    if key == _SPEC:
        return os.fspath(configuration.path) if configuration.has_stores else None
    if key == _ID:
        return None if configuration.has_stores else configuration.application
    return configuration.defaults.get(key)
