"""``kstate restore``: builds stores from a changelog dump, on Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.options import AfterError, LockIsShared, Output, Quiet, Wait, WarningsOk
from kstate_cli.cli.output import Format

if TYPE_CHECKING:
    from kstate_cli.cli.restore_progress import RestoreProgress
    from kstate_cli.formats.topic_partition import TopicPartition
    from kstate_cli.restore.run import Outcome
    from kstate_cli.restore.work import RestorePlan

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def restore(
    app: Annotated[
        Path,
        typer.Argument(
            metavar="APP", help="Application directory (state.dir/application.id); one that is lost is made anew."
        ),
    ],
    dump: Annotated[
        str,
        typer.Option(
            "--from-changelog",
            metavar="DUMP",
            help="Changelog dump: Parquet as Spark's Kafka source gives it; path or URI.",
        ),
    ],
    release_name: Annotated[
        str, typer.Option("--for", metavar="RELEASE", help="The release that will open the stores.")
    ],
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="FILE", help="kstate.toml: kinds and retentions of stores.")
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option("--topology", metavar="FILE", help="Text of Topology#describe: stores to subtopologies."),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="TASK", help="Only this task; repeatable.")
    ] = None,
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="STORE", help="Only this store; repeatable.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="TOPIC", help="A topic of the dump (or pattern) of no interest; repeatable."),
    ] = None,
    share: Annotated[
        str | None, typer.Option("--share", metavar="I/N", help="Only this host's share of the tasks: 1/3, 2/3, 3/3.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Ignore what is there and rebuild from the earliest offset.")
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="A store with rows may be emptied by an empty changelog.")
    ] = False,
    dump_is_complete: Annotated[
        bool,
        typer.Option("--dump-is-complete", help="No manifest: you vouch that no file and no record is missing."),
    ] = False,
    dump_is_committed: Annotated[
        bool,
        typer.Option("--dump-is-committed", help="No manifest: you vouch that it was read with read_committed."),
    ] = False,
    committed_offsets: Annotated[
        Path | None,
        typer.Option("--committed-offsets", metavar="FILE", help="JSON {topic: {partition: offset}} of the group."),
    ] = None,
    guarantee: Annotated[
        str, typer.Option("--guarantee", help="at_least_once: the application never used transactions.")
    ] = "exactly_once_v2",
    wipe_unclean: Annotated[
        bool, typer.Option("--wipe-unclean", help="Rebuild tasks whole that were not left clean.")
    ] = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy SSTs instead of linking them; files become this user's.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark master; by default local[*,4], or what spark-submit says.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="K=V", help="Spark configuration; repeatable.")
    ] = None,
    staging: Annotated[
        str | None,
        typer.Option("--staging", metavar="URI", help="Where runs are kept: a folder or URI that all executors reach."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="BYTES",
            help="All that this host may use, Spark included, as 2G or 1500M; by default about 660M a core and 700M.",
        ),
    ] = None,
    verify: Annotated[str, typer.Option("--verify", help="full: read every row back before the switch.")] = "quick",
    workers: Annotated[int, typer.Option("--workers", help="Stores taken in at once; 0: one per core.", min=0)] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan that would run, and change nothing.")
    ] = False,
    after_error: AfterError = False,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    warnings_ok: WarningsOk = False,
    output: Output = Format.table,
    quiet: Quiet = False,
) -> int:
    """Restore stores in bulk from a changelog dump: what Streams then restores is nothing up to the dump's end.

    The application must be stopped. Stores whose offset is valid are caught up, others are rebuilt from the earliest
    offset; healthy stores that are not named, or are past the dump, stay as they are. Undoable with `kstate undo`.
    """
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.cli.output import say
    from kstate_cli.cli.restore_progress import RestoreProgress
    from kstate_cli.errors import UsageError
    from kstate_cli.releases import release
    from kstate_cli.restore.judge import Allowed
    from kstate_cli.restore.run import Request, application_path
    from kstate_cli.restore.run import restore as run_restore
    from kstate_cli.restore.spark import SparkSettings
    from kstate_cli.restore.work import RestoreOptions
    from kstate_cli.spec.toml_file import read_draft
    from kstate_cli.spec.topology import read_topology

    if guarantee not in ("exactly_once_v2", "at_least_once") or verify not in ("quick", "full"):
        raise UsageError("--guarantee is exactly_once_v2 or at_least_once, --verify is quick or full")
    options = RestoreOptions(
        release=release(release_name),
        tasks=frozenset(task or ()),
        stores=frozenset(store or ()),
        share=_share(share),
        at_least_once=guarantee == "at_least_once",
        wipe_unclean=wipe_unclean,
        committed=_committed(committed_offsets),
        ignored=tuple(ignore or ()),
        allowed=Allowed("asked for" if rebuild else None, allow_empty, dump_is_complete),
    )
    request = Request(
        app=application_path(app),
        dump=dump,
        options=options,
        run=RunOptions(workers=workers or os.cpu_count() or 1, verify_full=verify == "full", copy_ssts=copy),
        spark=SparkSettings(master, dict(_pair(one) for one in conf or ())),
        spec=read_draft(spec) if spec else None,
        spec_name=str(spec) if spec else "kstate.toml",
        topology=read_topology(topology) if topology else None,
        memory=_bytes(memory) if memory else None,
        staging=staging,
        complete=dump_is_complete,
        committed_only=dump_is_committed,
        wait=wait,
        lock_is_shared=lock_is_shared,
        dry_run=dry_run,
        after_error=after_error,
    )
    with RestoreProgress(quiet=quiet, json=output is Format.json) as progress:
        outcome = run_restore(request, on_plan=lambda plan: _show_plan(plan, output, progress), watcher=progress)
    for line in outcome.recovered:
        say(line, quiet=quiet)
    return _finish(outcome, output, quiet=quiet, warnings_ok=warnings_ok)


def _show_plan(plan: RestorePlan, output: Format, progress: RestoreProgress) -> None:
    from kstate_cli.cli.output import print_json, say
    from kstate_cli.cli.plan_view import show_plan

    progress.expect(plan)
    show_plan(plan.change, output)
    for name, why in plan.left:
        if output is Format.json:
            print_json({"schema_version": 1, "type": "left", "store": name, "why": why})
        else:
            say(f"{name}: left as it is: {why}")


def _finish(outcome: Outcome, output: Format, *, quiet: bool, warnings_ok: bool) -> int:
    from kstate_cli.cli.output import print_json, say, table

    change = outcome.plan.change
    warned = bool(change.warnings and not change.empty) or any(report.null_keys for report in outcome.reports)
    code = 1 if warned and not warnings_ok else 0
    if output is Format.json:
        for report in outcome.reports:
            offsets: dict[str, dict[int, int]] = {}
            for tp, offset in sorted(report.offsets.items()):
                offsets.setdefault(tp.topic, {})[tp.partition] = offset
            print_json(
                {
                    "schema_version": 1,
                    "type": "store",
                    "store": report.store,
                    "records": report.records,
                    "rows": report.rows,
                    "deleted": report.deleted,
                    "expired": report.expired,
                    "null_keys": report.null_keys,
                    "has_position": report.has_position,
                    "offsets": offsets,
                    "seconds": round(report.seconds, 3),
                }
            )
        print_json(
            {
                "schema_version": 1,
                "type": "summary",
                "app": str(change.app),
                "release": change.target,
                "stores": len(outcome.plan.work),
                "left": len(outcome.plan.left),
                "records": sum(report.records for report in outcome.reports),
                "warnings": len(change.warnings),
                "executed": outcome.result is not None,
                "run": outcome.result.run if outcome.result else None,
            }
        )
        return code
    if outcome.reports:
        table(
            "restored",
            ("store", "records", "rows", "deleted", "expired", "offset", "seconds"),
            [
                (
                    report.store,
                    f"{report.records:,}",
                    f"{report.rows:,}",
                    f"{report.deleted:,}",
                    f"{report.expired:,}",
                    " ".join(f"{tp.partition}:{offset}" for tp, offset in sorted(report.offsets.items())),
                    f"{report.seconds:.1f}",
                )
                for report in outcome.reports
            ],
            right=frozenset({"records", "rows", "deleted", "expired", "seconds"}),
        )
    for report in outcome.reports:
        if report.null_keys:
            say(f"warning: {report.store}: {report.null_keys:,} records without a key, which Streams skips too")
    without = sum(not report.has_position for report in outcome.reports)
    if without:
        say(f"note: no changelog record told a Position of {without} stores: theirs is empty", quiet=quiet)
    if change.empty:
        say(f"nothing to do: no store of {change.app} needs anything from the dump", quiet=quiet)
    elif outcome.result is None:
        say("dry run: nothing was changed", quiet=quiet)
    else:
        say(f"restored for {change.target} (run {outcome.result.run})", quiet=quiet)
        say(f"next: start the application with {change.target}; back: kstate undo {change.app}", quiet=quiet)
    return code


def _share(text: str | None) -> tuple[int, int] | None:
    from kstate_cli.errors import UsageError

    if text is None:
        return None
    one, slash, many = text.partition("/")
    if not slash or not one.isdigit() or not many.isdigit() or not 1 <= int(one) <= int(many):
        raise UsageError(f"--share {text!r} is not I/N with 1 <= I <= N", hint="the second of three hosts: --share 2/3")
    return int(one), int(many)


def _pair(text: str) -> tuple[str, str]:
    from kstate_cli.errors import UsageError

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--conf {text!r} is not K=V")
    return key, value


def _bytes(text: str) -> int:
    from kstate_cli.errors import UsageError

    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = number[-1:] if number[-1:] in _UNITS and not number[-1:].isdigit() else ""
    digits = number.removesuffix(unit) if unit else number
    if not digits.isascii() or not digits.isdigit():
        raise UsageError(f"--memory {text!r} is not a number of bytes", hint="such as 2G, 1500M")
    return int(digits) * _UNITS[unit]


def _committed(path: Path | None) -> dict[TopicPartition, int]:
    import json

    from kstate_cli.errors import UsageError
    from kstate_cli.formats.topic_partition import TopicPartition

    if path is None:
        return {}
    try:
        rows = json.loads(path.read_bytes())
        found = {
            TopicPartition(str(topic), int(partition)): offset
            for topic, offsets in rows.items()
            for partition, offset in offsets.items()
        }
        if not all(
            isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0 for offset in found.values()
        ):
            raise ValueError("an offset is not a number from 0")
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint='it holds JSON: {"topic": {"0": 42}}') from None
    return found
