"""Arguments and options that several commands share, the parsers of their texts, and groups of options.

typer makes options from the parameters of a command. If there are many, or several commands share them, they are the
``Annotated`` fields of a dataclass, which :func:`declared` passes as one object. A field may be such a class itself.
``HELP_PANEL`` of a class is the title of its options in the help (:mod:`kstate_cli.cli.help_panels`).
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_type_hints

import typer

from kstate_cli import clock, option
from kstate_cli.cli.help_panels import EXECUTION, LOGS, OUTPUT_PANEL, WHICH, choices_text
from kstate_cli.cli.output import Format
from kstate_cli.cli.shell_completion import stores, tasks
from kstate_cli.errors import UsageError
from kstate_cli.host import cores_here

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstate_cli.formats.offsets import PositionBound
    from kstate_cli.spark.context import SparkSettings
    from kstate_cli.spark.engine import EngineChoice
    from kstate_cli.specification.draft import SpecDraft


class Guarantee(str, Enum):
    """``processing.guarantee`` of the application: the two that differ on disk."""

    at_least_once = "at_least_once"
    exactly_once = "exactly_once_v2"


class StoreFormat(str, Enum):
    """``dsl.store.format`` of the application, from 4.3 on (KIP-1285)."""

    DEFAULT = "DEFAULT"
    HEADERS = "HEADERS"


class OnUnclean(str, Enum):
    """What to do with tasks that may contain uncommitted data."""

    refuse = "refuse"
    wipe = "wipe"


class Verify(str, Enum):
    """How much to compare before the switch."""

    quick = "quick"
    full = "full"


def workers_option(action: str) -> Any:
    """Return the option ``--workers`` for ``action``, such as ``Restore N stores``; ``at_once`` resolves its value."""
    return typer.Option(option.WORKERS, metavar="N", min=0, help=f"{action} at a time. 0 means one per core.")


# A setting of the application, which nothing in its directory records.
DslStoreFormat = Annotated[
    StoreFormat,
    typer.Option(
        option.DSL_STORE_FORMAT,
        metavar=choices_text(StoreFormat),
        help="Assume this dsl.store.format (Kafka Streams 4.3 and later).",
    ),
]
TransactionalStores = Annotated[
    bool,
    typer.Option(option.TRANSACTIONAL_STORES, help="Treat the stores as transactional (KIP-892)."),
]
Unproven = Annotated[
    bool,
    typer.Option(option.UNPROVEN, help="Allow releases not yet tested with kstate."),
]
# readable=False on every path: Typer would refuse an unreadable one itself, without the hint about rights.
App = Annotated[
    Path,
    typer.Argument(
        metavar="APP",
        help=(
            "Path to the application directory (state.dir/application.id), or to a state.dir with only one application."
        ),
        readable=False,
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        option.TASK,
        metavar="TASK",
        help="Select only stores in this task. Can be repeated.",
        autocompletion=tasks,
        rich_help_panel=WHICH,
    ),
]
Stores = Annotated[
    list[str] | None,
    typer.Option(
        option.STORE,
        metavar="STORE",
        help="Select only stores with this name. Can be repeated.",
        autocompletion=stores,
        rich_help_panel=WHICH,
    ),
]
# -o as in kubectl, which the users of kstate type all day.
OutputFormat = Annotated[
    Format,
    typer.Option(
        "-o",
        option.OUTPUT,
        metavar=choices_text(Format),
        help="Print a table or JSON Lines.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
# cli/registry.py has the rule for each command. Warnings are printed too: they say that a result is not what it seems.
Quiet = Annotated[
    bool,
    typer.Option(
        option.QUIET, "-q", help="Suppress progress and informational messages.", rich_help_panel=OUTPUT_PANEL
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        option.VERBOSE,
        "-v",
        help="Print each step before running it. With --dry-run, print the steps in full.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
# The lock of the application and that of kstate: 0 means one attempt, since a command in cron must not pile up.
Wait = Annotated[
    float,
    typer.Option(
        option.WAIT,
        metavar="SECONDS",
        help="Wait up to SECONDS for the application's lock.",
        min=0,
        rich_help_panel=EXECUTION,
    ),
]
# fcntl locks of another host may be invisible on a shared file system: then only the user knows.
LockIsShared = Annotated[
    bool,
    typer.Option(
        option.LOCK_IS_SHARED,
        help="Confirm that all instances are stopped. Required on network file systems.",
        rich_help_panel=EXECUTION,
    ),
]
# For later readers of kstate status: the journal has the user and the command, but no purpose.
Reason = Annotated[
    str | None,
    typer.Option(
        option.REASON, metavar="TEXT", help="Record this reason in the run's journal.", rich_help_panel=OUTPUT_PANEL
    ),
]
# For set -e and cron, which treat every code but 0 as a failure.
WarningsOk = Annotated[
    bool,
    typer.Option(option.WARNINGS_OK, help="Exit with code 0 even if there are warnings.", rich_help_panel=OUTPUT_PANEL),
]
DryRun = Annotated[bool, typer.Option(option.DRY_RUN, help="Print the plan without changing anything.")]
# A hard link keeps the owner and is forbidden for files of others (fs.protected_hardlinks).
CopySsts = Annotated[
    bool, typer.Option(option.COPY, help="Copy SSTs instead of linking them. The current user owns the copies.")
]
# A title of its own: these options matter only then, and then they are looked for.
KILLED: Final = "After a crash"
# Exactly-once is the default because it is the cautious one: Streams wipes an unclean task under it.
LeftGuarantee = Annotated[
    Guarantee,
    typer.Option(
        option.GUARANTEE,
        metavar="GUARANTEE",
        help=(
            "Assume this processing.guarantee. Under at_least_once, unclean stores are usable, "
            "because they have no uncommitted data."
        ),
        rich_help_panel=KILLED,
    ),
]
# Once a person has looked at the cause: a loop of restarts must not wipe stores again and again.
AfterError = Annotated[
    bool,
    typer.Option(option.AFTER_ERROR, help="Confirm that the cause of the ERROR is fixed."),
]
# A file and no port: a command that ends cannot be scraped.
MetricsFile = Annotated[
    Path | None,
    typer.Option(
        option.METRICS_FILE,
        metavar="FILE",
        help="Write Prometheus metrics to FILE.",
        rich_help_panel=OUTPUT_PANEL,
        readable=False,
    ),
]
# For hosts without a way to the broker: the file is made elsewhere, and may be old.
LogOffsets = Annotated[
    Path | None,
    typer.Option(
        option.OFFSETS,
        metavar="FILE",
        help=('Read log offsets from FILE, as JSON: {"TOPIC": {"0": {"start": 0, "end": 42}}}.'),
        rich_help_panel=LOGS,
        readable=False,
    ),
]
# Without it no command opens a connection.
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        option.BOOTSTRAP_SERVER,
        metavar="HOST:PORT",
        help="Read log offsets from this broker.",
        rich_help_panel=LOGS,
    ),
]
KafkaSettings = Annotated[
    Path | None,
    typer.Option(
        option.KAFKA_SETTINGS,
        metavar="FILE",
        help="Read Kafka client properties from FILE.",
        rich_help_panel=LOGS,
        readable=False,
    ),
]
# --dump is accepted too, in every command with a dump (other_names.py).
Dump = Annotated[
    str | None,
    typer.Option(
        option.FROM_CHANGELOG,
        metavar="DUMP",
        help="Read topics, partitions and offsets from this changelog dump.",
        rich_help_panel=LOGS,
    ),
]
# Some kinds have the same bytes: then only the topology tells them apart.
SpecFile = Annotated[
    Path | None,
    typer.Option(
        option.SPEC,
        metavar="FILE",
        help="Read store kinds from this kstate.toml if the files do not show them.",
        readable=False,
    ),
]
# Off by default: rows in the memtables of the running application would be missing silently.
LastFlush = Annotated[
    bool,
    typer.Option(option.LAST_FLUSH, help="If the application is running, read its data as of the last flush."),
]


def draft_of(spec: Path | None) -> SpecDraft | None:
    """Return the specification of ``--spec``; None without the option. Raise UsageError and Refused."""
    # The reader of TOML and the types of stores take longer than the help of a command.
    from kstate_cli.specification.toml_file import read_draft

    if spec is None:
        return None
    return read_draft(spec)


def at_once(workers: int) -> int:
    """Return the value of ``--workers``, or for 0 the cores that this process may use."""
    # The cores of the container or the affinity mask, and not those of the host.
    return workers or cores_here()


def age(option_name: str, text: str) -> timedelta:
    """Return the time span of ``7d``, ``12h`` or ``30m``. Raise UsageError, which names the option."""
    length = clock.span(text)
    if length is None:
        raise UsageError(f"{option_name} {text!r} is not an age", hint="pass an age such as 7d, 12h or 30m")
    return length


def part_of(option_name: str, text: str, hint: str) -> tuple[int, int]:
    """Return ``2/3``, the second of three parts, as two numbers. Raise UsageError, which names the option."""
    # At most six digits, so that no number is too large for what it is used for.
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"{option_name} {text!r} is not I/N, with I from 1 to N", hint=hint)
    return int(match[1]), int(match[2])


_BOUND = re.compile(r"(.+):([0-9]+)=([0-9]+)")

At = Annotated[
    list[str] | None,
    typer.Option(
        option.AT,
        metavar="TOPIC:PARTITION=OFFSET",
        help=(
            "Require this minimum Position (PositionBound). Exit with code 3 if a store has not reached it. "
            "Can be repeated."
        ),
    ),
]


def bound_of(texts: Iterable[str]) -> PositionBound:
    """Return the bound of all texts together. Raise UsageError."""
    from kstate_cli.formats.offsets import Position, PositionBound

    position = Position.empty()
    for text in texts:
        try:
            # Only plain digits are accepted: int() also takes 1_0 and digits of other scripts, which are typing errors
            # here.
            match = _BOUND.fullmatch(text)
            if match is None:
                raise ValueError(text)
            position = position.with_component(match[1], int(match[2]), int(match[3]))
        except ValueError:
            raise UsageError(
                f"--at {text!r} is not TOPIC:PARTITION=OFFSET",
                hint=("pass a topic, a partition and an offset, such as orders:0=1234"),
            ) from None
    return PositionBound.at(position)


@dataclass(frozen=True, slots=True)
class _Built:
    """Builds an object from the values of options."""

    kind: type[Any]
    fields: dict[str, _Built | None]
    """None for a field that is an option."""

    def of(self, values: dict[str, Any]) -> Any:
        """Return the object, and remove its options from ``values``."""
        return self.kind(**_take_values(self.fields, values))


def _take_values(fields: dict[str, _Built | None], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values.pop(name) if built is None else built.of(values) for name, built in fields.items()}


def declared(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command for typer: a dataclass parameter is replaced by the options of its fields."""
    fields, parameters = _expanded(command)

    @functools.wraps(command)
    def run(**values: Any) -> int:
        return command(**_take_values(fields, values))

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # typer would look there for annotations
    return run


@functools.cache  # subcommands share their classes of options
def _expanded(function: Callable[..., Any]) -> tuple[dict[str, _Built | None], list[inspect.Parameter]]:
    """Return how to build the arguments of a function or dataclass, and the flat parameters for typer."""
    fields: dict[str, _Built | None] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in _parameters(function):
        fields[parameter.name] = None
        if is_dataclass(parameter.annotation) and isinstance(parameter.annotation, type):
            inner, more = _expanded(parameter.annotation)
            fields[parameter.name] = _Built(parameter.annotation, inner)
            parameters += more
        else:
            parameters.append(parameter)
    return fields, parameters


def _parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    annotations = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        yield parameter.replace(annotation=_in_panel(annotations[parameter.name], _panel(function, parameter.name)))


def _panel(function: Callable[..., Any], name: str) -> str | None:
    """Return the panel of the class that declares the field: a dataclass may inherit options from several."""
    bases = getattr(function, "__mro__", ())
    owner = next((base for base in bases if name in inspect.get_annotations(base)), None)
    if owner is None:
        return None
    panel: str | None = owner.__dict__.get("HELP_PANEL")
    return panel


def _in_panel(annotation: Any, panel: str | None) -> Any:
    if panel is None or is_dataclass(annotation):  # which has a panel of its own
        return annotation
    kind, declaration = get_args(annotation)
    declaration = copy.copy(declaration)
    declaration.rich_help_panel = panel
    return Annotated[kind, declaration]


AUTO: Final = "auto"
Engine = Annotated[
    str,
    typer.Option(
        option.ENGINE,
        metavar="auto|local|spark",
        help="Select the engine. By default, kstate uses Spark only if you set a master.",
        show_default=False,
    ),
]
"""The default is :data:`AUTO`; the help has no line for it, because the help of ``restore`` is long."""
Master = Annotated[str | None, typer.Option(option.MASTER, metavar="URL", help="Run on this Spark cluster.")]
Conf = Annotated[
    list[str] | None, typer.Option(option.CONF, metavar="K=V", help="Pass a setting to Spark. Can be repeated.")
]


def spark_settings(master: str | None, conf: Sequence[str] | None) -> SparkSettings:
    """Return the settings of Spark that ``--master`` and ``--conf`` give. Raises UsageError."""
    from kstate_cli.spark.context import SparkSettings

    return SparkSettings(master, dict(_pair_of(text) for text in conf or ()))


def engine_of(text: str, settings: SparkSettings) -> EngineChoice:
    """Return the engine that ``--engine`` means. Raises UsageError, also for settings of Spark beside ``local``."""
    from kstate_cli.spark.engine import EngineOption, choose_engine

    if text not in {engine.value for engine in EngineOption}:
        raise UsageError(
            f"--engine {text!r} does not exist", hint=("pass auto, local or spark. By default, kstate uses auto")
        )
    choice = EngineOption(text)
    if choice is EngineOption.local and (settings.master is not None or settings.conf):
        unused = option.CONF if settings.master is None else option.MASTER
        raise UsageError(f"{unused} configures Spark, but --engine local does not use Spark", hint="omit one of them")
    return choose_engine(choice, settings)


def _pair_of(text: str) -> tuple[str, str]:

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(
            f"--conf {text!r} is not K=V",
            hint=("pass the name and the value of a setting, such as spark.driver.memory=4g"),
        )
    return key, value
