"""``kstate inspect-position``: changelog offsets and Positions, and whether a bound is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstate_cli.cli.bounds import At, bound_of
from kstate_cli.cli.options import (
    App,
    BootstrapServer,
    Dump,
    KafkaSettings,
    LogOffsets,
    Output,
    Stores,
    Tasks,
)
from kstate_cli.cli.output import Format

if TYPE_CHECKING:
    from kstate_cli.statedir.model import Application
    from kstate_cli.statedir.problems import Problem

_SHOWN = 5


def inspect_position(
    app: App,
    task: Tasks = None,
    store: Stores = None,
    merge: Annotated[bool, typer.Option("--merge", help="Also the Positions of all stores shown, merged.")] = False,
    at: At = None,
    offsets: LogOffsets = None,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    from_changelog: Dump = None,
    output: Output = Format.table,
) -> int:
    """Show the changelog offset and the IQv2 Position of each store, and how far it is behind its log.

    The lag, where a broker, a file or a dump tells the log: so many records the store has not seen, and how old the
    first of them is where a broker lets it be read. Exit 3 when a store, or a file that tells them, cannot be read, and
    with --at when a store is not up to it; 1 when rows may be missing.
    """
    from kstate_cli.check.lag import lags
    from kstate_cli.cli.facts_source import KnownOfLogs
    from kstate_cli.cli.json_lines import lines_about
    from kstate_cli.cli.lag_members import lag_members, lag_text
    from kstate_cli.cli.output import say
    from kstate_cli.cli.problem_lines import print_problems
    from kstate_cli.cli.store_rows import store_rows
    from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, ConditionNotMet
    from kstate_cli.formats.position import Position, is_permitted
    from kstate_cli.formats.task_id import TaskId
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.named import no_such
    from kstate_cli.statedir.scan import read_application
    from kstate_cli.texts import command

    bound = bound_of(at or ())
    known_logs = KnownOfLogs(offsets, bootstrap_server, kafka_settings, from_changelog)
    known_logs.validate()
    path = find_application(app)
    lines = lines_about(path)
    application = read_application(path)
    rows = [
        r for r in store_rows(application) if (not task or r["task"] in task) and (not store or r["store"] in store)
    ]
    wrong = _wrong(application, rows, everything=not task and not store)
    if not rows and not wrong:
        raise no_such(application, task or (), store or ())
    sources = known_logs.sources(application)
    lag = lags(application, sources, places={(row["task"], row["store"]) for row in rows}) if sources else {}
    behind: list[str] = []
    merged = Position.empty()
    for row in rows:
        known = row["position"] is not None
        row |= lag_members(lag.get((row["task"], row["store"])))
        position = Position.from_map(row["position"] or {})
        merged = merged.merge(position)
        partition = TaskId.parse(row["task"]).partition
        if not bound.is_unbounded and partition is not None:
            row["up_to_bound"] = known and is_permitted(position, bound, partition)
            if not row["up_to_bound"]:
                behind.append(f"{row['task']}/{row['store']}")
    complete = all(row["position"] is not None for row in rows)
    doubts = [problem for problem in application.all_problems() if problem.doubt and not application.running]
    told = [*wrong, *doubts]
    if output is Format.json:
        for row in rows:
            lines.line("store", row)
        if merge:
            lines.line("merged", {"position": merged.as_map() if complete else None})
        print_problems(lines, told)
        lines.summary(
            {"stores": len(rows), "behind": len(behind), "running": application.running, "as_of": application.as_of}
        )
    else:
        merged_of_all = (merged.as_map() if complete else None,) if merge else ()
        _show(rows, merged_of_all, [lag_text(lag.get((row["task"], row["store"]))) for row in rows] if sources else [])
    for problem in told:
        say(problem.reasoned)
    if wrong:
        raise ConditionNotMet(
            f"not all is known: {', '.join(dict.fromkeys(problem.place.text for problem in wrong[:_SHOWN]))}",
            hint=f"what the next start makes of it: {command('check', application.path, '--for', 'RELEASE')}",
        )
    if behind:
        raise ConditionNotMet(
            f"not up to the bound: {', '.join(behind)}",
            hint="let the application run on, or restore it from a newer dump, then ask again",
        )
    return EXIT_WARNINGS if doubts else EXIT_OK


def _show(rows: list[dict[str, Any]], merged: tuple[dict[str, dict[int, int]] | None, ...], lag: list[str]) -> None:
    """The table; ``merged`` is a last row, and ``lag`` a last column, of each row, where they were asked for."""
    from kstate_cli.cli.output import table
    from kstate_cli.cli.store_words import short_place

    shown: list[tuple[Any, ...]] = [
        (row["task"], row["store"], short_place(row["offsets_in"]), _text(row["changelog"]), _text(row["position"]))
        for row in rows
    ]
    shown = [(*cells, *lag[number : number + 1]) for number, cells in enumerate(shown)]
    more = ("lag",) if lag else ()
    shown += [("", "(merged)", "", "", _text(one), *("" for _ in more)) for one in merged]
    table(None, ("task", "store", "offset in", "changelog offset", "position", *more), shown)


def _wrong(app: Application, rows: list[dict[str, Any]], *, everything: bool) -> list[Problem]:
    """What is wrong with what is shown: with the stores, with files of their tasks, with what may be out of sight."""
    from kstate_cli.statedir.names import CHECKPOINT, position_file, store_checkpoint
    from kstate_cli.statedir.places import both_places, task_place

    fatal = [problem for problem in app.all_problems() if problem.fatal]
    if everything:
        return fatal
    own = [task_place(row["task"]) / name(row["store"]) for row in rows for name in (position_file, store_checkpoint)]
    own += [task_place(row["task"]) / CHECKPOINT for row in rows]
    folders = [folder for row in rows for folder in both_places(row["task"], row["store"])]
    return [one for one in fatal if one.place in own or any(map(one.place.within, folders))]


def _text(offsets: dict[str, dict[int, int]] | None) -> list[str]:
    from kstate_cli.formats.topic_partition import typed_offsets

    if offsets is None:
        return ["unreadable"]
    return typed_offsets(offsets) or ["-"]
