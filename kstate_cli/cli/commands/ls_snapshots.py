"""``kstate ls-snapshots``: list the snapshots of a repository."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import OutputFormat, Quiet
from kstate_cli.cli.output import Format, output_of, print_line, safe, waiting
from kstate_cli.errors import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstate_cli.cli.lines.snapshots import LsSnapshotsLine, LsSnapshotsSnapshotLine
    from kstate_cli.cli.output import Output
    from kstate_cli.snapshot.health import ListedGeneration

HELP_EXAMPLES: Final = {
    "ls-snapshots": (
        Example("List all snapshots", "ls-snapshots /backup/snapshots"),
        Example("List the stores of one snapshot", "ls-snapshots /backup/snapshots --generation 20261126T1200"),
    ),
}


def ls_snapshots(
    repository: Annotated[
        str,
        typer.Argument(metavar="REPO", help="Path to the snapshot repository (a folder or s3://BUCKET/PREFIX)."),
    ],
    generation: Annotated[
        str | None,
        typer.Option(option.GENERATION, metavar="NAME", help="List the stores and offsets of this snapshot."),
    ] = None,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """List the snapshots in a repository, and show how long each snapshot remains usable.

    This command checks only the names and sizes of files. To check the complete files, run `kstate verify-snapshots`.
    The `usable until` column shows how long the log is guaranteed to contain all deletes. After that time, `kstate
    restore-snapshot` requires --accept-resurrected. If a snapshot was taken without a broker, kstate assumes the
    default delete.retention.ms. The exit code is 3 if a snapshot is damaged.
    """
    from kstate_cli.errors import ConditionNotMet
    from kstate_cli.snapshot.health import list_generations
    from kstate_cli.snapshot.places import generation_named, repository_of, require_repository
    from kstate_cli.texts import command, plural

    place = repository_of(repository)
    with waiting("reading the list of files", quiet=quiet):
        require_repository(place)
        listed = list_generations(place)
    if generation is not None:
        name = generation_named([row.name for row in listed], generation)
        listed = [row for row in listed if row.name == name]
    results: Output[LsSnapshotsLine] = output_of(output, None, quiet=quiet)
    with_stores = generation is not None
    results.show(
        _lines(listed, place.where, with_stores=with_stores),
        partial(_show, listed, with_stores=with_stores, quiet=quiet),
    )
    sys.stdout.flush()
    _print_remarks(listed, results)
    # The totals come last, because a terminal scrolls a long table away.
    results.text(lambda: print_line(safe(_totals(listed, place.where))))
    sys.stdout.flush()
    damage = [f"{row.name}: {row.damage}" for row in listed if row.damage is not None]
    if damage:
        raise ConditionNotMet(
            f"{plural(len(damage), 'snapshot')} {_is(len(damage))} damaged",
            details=damage[:10],
            hint=(
                "restore another snapshot, or copy the missing files from another copy of the repository. To list "
                "all damage:"
            ),
            hint_details=[command("verify-snapshots", place.where)],
        )
    return EXIT_OK


def _print_remarks(listed: Sequence[ListedGeneration], results: Output[LsSnapshotsLine]) -> None:
    from kstate_cli import clock
    from kstate_cli.texts import plural

    guesses = sum(row.content is not None and row.delete_retention_ms is None for row in listed)
    if guesses:
        results.remark(
            f"{plural(guesses, 'snapshot')} {_was(guesses)} taken without a broker, so kstate assumes that "
            "tombstones are kept for 24 h. To record the real value, take snapshots with --bootstrap-server"
        )
    old = sum(row.is_usable(clock.now_ms()) is False for row in listed)
    if old:
        results.remark(
            f"{plural(old, 'snapshot')} {_is(old)} too old for the logs. To restore {_it(old)}, you also need a dump "
            "of the changelogs. Without this dump, deleted keys may reappear"
        )
    expired = sum(row.is_condemned is True for row in listed)
    if expired:
        results.remark(
            f"{plural(expired, 'snapshot')} expired. A later run deletes {_it(expired)} after the grace period"
        )
    incomplete = sum(map(_is_incomplete, listed))
    if incomplete:
        results.remark(
            f"{plural(incomplete, 'snapshot')} {_is(incomplete)} incomplete, because kstate skipped tasks. A "
            f"directory restored from {_it(incomplete)} lacks these tasks"
        )
    if any(row.is_condemned is None for row in listed):
        results.remark(
            "kstate cannot read one of the lists of expired snapshots, so other snapshots may have expired too"
        )


def _is_incomplete(row: ListedGeneration) -> bool:
    return row.content is not None and bool(row.content.skipped)


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _it(count: int) -> str:
    return "it" if count == 1 else "them"


def _totals(listed: Sequence[ListedGeneration], where: str) -> str:
    """Return the number of snapshots, and how many are damaged, too old, expired or incomplete."""
    from kstate_cli import clock
    from kstate_cli.texts import plural

    states = {
        "damaged": sum(row.damage is not None for row in listed),
        "too old for the logs": sum(row.is_usable(clock.now_ms()) is False for row in listed),
        "expired": sum(row.is_condemned is True for row in listed),
        "incomplete": sum(map(_is_incomplete, listed)),
    }
    counts = ", ".join(f"{count} {state}" for state, count in states.items() if count) or "all can be restored"
    return f"{plural(len(listed), 'snapshot')} in {where}" + (f": {counts}" if listed else "")


def _show(listed: Sequence[ListedGeneration], *, with_stores: bool, quiet: bool) -> None:
    from kstate_cli.cli.columns import Column, Fold
    from kstate_cli.cli.output import table
    from kstate_cli.texts import size_text

    rows: list[tuple[Any, ...]] = []
    for row in listed:
        if row.content is None:
            rows.append((row.name, "", "", "", "", "", "", "", row.damage))
            continue
        rows.append(
            (
                row.name,
                row.content.application,
                row.content.host,
                len(row.content.tasks),
                len(list(row.content.stores)),
                size_text(row.content.size),
                size_text(row.shared_bytes),
                _until(row),
                _health(row),
            )
        )
    table(
        None,
        (
            "snapshot",
            Column("application", spare=3),
            Column("host", spare=1),
            Column("tasks", right=True, spare=2),
            Column("stores", right=True, spare=4),
            Column("size", right=True, spare=5),
            Column("shared", right=True, spare=6),
            "usable until",
            Column("health", fold=Fold.WORDS),
        ),
        rows,
        quiet=quiet,
    )
    if with_stores:
        _show_stores(listed[0])


def _health(row: ListedGeneration) -> str:
    from kstate_cli.texts import plural

    if row.damage is not None:
        return row.damage
    limits = []
    if row.content is not None and row.content.skipped:
        # It must not look like a whole one: a restoration from it lacks these tasks.
        limits.append(f"{plural(len(row.content.skipped), 'task')} skipped")
    if row.is_condemned:
        # It can still be restored until a cleaner deletes it, which may happen at any time.
        limits.append("expired")
    if limits:
        return f"ok, but {' and '.join(limits)}"
    return "ok"


def _until(row: ListedGeneration) -> str:
    from kstate_cli import clock

    if row.usable_until_ms is None:
        # Without a store that a log continues, no delete can be missing.
        return "no limit" if row.is_usable(0) else "unknown"
    until = clock.utc_text(row.usable_until_ms)
    if not row.is_usable(clock.now_ms()):
        # Only a dump, or the user's consent, lets a restoration use it.
        return f"{until} (past)"
    return until


def _show_stores(row: ListedGeneration) -> None:
    from kstate_cli.cli.output import table
    from kstate_cli.formats.topic_partition import typed_offsets
    from kstate_cli.offsets.model import by_topic
    from kstate_cli.texts import size_text

    if row.content is not None:
        table(
            None,
            ("task", "store", "kind", "size", "offset"),
            [
                (task.name, store.name, store.kind, size_text(store.size), typed_offsets(by_topic(store.offsets)))
                for task, store in row.content.stores
            ],
            right=frozenset({"size"}),
        )


def _lines(listed: Sequence[ListedGeneration], where: str, *, with_stores: bool) -> Iterator[LsSnapshotsLine]:
    from kstate_cli.offsets.model import by_topic

    for row in listed:
        yield _snapshot_line(row)
        if with_stores and row.content is not None:
            for task, store in row.content.stores:
                yield {
                    "type": "store",
                    "snapshot": row.name,
                    "task": task.name,
                    "store": store.name,
                    "kind": store.kind,
                    "changelog": by_topic(store.offsets),
                    "bytes": store.size,
                }
    names = [row.name for row in listed]
    yield {"type": "summary", "path": where, "snapshots": names, "ok": all(row.damage is None for row in listed)}


def _snapshot_line(row: ListedGeneration) -> LsSnapshotsSnapshotLine:
    from kstate_cli.clock import now_ms, utc_text

    if row.content is None:
        return {"type": "snapshot", "snapshot": row.name, "damage": row.damage}
    until = None
    if row.usable_until_ms is not None:
        until = utc_text(row.usable_until_ms)
    return {
        "type": "snapshot",
        "snapshot": row.name,
        "damage": row.damage,
        "application": row.content.application,
        "host": row.content.host,
        "tasks": len(row.content.tasks),
        "stores": len(list(row.content.stores)),
        "skipped": len(row.content.skipped),
        "bytes": row.content.size,
        "shared_bytes": row.shared_bytes,
        "usable_until": until,
        "usable": row.is_usable(now_ms()),
        "will_be_deleted": row.is_condemned,
        "delete_retention_ms": row.delete_retention_ms,
    }
