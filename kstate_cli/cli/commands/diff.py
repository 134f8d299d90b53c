"""``kstate diff``: compare the rows of two application directories."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from kstate_cli import option
from kstate_cli.cli.columns import Column
from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import (
    LastFlush,
    OutputFormat,
    Quiet,
    SpecFile,
    Stores,
    Tasks,
    at_once,
    draft_of,
    workers_option,
)
from kstate_cli.cli.output import Format, output_of, print_line, safe, table, waiting
from kstate_cli.errors import ConditionNotMet
from kstate_cli.host import STORES_STAY
from kstate_cli.texts import command, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.cli.lines.rows import DiffLine, DiffStoreLine, InBoth, OffsetsInBoth
    from kstate_cli.cli.output import Output
    from kstate_cli.diff.model import Diff, StoreDiff

HELP_EXAMPLES: Final = {
    "diff": (
        Example("Compare a restored directory with its original", "diff /data/app /backup/app"),
        Example(
            "Compare the rows of one store, ignoring timestamps",
            "diff /data/app /backup/app --store count --ignore-timestamps",
        ),
    ),
}


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="Path to an application directory.", readable=False)],
    b: Annotated[
        Path, typer.Argument(metavar="B", help="Path to the application directory to compare with A.", readable=False)
    ],
    task: Tasks = None,
    store: Stores = None,
    ignore_timestamps: Annotated[
        bool, typer.Option(option.IGNORE_TIMESTAMPS, help="Ignore differences in timestamps.")
    ] = False,
    ignore_headers: Annotated[bool, typer.Option(option.IGNORE_HEADERS, help="Ignore differences in headers.")] = False,
    positions: Annotated[
        bool,
        typer.Option(
            option.POSITIONS,
            help=(
                "Treat stores with different offsets or Positions as different. kstate always prints such differences."
            ),
        ),
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            option.LIMIT,
            min=0,
            metavar="N",
            help=("Print at most N differing rows of each store in both directories. kstate still counts all of them."),
        ),
    ] = 20,
    spec: SpecFile = None,
    last_flush: LastFlush = False,
    workers: Annotated[int, workers_option("Compare N databases")] = 0,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Compare the rows of two application directories, even if different releases wrote them.

    This command changes nothing. kstate converts rows to the newest layout before it compares them, so a migrated row
    equals the original. If only one of the two layouts has timestamps or headers, kstate does not compare them and
    prints a note.

    The exit code is 1 if the rows are equal but some may be missing, 3 if rows differ, and 6 if kstate cannot read a
    store.
    """
    from kstate_cli.cli.views.diff import DiffReport
    from kstate_cli.diff.applications import DiffRequest, diff_applications
    from kstate_cli.rows.errors import StoreUnreadable, joined
    from kstate_cli.specification.draft import SpecDraft
    from kstate_cli.statedir.find import find_application

    # Both directories are looked up before either is read, so that a typing error in B shows before the reading of A.
    request = DiffRequest(
        a=find_application(a),
        b=find_application(b),
        tasks=frozenset(task or ()),
        stores=frozenset(store or ()),
        spec=draft_of(spec) or SpecDraft(None, ()),
        spec_named=str(spec),
        ignore_timestamps=ignore_timestamps,
        ignore_headers=ignore_headers,
        positions=positions,
        last_flush=last_flush,
        workers=at_once(workers),
    )
    results: Output[DiffLine] = output_of(output, request.a, quiet=quiet)
    # The activity is shown between the lines about rows, which the report prints.
    with waiting("comparing rows", quiet=quiet) as activity:
        report = DiffReport(limit, results, activity)
        compared = diff_applications(request, report)
    results.show(_lines(compared, request.b), partial(_show, compared, quiet=quiet))
    # Flushed before the messages below, which go to standard error.
    sys.stdout.flush()
    report.remarks(compared)
    # The verdict comes last, because a terminal scrolls a long table away.
    results.text(partial(_sum_up, compared))
    sys.stdout.flush()
    if compared.unread:
        damage = ("to see which files are damaged, run:", (command("verify", request.a), command("verify", request.b)))
        usual: tuple[str, tuple[str, ...]] = damage
        if compared.only_the_hosts:
            # Without rights, or with a host that does not answer, nothing is known about the files. The usual advice, a
            # wipe, would lose stores that are whole.
            usual = (STORES_STAY, ())
        # Stores may have different advice; the same advice is printed once.
        hint, details = joined((unread.advice for unread in compared.everything_unread), usual)
        number = "one store or file" if compared.unread == 1 else f"{compared.unread} stores or files"
        raise StoreUnreadable(
            f"the comparison is incomplete: kstate could not read {number}",
            hint=hint,
            hint_details=details,
        )
    if compared.differing:
        # Raised after the error for unreadable stores: kstate cannot tell whether these differ.
        number = "one store or task" if compared.differing == 1 else f"{compared.differing} stores or tasks"
        raise ConditionNotMet(f"the directories differ in {number}")
    return warnings_code(not compared.equal)


_DIFFERENT_OFFSETS: Final = "different only in offsets or Positions"
_COUNTED: Final = (
    "equal",
    "different",
    _DIFFERENT_OFFSETS,
    "only in A",
    "only in B",
    "of other kinds",
    "unreadable",
)
"""The counts of the last line, in their order."""


def _counted_as(compared: Diff, store: StoreDiff) -> str:
    """Return the count of :data:`_COUNTED` that a store belongs to."""
    verdict = _verdict(compared, store)
    if verdict == "other kind":
        return "of other kinds"
    # The rows are equal, so that --positions is the reason of the difference.
    if verdict == "different" and store.equal:
        return _DIFFERENT_OFFSETS
    return verdict


def _verdict(compared: Diff, store: StoreDiff) -> str:
    from kstate_cli.diff.model import In

    # Tested first: if a store cannot be read, nothing else about it is certain.
    if store.unreadable is not None:
        return "unreadable"
    if store.where is not In.BOTH:
        return f"only in {store.where.side}"
    if not store.comparable:
        return "other kind"
    return "different" if compared.differs(store) else "equal"


def _show(compared: Diff, *, quiet: bool) -> None:
    """Print the stores; with ``quiet`` a line for each that is not equal."""
    from kstate_cli.formats.store_kinds import short_name

    if quiet:
        for store in compared.stores:
            verdict = _verdict(compared, store)
            if verdict != "equal":
                print_line(safe(f"{verdict}: {store.task}/{store.store}"))
        return
    table(
        None,
        ("task", "store", Column("kind", spare=1), "rows A", "rows B", "only A", "only B", "different", "verdict"),
        [
            (
                store.task,
                store.store,
                " / ".join(map(short_name, dict.fromkeys(store.kinds))),
                f"{store.rows_a:,}",
                f"{store.rows_b:,}",
                f"{store.only_a:,}",
                f"{store.only_b:,}",
                f"{store.different:,}",
                _verdict(compared, store),
            )
            for store in compared.stores
        ],
        right=frozenset({"rows A", "rows B", "only A", "only B", "different"}),
    )


def _sum_up(compared: Diff) -> None:
    """Print one line: the number of stores, and the verdict."""
    counts = Counter(_counted_as(compared, store) for store in compared.stores)
    verdict = ", ".join(f"{counts[kind]:,} {kind}" for kind in _COUNTED if counts[kind]) or "nothing to compare"
    print_line(f"{plural(len(compared.stores), 'store')}: {verdict}")


def _lines(compared: Diff, other: Path) -> Iterator[DiffLine]:
    for name, where in compared.tasks:
        yield {"type": "task", "task": name, "only_in": where.value}
    for store in compared.stores:
        yield _store_line(compared, store)
    yield {
        "type": "summary",
        "other": str(other),
        "equal": compared.equal,
        "doubts": compared.doubtful,
        "stores": len(compared.stores),
        "differing": compared.differing,
        "unread": compared.unread,
        "messages": [message.text for message in compared.unreadable],
        "rows_a": sum(store.rows_a for store in compared.stores),
        "rows_b": sum(store.rows_b for store in compared.stores),
        "only_in_a": sum(store.only_a for store in compared.stores),
        "only_in_b": sum(store.only_b for store in compared.stores),
        "different": sum(store.different for store in compared.stores),
        "as_of_a": compared.as_of[0],
        "as_of_b": compared.as_of[1],
    }


def _store_line(compared: Diff, store: StoreDiff) -> DiffStoreLine:
    from kstate_cli.diff.model import In

    offsets: dict[str, InBoth] = {name: {"a": in_a, "b": in_b} for name, (in_a, in_b) in store.offsets.items()}
    return {
        "type": "store",
        "task": store.task,
        "store": store.store,
        "only_in": None if store.where is In.BOTH else store.where.value,
        "kinds": list(store.kinds),
        "verdict": _verdict(compared, store),
        "rows_a": store.rows_a,
        "rows_b": store.rows_b,
        "only_in_a": store.only_a,
        "only_in_b": store.only_b,
        "different": store.different,
        "not_compared": list(store.left_out),
        "message": None if store.unreadable is None else store.unreadable.text,
        # The names are those of the type: changelog and position.
        "offsets": cast("OffsetsInBoth", offsets),
    }
