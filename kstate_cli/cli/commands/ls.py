"""``kstate ls``: list tasks and stores of an application directory."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from kstate_cli import option
from kstate_cli.cli.columns import Column
from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.environment import typed
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import choices_text
from kstate_cli.cli.options.application import OldTopology, refuse_without_topology
from kstate_cli.cli.options.shared import (
    App,
    BootstrapServer,
    Dump,
    KafkaSettings,
    OutputFormat,
    Quiet,
    TransactionalStores,
)
from kstate_cli.cli.output import Format, output_of, print_line, say, table, waiting
from kstate_cli.errors import ConditionNotMet, Refused, UsageError
from kstate_cli.host import STORES_STAY
from kstate_cli.texts import command, plural, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kstate_cli.cli.lines.stores import LsLackedLine, LsLine, LsStoreLine, LsSumLine
    from kstate_cli.cli.output import Output
    from kstate_cli.cli.views.spec_draft import SpecSources
    from kstate_cli.statedir.model import Application

HELP_EXAMPLES: Final = {
    "ls": (
        Example("List the tasks and stores of an application", "ls /data/app"),
        Example("Find the stores that use the most disk space", "ls /data/app --sort size"),
        Example("Show each store's task in a changed topology", "ls /data/app --topology new.txt"),
        Example("Print a kstate.toml for restore and query", "ls /data/app --spec"),
        Example(
            "Print a kstate.toml with values from a dump and a topology",
            "ls /data/app --spec --from-changelog /dump --topology text",
        ),
    ),
}

_MAX_LISTED = 5


class Order(str, Enum):
    """Sort order of the stores."""

    task = "task"
    """Task, then store."""
    size = "size"
    """Bytes: the largest last, next to the prompt."""


Spec = Annotated[
    bool,
    typer.Option(
        option.SPEC,
        help=("Print a kstate.toml instead of the listing. Comments mark the values that you must fill in."),
    ),
]


ByStore = Annotated[
    bool, typer.Option(option.BY_STORE, help="Print one row per store, with totals over all its tasks.")
]


Sort = Annotated[
    Order,
    typer.Option(option.SORT, metavar=choices_text(Order), help="Sort by task, or by size (largest store last)."),
]


Topology = Annotated[
    Path | None,
    typer.Option(
        option.TOPOLOGY,
        metavar="FILE",
        help=(
            "Show each store's task in the topology described in FILE (output of Topology#describe). With "
            "--spec, also include in-memory stores."
        ),
        readable=False,
    ),
]


def ls(
    context: typer.Context,
    app: App,
    spec: Spec = False,
    topology: Topology = None,
    old: OldTopology = None,
    from_changelog: Dump = None,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    by_store: ByStore = False,
    sort: Sort = Order.task,
    transactional_stores: TransactionalStores = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """List tasks and stores, and show which releases can open each store.

    This command changes nothing, so you can run it while the application is running. The `keys` column counts the keys
    that `kstate query` would print. ~ marks an estimate, and ? marks a store that kstate cannot read. With --spec,
    kstate prints a kstate.toml. The partition counts come from a broker or a dump, and the retentions come from the
    rows. Without --spec, --topology adds a column with each store's task in that topology.

    The exit code is 1 if rows may be missing, or if the files exist only in a backup that kstate created. With --spec,
    it is 1 if the kstate.toml contains lines that you must complete or check. Comments mark these lines. The exit code
    is 3 if the directory contains a file or directory that Kafka Streams does not create, and 4 if kstate cannot list a
    task directory.
    """
    from kstate_cli.cli.views.spec_draft import SpecSources
    from kstate_cli.cli.views.store_homes import say_missing_stores
    from kstate_cli.cli.views.store_sums import show_sums, sum_lines
    from kstate_cli.rows.open import MOST_BYTES
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.scan import read_application, unlisted_error

    # Only options that were typed count here: a kstate.toml may name files for other commands.
    refuse_without_topology(topology, typed(context, "old"))
    options = typed(context, "topology", "old", "from_changelog", "bootstrap_server", "kafka_settings")
    # Only --spec depends on the format: a kstate.toml cannot be printed as lines of JSON.
    _refuse_together(options, json=output is Format.json, spec=spec, sort=sort, transactional=transactional_stores)
    if by_store and (topology is not None or spec):
        raise UsageError(
            "--by-store prints only totals over all tasks",
            hint="omit --topology and --spec, which list each store of each task",
        )
    # APP may be a state.dir with one application in it.
    path = find_application(app)
    results: Output[LsLine] = output_of(output, path, quiet=quiet)
    if spec:
        sources = SpecSources(topology, from_changelog, bootstrap_server, kafka_settings)
        return _print_spec(path, sources, quiet=quiet)
    # These errors are collected, so that one unreadable task does not hide the others.
    unlisted: list[OSError] = []
    # With a topology, the stores of a task that cannot be read would be reported as missing. So then such a task ends
    # the command.
    may_skip: list[OSError] | None = unlisted
    if topology is not None:
        may_skip = None
    with waiting("reading stores", quiet=quiet):
        application = read_application(path, count_bytes=MOST_BYTES, unlisted=may_skip)
        listing = _read_listing(application, topology, old, transactional=transactional_stores)
    sums: list[LsSumLine] | None = None
    if by_store:
        sums = sum_lines(listing.rows, by_size=sort is Order.size)
    # The rows are sorted, not the table, so that JSON has the same order.
    if sort is Order.size:
        listing.rows.sort(key=lambda row: row["bytes"])

    def show() -> None:
        if sums is not None:
            show_sums(sums, listing.rows, quiet=quiet)
            return
        _show(listing.rows, by_size=sort is Order.size, quiet=quiet)
        say_missing_stores(listing.lacked, quiet=quiet)

    results.show(_lines(listing, sums, is_whole=not unlisted, quiet=quiet), show)
    # Flushed, because the remarks go to the other stream, which may be the same terminal.
    sys.stdout.flush()
    has_warnings = _say_remarks(application, quiet=quiet, doubt=listing.doubt)
    # The totals come last, because a terminal scrolls a long table away.
    results.text(lambda: print_line(_altogether(application, listing.rows)))
    sys.stdout.flush()
    if os.path.realpath(app) != str(path):
        # The table shows tasks and stores only, so this line names the application.id.
        results.remark(f"the application directory is {path}")
    if unlisted:
        # Raised only now, so that the tasks that could be read have been listed.
        raise unlisted_error(unlisted)
    _raise_problems(application, _uncounted(listing.rows), listing.unread)
    return warnings_code(has_warnings)


@dataclass(frozen=True, slots=True)
class _Listing:
    """What ``ls`` prints of an application, as a table or as JSON."""

    application: Application
    rows: list[LsStoreLine]
    """One per store, with the members of ``-o json``."""
    unread: frozenset[str]
    """``TASK/STORE`` of the stores whose keys could not be counted."""
    lacked: list[LsLackedLine]
    """Stores that the topology has in a task, and no task here."""
    doubt: str | None
    """Why the topology may be that of another application."""


def _read_listing(
    application: Application, topology: Path | None, old: Path | None, *, transactional: bool
) -> _Listing:
    """Return the rows of all stores, with their home in ``topology``. Raises UsageError and Refused for its text."""
    from kstate_cli.cli.views.store_homes import add_homes
    from kstate_cli.cli.views.stores import store_rows

    # The cast is safe although other rows could be added to such a list: only this function has it.
    stores = cast("list[LsStoreLine]", store_rows(application, transactional=transactional))
    rows, unread = _count_exactly(application, stores)
    if topology is None:
        return _Listing(application, rows, unread, [], None)
    # The topology is read before anything is printed: a text that cannot be read ends the command.
    lacked, doubt = add_homes(application, rows, topology, old)
    return _Listing(application, rows, unread, lacked, doubt)


def _print_spec(path: Path, sources: SpecSources, *, quiet: bool) -> int:
    """Print a ``kstate.toml`` for the application at ``path``, and return the exit code."""
    from kstate_cli.cli.views.spec_draft import print_spec
    from kstate_cli.statedir.scan import read_application

    # ``unlisted`` is None: a task that cannot be read would be missing from the specification, so it ends the command.
    with waiting("reading stores, the dump and the broker", quiet=quiet):
        # Rows are not counted: a specification states what stores are, not what they contain.
        application = read_application(path, count_bytes=0, unlisted=None)
        to_do = print_spec(application, sources, quiet=quiet)
    condition = ""
    if to_do:
        condition = ". After you stop the application, fewer values may be missing"
    has_warnings = _say_remarks(application, quiet=quiet, flush_condition=condition, count_rows=False)
    _raise_problems(application, set(), frozenset())
    return warnings_code(to_do or has_warnings)


def _lines(listing: _Listing, sums: Sequence[LsSumLine] | None, *, is_whole: bool, quiet: bool) -> Iterator[LsLine]:
    """Yield rows, or their ``sums``, and problems; a summary only if every task was read.

    If the summary is missing, no program takes the lines for a complete listing.
    """
    from socket import gethostname

    from kstate_cli.cli.views.stores import as_problem, backups_of_missing, problem_lines
    from kstate_cli.statedir.find import read_process_id

    application, rows = listing.application, listing.rows
    yield from rows if sums is None else sums
    yield from listing.lacked
    # A backup with stores that are missing here is reported as a problem, since the directory has lost rows.
    backups = backups_of_missing(application.path, quiet=quiet)
    yield from problem_lines((*application.all_problems(), *map(as_problem, backups)))
    if is_whole:
        yield {
            "type": "summary",
            "stores": len(rows),
            "bytes": sum(row["bytes"] for row in rows),
            "running": application.running,
            "as_of": application.as_of,
            "host": gethostname(),
            "process_id": read_process_id(application.path),
        }


def _say_remarks(
    application: Application,
    *,
    quiet: bool,
    doubt: str | None = None,
    flush_condition: str = "",
    count_rows: bool = True,
) -> bool:
    """Print on standard error what a reader of the rows must know. Return whether one of them is a warning."""
    from kstate_cli.cli.views.stores import backups_of_missing, say_backups, say_incomplete_stores

    emptied = backups_of_missing(application.path, quiet=quiet)
    if application.running:
        flushed = f"so kstate shows the state as of its last flush{flush_condition}"
        say(f"the application is running (pid {application.pid}), {flushed}", quiet=quiet)
    # Problems are printed with their reason: what Streams does because of them.
    for problem in application.all_problems():
        say(problem.reasoned, quiet=quiet)
    say_backups(emptied, quiet=quiet)
    if doubt is not None:
        say(doubt, quiet=quiet)
    for task in application.tasks:
        # These files may be those of an editor or of kstate. Streams ignores them, but a person may wonder.
        for name in task.leftovers:
            say(f"{task.name}/{name} is a leftover file. Kafka Streams ignores it", quiet=quiet)
    is_incomplete = count_rows and say_incomplete_stores(application, quiet=quiet)
    return bool(application.doubtful or emptied or doubt or is_incomplete)


def _refuse_together(options: Sequence[str], *, json: bool, spec: bool, sort: Order, transactional: bool) -> None:
    """Raise UsageError for options that exclude each other."""
    if spec and json:
        raise UsageError("--spec prints TOML, not JSON", hint="omit --spec or -o json")
    if spec and sort is not Order.task:
        raise UsageError("--spec always sorts stores by name", hint="omit --spec or --sort")
    if spec and transactional:
        raise UsageError("--spec and --transactional-stores cannot be used together", hint="omit one of them")
    if spec and option.FROM in options:
        raise UsageError("--from and --spec cannot be used together", hint="omit one of them")
    without_spec = [name for name in options if name not in (option.TOPOLOGY, option.FROM)]
    if without_spec and not spec:
        raise UsageError(
            f"{without_spec[0]} needs --spec",
            hint="also pass --spec. To see how far stores are behind, use `kstate lag`",
        )


def _raise_problems(application: Application, uncounted: AbstractSet[str], unread: AbstractSet[str]) -> None:
    """Raise ConditionNotMet if something is not as Streams leaves it, or cannot be read."""
    from kstate_cli.statedir.problems import ProblemCode

    fatal = [problem for problem in application.all_problems() if problem.fatal]
    # Each place is named once, even if several things are wrong there.
    wrong = sorted({problem.place.text for problem in fatal} | uncounted)
    if not wrong:
        return
    only_unread = all(problem.code is ProblemCode.UNREADABLE for problem in fatal) and (
        bool(fatal) or uncounted == unread
    )
    places = ", ".join(wrong[:_MAX_LISTED])
    if len(wrong) > _MAX_LISTED:
        places += " …"
    if only_unread:
        # Only rights are missing, or a disk does not answer. A wipe for that reason would lose stores that are whole.
        raise ConditionNotMet(f"kstate cannot read all files: {places}", hint=STORES_STAY)
    raise ConditionNotMet(
        f"the directory has problems: {places}",
        hint=f"to predict the next start, run {command('check', application.path, option.FOR, 'RELEASE')}",
    )


def _show(rows: list[LsStoreLine], *, by_size: bool, quiet: bool) -> None:
    """Print the stores and the legend."""
    from kstate_cli.cli.views.store_homes import home_text
    from kstate_cli.cli.views.stores import keys_text, legend, short_kind, short_offsets, short_place, span

    if rows:
        everything = not sys.stdout.isatty()
        homes = [Column("new task")] if "home" in rows[0] else []
        table(
            None,
            (
                Column("task"),
                *homes,
                Column("store"),
                Column("kind", spare=3),
                # Sorted by size, the largest store is the last line, so the size must stay visible.
                Column("size", right=True, spare=0 if by_size else 4),
                Column("keys", right=True),
                Column("offset", right=True, spare=2),
                Column("offset in", spare=6),
                Column("status", spare=5),
                Column("SST", spare=7),
                Column("opens in", spare=1),
            ),
            [
                (
                    row["task"],
                    *([home_text(row)] if homes else []),
                    row["store"],
                    short_kind(row["kind"], certain=row["kind_certain"]),
                    size_text(row["bytes"]),
                    keys_text(row),
                    short_offsets(row["changelog"], all_of_them=everything),
                    short_place(row["offsets_in"]),
                    row["status"] or "-",
                    ",".join(map(str, row["sst_formats"])) or "-",
                    span(row["opens_in"]),
                )
                for row in rows
            ],
            quiet=quiet,
        )
        # Flushed before the messages on the other stream, so that a terminal shows both in this order.
        sys.stdout.flush()
        signs = legend(rows)
        if signs:
            say(f"signs: {'; '.join(signs)}", quiet=quiet)


def _altogether(app: Application, rows: list[LsStoreLine]) -> str:
    """Return the totals, the releases that open every store, and whether the application is running."""
    from kstate_cli.cli.views.stores import span

    running = {True: f"running (pid {app.pid})", False: "not running", None: "may be running"}
    there = [row for row in rows if row["kind"] != "no-directory"]
    opens = ""
    if there:
        opens = "no release can open all stores"
        # Releases keep the order of the first store, which is that of the table of releases.
        common = [name for name in there[0]["opens_in"] if all(name in row["opens_in"] for row in there)]
        if common:
            opens = f"opens in {span(common)}"
    stores = "no stores"
    if rows:
        stores = plural(len(rows), "store")
    size = size_text(sum(row["bytes"] for row in rows))
    return "; ".join(filter(None, (f"{stores}, {size}", opens, running[app.running])))


def _count_exactly(app: Application, rows: list[LsStoreLine]) -> tuple[list[LsStoreLine], frozenset[str]]:
    """Return the rows with counted keys and the releases that start with the whole directory.

    Also return the stores whose keys cannot be counted, because of rights or a disk that does not answer.
    """
    from kstate_cli.check.findings import Outcome
    from kstate_cli.check.predict import check
    from kstate_cli.check.snapshot import CheckRequest
    from kstate_cli.releases import release
    from kstate_cli.rows.open import count_rows

    # Only small stores are counted, by reading them; for others the estimate of RocksDB stays.
    counts = count_rows(app)
    fails: set[tuple[str, str, str]] = set()
    # A start is predicted once per release, for the whole directory: one store can keep a release from starting.
    for name in sorted({name for row in rows for name in row["opens_in"]}):
        try:
            predictions = check(app, CheckRequest(release(name))).predictions
        except Refused:
            # No prediction is possible, so the listing does not claim that the release opens any store.
            fails |= {(row["task"], row["store"], name) for row in rows}
            continue
        fails |= {
            (prediction.task, prediction.store, name)
            for prediction in predictions
            if prediction.outcome is Outcome.FAILS
        }
    for row in rows:
        task, store = row["task"], row["store"]
        # The release may open the SSTs of the store and still fail because of another file of the task.
        row["opens_in"] = [name for name in row["opens_in"] if (task, store, name) not in fails]
        # Stores without a RocksDB, and large ones, are not in ``counts``.
        if (task, store) in counts:
            row["rows"], row["rows_exact"] = counts[task, store].number, counts[task, store].exact
    return rows, frozenset(f"{task}/{store}" for (task, store), count in counts.items() if count.unread)


def _uncounted(rows: list[LsStoreLine]) -> set[str]:
    """Return the stores whose rows cannot be read."""
    return {f"{row['task']}/{row['store']}" for row in rows if row["rows"] is None and row["bytes"]}
