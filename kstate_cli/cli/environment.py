"""Options that the command line does not set: from the environment, or from ``--config FILE`` (or KSTATE_CONFIG).

Options that say how kstate works have a variable; options that decide what it does have none. The command line wins
over the environment, and the environment over the file. One table maps keys of ``[defaults]`` to options
(:data:`kstate_cli.specification.tables.DEFAULTS`). The file itself is also the ``--spec`` of commands that take one,
and its ``application`` is the ``--app`` of a dump without one.

From a file that KSTATE_CONFIG names, kstate takes only options that may have a variable. ``kstate wipe --all`` with a
forgotten variable must not find a directory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.core
import typer.main

from kstate_cli.cli.help_panels import OUTPUT_PANEL
from kstate_cli.specification.tables import APP, DEFAULTS, DUMP, SERDES, SPARK
from kstate_cli.texts import close_to, some
from kstate_cli.texts import command as command_line

if TYPE_CHECKING:
    from kstate_cli.specification.toml_file import Configuration

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
        "source-bootstrap-server",
        "source-kafka-settings",
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
    # Sorted, so that the order of the warnings does not depend on the shell.
    for name in sorted(os.environ):
        if name in alone:
            warnings.append(
                f"kstate ignores {name}, because the name of this variable does not contain a command. Set "
                f"{some(alone[name], _MAX_LISTED)} instead"
            )
        elif name in decisions:
            warnings.append(f"kstate ignores {name}. Pass --{decisions[name]} on the command line")
        elif name.startswith(f"{variable_of(path)}_") and name not in settings:
            warnings.append(
                f"kstate ignores {name}{_instead(name, [*settings])}. To see the settings, run "
                f"{command_line(*path.split(), '--help')}"
            )
    return warnings


def _instead(name: str, names: list[str]) -> str:

    close = close_to(name, names, _ALIKE)
    if close:
        return f" (did you mean {close}?)"
    return ", because this setting does not exist"


def _warn(lines: list[str]) -> None:
    if lines:
        from kstate_cli.cli.output import say

        for line in lines:
            # ``quiet`` is not passed, since --quiet may be a variable too.
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


def log_settings(context: Any) -> None:
    """Log each option that has another value than its default, and where the value comes from."""
    # Nothing listens otherwise, and the import would take time.
    if "kstate_cli.diagnosis" not in sys.modules:
        return
    import logging

    from kstate_cli.diagnosis import redacted

    log = logging.getLogger(__name__)
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if parameter.param_type_name != "option" or source is None or parameter.name not in context.params:
            continue
        origin = {
            _COMMAND_LINE: "command line",
            "ENVIRONMENT": parameter.envvar,
            "DEFAULT_MAP": getattr(context.default_map, "file", None),
        }.get(source.name)
        if origin is not None:
            # Here each value is still whole. The formatter of the log sees words, and a secret may contain a space.
            text = " ".join(redacted(_texts_of(context.params[parameter.name])))
            log.debug("setting --%s %s (%s)", name_of(parameter), text, origin)


def _texts_of(value: Any) -> list[str]:
    """Return each value of an option as text."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [str(getattr(entry, "value", entry)) for entry in values]


def nothing_typed() -> typer.Context:
    """Return a context without options, for a command that another one calls."""
    return typer.Context(typer.core.TyperCommand(None))


VARIABLE: Final = "KSTATE_CONFIG"
OPTION: Final = "config"
_SPEC: Final = "spec"
_ID: Final = "dump --app"
_OF_SPARK: Final = "spark."
_OF_SERDES: Final = "serdes."
"""Begin the keys of ``[spark]`` and ``[serdes]`` here."""
_STORE: Final = "store"
"""The argument that selects a table of ``[serdes]``."""
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
            help="Read default options from this kstate.toml.",
            rich_help_panel=OUTPUT_PANEL,
            readable=False,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None:
    """Declare the option ``--config``."""


def _filled(click_command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (key, parameter) for all that the file can set, including the file itself and its application."""
    options = {name_of(parameter): parameter for parameter in _parameters(click_command, "option")}
    arguments = _parameters(click_command, "argument")
    only = [argument.name for argument in arguments]
    for key, rule in (*DEFAULTS.items(), *((f"{_OF_SPARK}{key}", rule) for key, rule in SPARK.items())):
        if (APP in rule.fills and only == ["app"]) or (DUMP in rule.fills and only == ["dump"]):
            yield key, arguments[0]
        yield from ((key, option) for option in _filled_options(options, path, rule.fills))
    if any(argument.name == _STORE for argument in arguments):
        yield from _serde_options(options)
    if _SPEC in options and not options[_SPEC].is_flag:
        yield _SPEC, options[_SPEC]
    if path == _ID.split()[0]:
        yield _ID, options["app"]


def _serde_options(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, rule in SERDES.items():
        yield from ((f"{_OF_SERDES}{key}", options[name]) for name in rule.fills if name in options)


def _filled_options(options: Mapping[str, Any], path: str, fills: Collection[str]) -> Iterator[Any]:
    """Yield the options, without flags, that a key fills: of every command, or of this one alone."""
    for name, option in options.items():
        if {name, f"{path} --{name}"} & {*fills} and not option.is_flag:
            yield option


def _parameters(click_command: Any, type_name: str) -> list[Any]:
    """Return the parameters of a command that are ``option`` or ``argument``."""
    return [parameter for parameter in click_command.params if parameter.param_type_name == type_name]


def _read(click_command: Any, path: str, ctx: Any, value: Any) -> None:
    """Give the values of a kstate.toml to Click, as defaults of the command's parameters."""
    # While a shell completes, the file is not read: it may be just being edited, and completion must not fail.
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
    # Click looks here after the command line and the environment, which is the documented order.
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
        self.file = configuration.path
        """The kstate.toml."""
        self._serdes = configuration.serdes
        self._serde_keys = {
            parameter.name: key.removeprefix(_OF_SERDES) for key, parameter in parameters if key.startswith(_OF_SERDES)
        }
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
        if name in self._serde_keys:
            # The store is an argument: its value is there before that of an option that is not typed.
            return self._serdes.get(self._ctx.params.get(_STORE), {}).get(self._serde_keys[name], default)
        return super().get(name, default)


def _value(configuration: Configuration, key: str) -> Any:
    if key == _SPEC:
        return os.fspath(configuration.path) if configuration.has_stores else None
    if key == _ID:
        return None if configuration.has_stores else configuration.application
    if key.startswith(_OF_SERDES):
        return None  # it depends on the store, which only get knows
    if key.startswith(_OF_SPARK):
        return configuration.spark.get(key.removeprefix(_OF_SPARK))
    return configuration.defaults.get(key)
