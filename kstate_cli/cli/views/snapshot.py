"""Print what a snapshot has captured."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kstate_cli import clock, option
from kstate_cli.cli import subject
from kstate_cli.cli.columns import Column
from kstate_cli.cli.output import say, table
from kstate_cli.formats.topic_partition import typed_offsets
from kstate_cli.offsets.model import by_topic
from kstate_cli.texts import command, plural, size_text, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.cli.lines.snapshots import SnapshotLine
    from kstate_cli.cli.output import Output
    from kstate_cli.snapshot.capture import CaptureReport
    from kstate_cli.snapshot.expiry import Expiry


_MOST_NAMES = 5


def show_capture(report: CaptureReport, results: Output[SnapshotLine], out: str, host: str, expiry: Expiry) -> None:
    """Print the captured stores, warnings about the skipped tasks with the next step, and the totals last."""
    # Without --dry-run the table reports only what has succeeded.
    is_hidden = results.quiet and report.generation is not None
    results.show(_lines(report, out, host, expiry), lambda: _print_table(report, is_hidden=is_hidden))
    if report.skipped:
        results.remark(_next_step(report, out))
    if report.generation is not None:
        for text in _remarks(report, expiry):
            results.remark(text)
    size = sum(store.bytes for store in report.stores)
    new = size_text(sum(store.new_bytes for store in report.stores))
    tasks = plural(report.tasks, "task")
    if report.skipped:
        # The last line of a log or a mail must not look like that of a whole snapshot.
        tasks = f"{report.tasks} of {plural(report.tasks + len(report.skipped), 'task')}"
    amount = f"{tasks}, {plural(len(report.stores), 'store')}, {size_text(size)}"
    if report.generation is None:
        results.remark(f"dry run: {amount}, of which at most {new} are new. kstate has written nothing")
    else:
        results.remark(f"snapshot {report.generation} in {out}: {amount}, of which {new} are new")


def _next_step(report: CaptureReport, out: str) -> str:
    """Return what to do about the skipped tasks."""
    app = subject.app_path() or "APP"
    if not report.is_running:
        return f"to see what to do about skipped tasks, run {command('check', app, option.FOR, 'RELEASE')}"
    condition = ""
    if report.may_be_uncommitted:
        condition = f"if the application runs with at-least-once, pass {option.GUARANTEE} at_least_once. Otherwise, "
    again = command("snapshot", app, option.OUT, out)
    return f"{condition}to capture all tasks, stop the application, then run {again}"


def _remarks(report: CaptureReport, expiry: Expiry) -> Iterator[str]:
    """Yield what a restoration must know of the snapshot, and which older ones expire."""
    for (why, needs_log), stores in _unusable(report).items():
        names = some(stores, _MOST_NAMES)
        remedy = "stop the application, then take the snapshot again"
        if not report.is_running:
            remedy = "start the application and stop it cleanly, then take the snapshot again"
        if needs_log:
            remedy = f"pass {option.BOOTSTRAP_SERVER} HOST:PORT"
        yield (
            f"{names}: {why}. After a restoration, Kafka Streams reads the store's whole log. To prevent this, {remedy}"
        )
    if report.usable_until_ms is not None and report.usable_until_ms < clock.now_ms():
        yield (
            "this snapshot's data is old, and the logs may no longer contain all later deletes. To restore it, "
            "pass a dump (--from-changelog) or --accept-resurrected"
        )
    if expiry.condemned or expiry.waiting:
        yield (
            f"{plural(len(expiry.condemned), 'snapshot')} expired. A later run deletes "
            f"{plural(len(expiry.waiting), 'file')}"
        )
    if expiry.removed:
        yield f"kstate deleted {plural(expiry.removed, 'file')}"
    if expiry.obstacle is not None:
        yield f"kstate has not deleted the expired snapshots yet, because {expiry.obstacle.value}"


def _unusable(report: CaptureReport) -> dict[tuple[str, bool], list[str]]:
    """Return the reason, and whether the log may help -> stores whose offset is unknown."""
    stores: dict[tuple[str, bool], list[str]] = {}
    for store in report.stores:
        if store.why_unknown is not None:
            stores.setdefault((store.why_unknown, store.needs_log), []).append(f"{store.task}/{store.store}")
    return stores


def _lines(report: CaptureReport, out: str, host: str, expiry: Expiry) -> Iterator[SnapshotLine]:
    for store in report.stores:
        yield {
            "type": "store",
            "task": store.task,
            "store": store.store,
            "kind": store.kind,
            "changelog": by_topic(store.offsets),
            "offset_reason": store.why_unknown,
            "files": store.files,
            "bytes": store.bytes,
            "new_bytes": store.new_bytes,
        }
    for task, why in sorted(report.skipped.items()):
        yield {"type": "skipped", "task": task, "message": why}
    yield {
        "type": "summary",
        "out": out,
        "host": host,
        "snapshot": report.generation,
        "tasks": report.tasks + len(report.skipped),
        "captured": report.tasks,
        "stores": len(report.stores),
        "files": sum(store.files for store in report.stores),
        "bytes": sum(store.bytes for store in report.stores),
        "new_bytes": sum(store.new_bytes for store in report.stores),
        "skipped": len(report.skipped),
        "condemned": len(expiry.condemned),
        "removed": expiry.removed,
    }


def _print_table(report: CaptureReport, *, is_hidden: bool) -> None:
    if not is_hidden:
        table(
            None,
            (
                "task",
                "store",
                Column("files", right=True),
                Column("bytes", right=True),
                Column("new", right=True),
                Column("offset", spare=1),
            ),
            [
                (
                    store.task,
                    store.store,
                    store.files,
                    size_text(store.bytes),
                    size_text(store.new_bytes),
                    typed_offsets(by_topic(store.offsets)),
                )
                for store in report.stores
            ],
        )
        sys.stdout.flush()
    for task, why in sorted(report.skipped.items()):
        say(f"warning: kstate skipped {task}: {why}")
