"""Read options that the command line does not set from ``--config FILE``, or the file of KSTATE_CONFIG.

The command line wins over the environment, and the environment over the file. One table maps keys of ``[defaults]`` to
options (:data:`kstate_cli.specification.tables.DEFAULTS`). The file itself is also the ``--spec`` of commands that
take one, and its ``application`` is the ``--app`` of a dump without one.

From a file that KSTATE_CONFIG names, kstate takes only options that may have a variable
(:mod:`kstate_cli.cli.environment`). ``kstate wipe --all`` with a forgotten variable must not find a directory.
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
from kstate_cli.specification.tables import APP, DEFAULTS, SPARK

if TYPE_CHECKING:
    from kstate_cli.specification.toml_file import Configuration

VARIABLE: Final = "KSTATE_CONFIG"
OPTION: Final = "config"
_SPEC: Final = "spec"
_ID: Final = "dump --app"
_OF_SPARK: Final = "spark."
"""Begins the keys of ``[spark]`` here."""
_INSTEAD: Final = {
    "--spec": ("--app", "--topic"),
    "--app": ("--spec", "--topic"),
    "--bootstrap-server": ("--offsets",),
    "--kafka-settings": ("--offsets",),
}
"""Option -> options that replace it if the command line has one of them."""


def give_config(click_command: Any, path: str) -> None:
    """Add ``--config`` to ``click_command``, called as ``path``, if the file can set one of its options."""
    if not list(_filled(click_command, path)) or any(parameter.name == OPTION for parameter in click_command.params):
        return
    option = _option()
    option.callback = lambda ctx, _, value: _read(click_command, path, ctx, value)
    click_command.params.append(option)


def _option() -> Any:
    """Return the option as the installed version of typer makes it."""
    # Through Typer, since what it makes of an option differs between its versions.
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
    """Declare the option."""


def _filled(click_command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (key, parameter) for all that the file can set, including the file itself and its application."""
    options = {name_of(parameter): parameter for parameter in _parameters(click_command, "option")}
    arguments = _parameters(click_command, "argument")
    for key, rule in (*DEFAULTS.items(), *((f"{_OF_SPARK}{key}", rule) for key, rule in SPARK.items())):
        if APP in rule.fills and [argument.name for argument in arguments] == ["app"]:
            yield key, arguments[0]
        names = {name for name in options if {name, f"{path} --{name}"} & {*rule.fills}}
        yield from ((key, option) for name, option in options.items() if name in names and not option.is_flag)
    if _SPEC in options and not options[_SPEC].is_flag:
        yield _SPEC, options[_SPEC]
    if path == _ID.split()[0]:
        yield _ID, options["app"]


def _parameters(click_command: Any, type_name: str) -> list[Any]:
    """Return the parameters of a command that are ``option`` or ``argument``."""
    return [parameter for parameter in click_command.params if parameter.param_type_name == type_name]


def _read(click_command: Any, path: str, ctx: Any, value: Any) -> None:
    # Completion must not fail because a configuration file is being edited.
    if ctx.resilient_parsing:
        return
    path_text = value or os.environ.get(VARIABLE)
    if not path_text:
        return
    from kstate_cli.specification.toml_file import read_configuration

    configuration = read_configuration(Path(path_text))
    missing = [
        (key, parameter)
        for key, parameter in _filled(click_command, path)
        if value or (parameter.param_type_name == "option" and is_setting(parameter))
    ]
    # Click asks the map after the command line and the environment, which is the order that is documented.
    ctx.default_map = _Defaults(ctx, configuration, missing)


class _Defaults(dict[str, Any]):
    """Values for Click's parameters that neither the command line nor the environment sets."""

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
        """Return the value, or ``default`` if the command line has an option that replaces it."""
        if any(self._ctx.params.get(other) for other in self._instead.get(name, ())):
            return default  # what is on the command line is processed before what is not
        if name in ("master", "conf") and self._ctx.params.get("engine") == "local":
            return default  # local processes take no settings of Spark, so those of the file mean other calls
        return super().get(name, default)


def _value(configuration: Configuration, key: str) -> Any:
    if key == _SPEC:
        return os.fspath(configuration.path) if configuration.has_stores else None
    if key == _ID:
        return None if configuration.has_stores else configuration.application
    if key.startswith(_OF_SPARK):
        return configuration.spark.get(key.removeprefix(_OF_SPARK))
    return configuration.defaults.get(key)
