"""``kstate prune-snapshots``: delete expired snapshots, and files that no snapshot needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import clock, option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import MetricsFile, OutputFormat, Quiet
from kstate_cli.cli.options.snapshots import ExpiryGrace, KeepFor, KeepNewest, retention_of
from kstate_cli.cli.output import Format, output_of, waiting
from kstate_cli.errors import EXIT_OK, InUse, Refused, RunFailed, RunHalfway

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstate_cli.cli.lines.snapshots import PruneSnapshotsLine
    from kstate_cli.cli.output import Output
    from kstate_cli.snapshot.expiry import Expiry, Retention
    from kstate_cli.snapshot.health import ListedGeneration
    from kstate_cli.snapshot.repository import Repository

HELP_EXAMPLES: Final = {
    "prune-snapshots": (
        Example("Print the size of the files that no snapshot needs", "prune-snapshots /backup/snapshots --dry-run"),
        Example(
            "DELETES all but the newest 7 snapshots of each task and host", "prune-snapshots /backup/snapshots --keep 7"
        ),
        Example(
            "DELETES snapshots in a bucket after 14 days, from cron",
            "prune-snapshots s3://bucket/app --keep-for 14d -q",
        ),
    ),
}


def prune_snapshots(
    repository: Annotated[
        str,
        typer.Argument(metavar="REPO", help="Path to the snapshot repository (a folder or s3://BUCKET/PREFIX)."),
    ],
    keep: KeepNewest = None,
    keep_for: KeepFor = None,
    abandoned: Annotated[
        str | None,
        typer.Option(
            option.ABANDONED,
            metavar="AGE",
            help=(
                "DELETES even the newest snapshot of a task and host if the application has a snapshot that is at"
                " least AGE newer."
            ),
        ),
    ] = None,
    grace: ExpiryGrace = "1d",
    dry_run: Annotated[
        bool, typer.Option(option.DRY_RUN, help="Show what kstate would delete, but change nothing.")
    ] = False,
    metrics_file: MetricsFile = None,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """DELETES expired snapshots and files that no snapshot needs, without creating a new snapshot.

    One run marks a snapshot as expired, and a run after the grace period deletes it. Until then, hosts can finish
    writing or restoring. Without --keep, --keep-for or --abandoned, no snapshot expires, and kstate deletes only files
    that no snapshot needs.

    kstate keeps the newest snapshot of each task and host. With --abandoned, it also deletes such snapshots of hosts
    and tasks that no longer exist. The exit code is 4 if a snapshot is unreadable, because kstate then does not know
    which files that snapshot needs.
    """
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.snapshot.expiry import ExpiryObstacle
    from kstate_cli.snapshot.health import list_generations
    from kstate_cli.snapshot.places import repository_of, require_repository

    retention = retention_of(keep, keep_for, grace, abandoned)
    place = repository_of(repository)
    with Metrics(metrics_file, "prune-snapshots", None, application="") as metrics:
        with waiting("deleting files", quiet=quiet):
            require_repository(place)
            listed = list_generations(place)
            expiry = _expired(place, retention, dry_run=dry_run)
        if expiry.obstacle is ExpiryObstacle.UNREADABLE:
            _refuse_unreadable(place, expiry, is_changed=expiry.has_changed and not dry_run)
        if expiry.obstacle is ExpiryObstacle.CLEANER:
            raise InUse(ExpiryObstacle.CLEANER.value, where=place.where, hint="run the command again later")
        results: Output[PruneSnapshotsLine] = output_of(output, None, quiet=quiet)

        def show() -> None:
            # Without --dry-run the table reports only what has succeeded.
            if dry_run or not quiet:
                _show(listed, expiry, dry_run=dry_run)
                sys.stdout.flush()

        results.show(_lines(listed, expiry, place.where, dry_run=dry_run), show)
        _remark(expiry, results, grace, dry_run=dry_run)
        return metrics.finish(EXIT_OK)


def _expired(place: Repository, retention: Retention, *, dry_run: bool) -> Expiry:
    """Expire snapshots, or return what would expire. Raise RunHalfway if an error comes after the first change."""
    from kstate_cli.snapshot.expiry import Expiry, expire, preview

    if dry_run:
        return preview(place, retention, now_ms=clock.now_ms())
    expiry = Expiry()
    try:
        return expire(place, retention, now_ms=clock.now_ms(), expiry=expiry)
    except (Refused, RunFailed) as error:
        if not expiry.has_changed:
            raise
        # Neither "refused" nor "nothing changed" would be true.
        raise RunHalfway(
            f"kstate could not delete all expired files: {error.message}", where=place.where, hint=error.hint
        ) from None


def _refuse_unreadable(place: Repository, expiry: Expiry, *, is_changed: bool) -> None:
    from kstate_cli.snapshot.expiry import ExpiryObstacle
    from kstate_cli.texts import command

    kind = RunHalfway if is_changed else Refused
    raise kind(
        f"{ExpiryObstacle.UNREADABLE.value}: {expiry.unreadable}",
        where=place.where,
        hint="copy the file from another copy of the repository, or move it elsewhere. To list all damage:",
        hint_details=[command("verify-snapshots", place.where)],
    )


def _outcome(name: str, expiry: Expiry) -> str:
    """Return the state of a snapshot after the run: ``kept``, ``expired`` or ``deleted``."""
    if name in expiry.deleted:
        return "deleted"
    if name in expiry.waiting:
        return "expired"
    return "kept"


def _show(listed: Sequence[ListedGeneration], expiry: Expiry, *, dry_run: bool) -> None:
    from kstate_cli.cli.output import table
    from kstate_cli.texts import size_text

    rows = []
    for row in listed:
        application, host, size = "", "", ""
        if row.content is not None:
            application, host, size = row.content.application, row.content.host, size_text(row.content.size)
        rows.append((row.name, application, host, size, _outcome(row.name, expiry)))
    column = "outcome"
    if dry_run:
        column = "would be"
    table(None, ("snapshot", "application", "host", "size", column), rows, right=frozenset({"size"}))


def _remark(expiry: Expiry, results: Output[PruneSnapshotsLine], grace: str, *, dry_run: bool) -> None:
    from kstate_cli.snapshot.expiry import ExpiryObstacle
    from kstate_cli.texts import plural, size_text

    verb = "kstate deleted"
    if dry_run:
        verb = "kstate would delete"
    removed = f"{verb} {plural(expiry.removed, 'file')} ({size_text(expiry.removed_bytes)})"
    if expiry.waiting:
        removed += (
            f". After the grace period of {grace}, a later run can delete {plural(len(expiry.waiting), 'file')} "
            f"({size_text(expiry.waiting_bytes)})"
        )
    if expiry.obstacle is ExpiryObstacle.WRITER:
        results.remark(f"kstate has not deleted all expired files, because {ExpiryObstacle.WRITER.value}")
    results.remark(removed)


def _lines(
    listed: Sequence[ListedGeneration], expiry: Expiry, where: str, *, dry_run: bool
) -> Iterator[PruneSnapshotsLine]:
    for row in listed:
        application, host = None, None
        if row.content is not None:
            application, host = row.content.application, row.content.host
        yield {
            "type": "snapshot",
            "snapshot": row.name,
            "application": application,
            "host": host,
            "after_run": _outcome(row.name, expiry),
        }
    message = None
    if expiry.obstacle is not None:
        message = expiry.obstacle.value
    yield {
        "type": "summary",
        "path": where,
        "executed": not dry_run,
        "condemned": len(expiry.condemned),
        "removed": expiry.removed,
        "removed_bytes": expiry.removed_bytes,
        "waiting": len(expiry.waiting),
        "waiting_bytes": expiry.waiting_bytes,
        "message": message,
    }
