"""List the commands, and apply to each the rules that hold for all.

A module is imported when its command is used: ``kstate --help`` imports none of them. An empty argument is refused
here, for every argument and option. An unset variable of a shell leaves one (``kstate wipe "$APP" --all``): as a path
it would be the working directory.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import typer
import typer.main

from kstate_cli import option, texts
from kstate_cli.cli import help_examples, json_lines, other_places, subject
from kstate_cli.cli.environment import give_config, give_variables, log_settings, warn_of_unread
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import HelpfulGroup, PanelledCommand
from kstate_cli.cli.other_names import accept_dump_names
from kstate_cli.cli.shell_completion import answer_shell
from kstate_cli.errors import UsageError
from kstate_cli.texts import command


class Purpose(Enum):
    """What a user wants to do with a command: the rows of the README's table of commands."""

    READ = "read a directory"
    PREDICT = "predict the next start"
    CHANGE = "change a directory"
    KEEP = "manage dumps, standbys and snapshots"
    BACKUPS = "list and delete backups"
    LEARN = "learn more"


class QuietOutput(Enum):
    """What a command answers, and so prints with ``--quiet``; progress and explanations are never part of it."""

    ROWS = "the table and the line below it"
    VERDICT = "a line for each problem, followed by the verdict"
    PROBLEMS = "a line for each problem, followed by the verdict (nothing if there is no problem)"
    CHANGE = "nothing if the command succeeds (with `--dry-run`, the plan)"


@dataclass(frozen=True, slots=True)
class Entry:
    """The facts about a command that kstate needs without importing its module."""

    module: str
    """Name of its module in ``kstate_cli.cli.commands``."""
    name: str
    """A function, or a ``typer.Typer`` with subcommands."""
    help: str
    """Its line in the list of commands."""
    purpose: Purpose
    quiet: QuietOutput | None = None
    """What ``--quiet`` leaves of its output; None for a text to read from its beginning, without such an option."""
    repeats: tuple[str, ...] = ()
    """Options about the directory that later commands need again: a printed command repeats them."""


_LOCK: Final = (option.LOCK_IS_SHARED,)
_STORES: Final = (option.TRANSACTIONAL_STORES,)
REPEATED: Final = (*_LOCK, *_STORES)
"""Options that printed commands repeat. Not ``option.UNPROVEN``, which permits to write for a release that was never
run: the user types it for each command."""

COMMANDS: Final = {
    "ls": Entry(
        "ls",
        "ls",
        "List tasks and stores with kinds, sizes and offsets.",
        Purpose.READ,
        QuietOutput.ROWS,
        repeats=_STORES,
    ),
    "inspect-position": Entry(
        "inspect_position",
        "inspect_position",
        "Show changelog offsets, IQv2 Positions and lag.",
        Purpose.READ,
        QuietOutput.ROWS,
    ),
    "lag": Entry("lag", "lag", "Show how far stores lag behind their changelogs.", Purpose.READ, QuietOutput.ROWS),
    "query": Entry("query", "query_app", "Query a store by key, range or time.", Purpose.READ, QuietOutput.ROWS),
    "export": Entry("export", "export", "Export a whole store to Parquet files.", Purpose.READ, QuietOutput.CHANGE),
    "diff": Entry(
        "diff", "diff", "Compare the rows of two application directories.", Purpose.READ, QuietOutput.VERDICT
    ),
    "check": Entry(
        "check",
        "check",
        "Predict what Kafka Streams will do when it starts.",
        Purpose.PREDICT,
        QuietOutput.VERDICT,
        repeats=_STORES,
    ),
    "fleet": Entry("fleet", "fleet", "Compare tasks across hosts.", Purpose.PREDICT, QuietOutput.VERDICT),
    "verify": Entry("verify", "verify", "Read every data block and report damage.", Purpose.READ, QuietOutput.PROBLEMS),
    "migrate": Entry(
        "migrate",
        "migrate",
        "Upgrade or downgrade a directory in place.",
        Purpose.CHANGE,
        QuietOutput.CHANGE,
        repeats=_LOCK + _STORES,
    ),
    "wipe": Entry(
        "wipe",
        "wipe",
        "Move stores aside so that Kafka Streams rebuilds them.",
        Purpose.CHANGE,
        QuietOutput.CHANGE,
        repeats=_LOCK,
    ),
    "rehome": Entry(
        "rehome",
        "rehome",
        "Move stores to their tasks in a changed topology.",
        Purpose.CHANGE,
        QuietOutput.CHANGE,
        repeats=_LOCK,
    ),
    "dump": Entry("dump", "dump", "Dump changelogs from a broker to Parquet files.", Purpose.KEEP, QuietOutput.CHANGE),
    "ls-dump": Entry(
        "ls_dump", "ls_dump", "List a dump's offsets, gaps, age and health.", Purpose.KEEP, QuietOutput.ROWS
    ),
    "verify-dump": Entry(
        "verify_dump", "verify_dump", "Read all files in a dump and report damage.", Purpose.KEEP, QuietOutput.PROBLEMS
    ),
    "restore": Entry(
        "restore",
        "restore",
        "Restore stores in bulk from a changelog dump.",
        Purpose.CHANGE,
        QuietOutput.CHANGE,
        repeats=_LOCK + _STORES,
    ),
    "snapshot": Entry(
        "snapshot",
        "snapshot",
        "Copy store files to a snapshot repository.",
        Purpose.KEEP,
        QuietOutput.CHANGE,
        repeats=_LOCK,
    ),
    "restore-snapshot": Entry(
        "restore_snapshot",
        "restore_snapshot",
        "Restore stores from snapshots.",
        Purpose.KEEP,
        QuietOutput.CHANGE,
        repeats=_LOCK + _STORES,
    ),
    "ls-snapshots": Entry(
        "ls_snapshots",
        "ls_snapshots",
        "List each snapshot's time, host, tasks and health.",
        Purpose.KEEP,
        QuietOutput.ROWS,
    ),
    "verify-snapshots": Entry(
        "verify_snapshots",
        "verify_snapshots",
        "Read all snapshot files and report damage.",
        Purpose.KEEP,
        QuietOutput.PROBLEMS,
    ),
    "prune-snapshots": Entry(
        "prune_snapshots",
        "prune_snapshots",
        "DELETES expired snapshots and unneeded files.",
        Purpose.KEEP,
        QuietOutput.CHANGE,
    ),
    "seed": Entry("seed", "seed", "Create changelogs for a new application.id.", Purpose.KEEP, QuietOutput.CHANGE),
    "start-barrier": Entry(
        "start_barrier", "start_barrier", "Wait until all hosts are ready to start.", Purpose.KEEP, QuietOutput.CHANGE
    ),
    "maintain": Entry(
        "maintain", "maintain", "Run the maintenance steps that are due.", Purpose.KEEP, QuietOutput.CHANGE
    ),
    "undo": Entry("undo", "undo", "Undo the newest change.", Purpose.CHANGE, QuietOutput.CHANGE, repeats=_LOCK),
    "status": Entry(
        "status", "status", "Show how kstate runs ended and what to do next.", Purpose.BACKUPS, QuietOutput.ROWS
    ),
    "clean": Entry(
        "clean",
        "clean",
        "DELETES the backups that kstate keeps for undo.",
        Purpose.BACKUPS,
        QuietOutput.CHANGE,
        repeats=_LOCK,
    ),
    "explain": Entry("explain", "explain", "Explain a code or a log line.", Purpose.LEARN),
    "warm-up": Entry("warm_up", "warm_up", "Cut Spark's startup time in half.", Purpose.LEARN, QuietOutput.CHANGE),
    "demo": Entry("demo", "demo", "Try a downgrade on a bundled sample directory.", Purpose.LEARN),
    "examples": Entry(
        "examples", "examples", "Write examples for Kubernetes, cron and Spark.", Purpose.LEARN, QuietOutput.CHANGE
    ),
}
"""In the order of the list: commands that read, commands that change, and the rest."""


class _Commands(MutableMapping[str, Any]):
    """The commands by name; each is imported at its first use."""

    def __init__(self) -> None:
        self._parsers: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        # Kept, because Click asks several times for the same command: for its help, for the parser, and for completion.
        if name not in self._parsers:
            self._parsers[name] = _parser_of(name, COMMANDS[name])
        return self._parsers[name]

    def __setitem__(self, name: str, parser: Any) -> None:
        raise TypeError("commands are listed in COMMANDS")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands are listed in COMMANDS")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _parser_of(name: str, entry: Entry) -> Any:
    """Return Click's parser of a command, with the variables, the rules and the warnings that kstate adds."""
    module = importlib.import_module(f"kstate_cli.cli.commands.{entry.module}")
    target = getattr(module, entry.name)
    if not isinstance(target, typer.Typer):
        # Typer makes the parser from the signature. rich_markup_mode is None, so that a bracket in a help text stays
        # one.
        function, target = target, typer.Typer(add_completion=False, rich_markup_mode=None)
        target.command(name, cls=PanelledCommand)(function)
    parser: Any = typer.main.get_command(target)
    # Typer would call a single command after its function, such as inspect_position.
    parser.name = name
    give_variables(parser, name)
    _rules(parser, name, module.HELP_EXAMPLES)
    # Added last: only when options have their variables is it certain which variables no option reads.
    parser.before_parsing = (*parser.before_parsing, warn_of_unread)
    return parser


def _rules(parser: Any, path: str, examples: Mapping[str, tuple[Example, ...]]) -> None:
    """Apply to ``parser`` and its subcommands the rules of every argument and option; ``path``: ``query key``."""
    parser.words = path
    parser.examples = examples[path]
    parser.before_parsing = (json_lines.note_variable,)
    parser.before_running = (log_settings,)
    # Called before the loop: --config is an option too, and an empty file name is refused like any other.
    give_config(parser, path)
    for parameter in parser.params:
        _watch(parameter, path)
    accept_dump_names(parser, path)
    for name, inner in getattr(parser, "commands", {}).items():
        _rules(inner, f"{path} {name}", examples)


class LazyGroup(HelpfulGroup):
    """The group of all commands, without importing them."""

    words = ""
    examples = help_examples.OF_PROGRAM

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Accept other words for some commands: see :func:`other_words`."""
        return super().resolve_command(ctx, other_words(args))

    def _main_shell_completion(self, ctx_args: Any, prog_name: str, complete_var: str | None = None) -> None:
        answer_shell(self, prog_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def other_words(args: list[str]) -> list[str]:
    """Return the words of a command line with the name of the command that they mean.

    Help and documentation have one name for each command. Earlier versions documented others, which continue to work:
    ``dump ls``, ``dump verify``, ``restore --from-snapshot``, ``ls REPO`` and ``verify --snapshot REPO``.
    """
    if args[:1] == ["dump"] and args[1:2] in (["ls"], ["verify"]):
        # The words are not the name of a dump: the command dump has no argument.
        return [f"{args[1]}-dump", *args[2:]]
    if args[:1] == ["restore"] and _has_option(args, "--from-snapshot"):
        return ["restore-snapshot", *args[1:]]
    if args[:1] == ["verify"] and _has_option(args, "--snapshot"):
        words = [word.removeprefix("--snapshot=") for word in args[1:]]
        return ["verify-snapshots", *(word for word in words if word != "--snapshot")]
    if args[:1] == ["ls"] and any(map(_is_repository, args, args[1:])):
        return ["ls-snapshots", *args[1:]]
    return args


_IN_BUCKET: Final = re.compile(r"(?i)s3[an]?://")
_FLAGS_OF_LS: Final = ("-q", "--quiet")


def _has_option(args: list[str], name: str) -> bool:
    return any(word.partition("=")[0] == name for word in args)


def _is_repository(before: str, word: str) -> bool:
    # Application directories are never in a bucket, so no request is needed. Dumps are, as the value of an option.
    if _IN_BUCKET.match(word):
        return not before.startswith("-") or before in _FLAGS_OF_LS
    return not word.startswith("-") and other_places.is_repository_folder(word)


MAY_BE_EMPTY: Final = frozenset({"KEY"})
"""Metavars that accept an empty text: a key may be one. Elsewhere whitespace, as of ``"$A $B"``, is empty too."""


def _watch(parameter: Any, path: str) -> None:
    """Make Click's ``parameter`` refuse an empty text, and report each value as soon as Click has converted it.

    This is the only place that replaces a method of a Click object. A callback of Click comes too late for both: it
    gets ``Path("")`` as ``Path(".")``, and errors, metrics and JSON need the directory and the format of a command line
    that is wrong elsewhere.
    """
    name = shown_name(parameter)
    notes = (
        *subject.notes_of(parameter),
        *json_lines.notes_of(parameter),
        *other_places.notes_of(parameter),
        *_repetitions(parameter),
    )
    process = parameter.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        # Tested before Click converts the text: it would make Path("."), and wipe would take the working directory.
        if name not in MAY_BE_EMPTY and any(not text.strip() for text in _texts(value)):
            raise UsageError(
                f"{name} is empty",
                where=command(*path.split()),
                hint='check whether a shell variable is unset. With "${NAME:?}", the shell reports an unset variable',
            )
        processed = process(ctx, value)
        # Reported after the conversion, so that a value that Click refuses is not taken for the directory.
        for note in notes:
            note(processed)
        return processed

    parameter.process_value = process_value


def _repetitions(parameter: Any) -> Iterator[Callable[[Any], None]]:
    """Yield the functions that have later printed commands repeat ``parameter``."""
    for name in REPEATED:
        if name in parameter.opts:
            commands = frozenset(path for path, entry in COMMANDS.items() if name in entry.repeats)
            yield partial(texts.carry_option, name, commands)


def shown_name(parameter: Any) -> str:
    """Return ``APP`` or ``--store``: the name of a parameter on the command line."""
    if parameter.param_type_name == "option":
        # The long name: scripts use it, and so do messages.
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name).upper()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)
