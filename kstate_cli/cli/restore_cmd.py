"""``kstate restore``: builds stores from a changelog dump, on Spark."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.options import (
    AfterError,
    BootstrapServer,
    Guarantee,
    KafkaSettings,
    LockIsShared,
    LogOffsets,
    MetricsFile,
    Output,
    Quiet,
    Reason,
    Stores,
    Tasks,
    Verify,
    Wait,
    WarningsOk,
    part_of,
)
from kstate_cli.cli.output import Format

if TYPE_CHECKING:
    from kstate_cli.cli.restore_progress import RestoreProgress
    from kstate_cli.restore.plan import RestorePlan


class OnInvalid(str, Enum):
    """What becomes of a store whose offset lies outside its changelog."""

    rebuild = "rebuild"
    fail = "fail"


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
    task: Tasks = None,
    store: Stores = None,
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
    on_invalid_offset: Annotated[
        OnInvalid,
        typer.Option(
            "--on-invalid-offset",
            help="Where the broker's log no longer has a store's offset (KIP-406): rebuild the store, or fail.",
        ),
    ] = OnInvalid.rebuild,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="A store with rows may be emptied by an empty changelog.")
    ] = False,
    accept_resurrected: Annotated[
        bool,
        typer.Option(
            "--accept-resurrected",
            help="Catch up a store that is older than delete.retention.ms: rows may stay whose deletes were forgotten.",
        ),
    ] = False,
    dump_is_complete: Annotated[
        bool,
        typer.Option("--dump-is-complete", help="No manifest: you vouch that no file and no record is missing."),
    ] = False,
    dump_is_committed: Annotated[
        bool,
        typer.Option("--dump-is-committed", help="No manifest: you vouch that it was read with read_committed."),
    ] = False,
    skip_digests: Annotated[
        bool, typer.Option("--skip-digests", help="Do not compare the dump's files with the manifest's SHA-256.")
    ] = False,
    committed_offsets: Annotated[
        Path | None,
        typer.Option("--committed-offsets", metavar="FILE", help="JSON {topic: {partition: offset}} of the group."),
    ] = None,
    offsets: LogOffsets = None,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    guarantee: Annotated[
        Guarantee, typer.Option("--guarantee", help="at_least_once: the application never used transactions.")
    ] = Guarantee.exactly_once,
    wipe_unclean: Annotated[
        bool, typer.Option("--wipe-unclean", help="Rebuild tasks whole that were not left clean.")
    ] = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy SSTs instead of linking them; files become this user's.")
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="spark|local",
            help="local: in this process, slice after slice; for small dumps, needs no Java.",
        ),
    ] = "spark",
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
    verify: Annotated[
        Verify, typer.Option("--verify", help="full: read every row back before the switch.")
    ] = Verify.quick,
    workers: Annotated[int, typer.Option("--workers", help="Stores taken in at once; 0: one per core.", min=0)] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan that would run, and change nothing.")
    ] = False,
    on_state_change: Annotated[
        str | None,
        typer.Option("--on-state-change", metavar="CMD", help="Run CMD BEFORE AFTER at each change of state."),
    ] = None,
    after_error: AfterError = False,
    reason: Reason = None,
    metrics_file: MetricsFile = None,
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
    from kstate_cli.cli.facts_source import facts_source
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.restore_options import bytes_of, committed_of, engine_of, pair_of
    from kstate_cli.cli.restore_progress import RestoreProgress
    from kstate_cli.cli.restore_report import finish
    from kstate_cli.cli.state_command import StateCommand
    from kstate_cli.releases import release
    from kstate_cli.restore.judge import Allowed
    from kstate_cli.restore.pipeline import application_path
    from kstate_cli.restore.pipeline import restore as run_restore
    from kstate_cli.restore.plan import RestoreOptions
    from kstate_cli.restore.restoration import RestoreRequest
    from kstate_cli.spark.session import SparkSettings
    from kstate_cli.spec.toml_file import read_draft
    from kstate_cli.spec.topology import read_topology

    options = RestoreOptions(
        release=release(release_name),
        tasks=frozenset(task or ()),
        stores=frozenset(store or ()),
        share=None if share is None else part_of("--share", share, "the second of three hosts: --share 2/3"),
        at_least_once=guarantee is Guarantee.at_least_once,
        wipe_unclean=wipe_unclean,
        committed=committed_of(committed_offsets),
        ignored=tuple(ignore or ()),
        broker_asked=bootstrap_server is not None,
        allowed=Allowed(
            "asked for" if rebuild else None,
            allow_empty,
            dump_is_complete,
            wipe_invalid=on_invalid_offset is OnInvalid.rebuild,
            asked=rebuild,
            resurrected=accept_resurrected,
        ),
    )
    path = application_path(app)
    request = RestoreRequest(
        app=path,
        dump=dump,
        options=options,
        run=RunOptions(
            workers=workers or os.cpu_count() or 1, verify_full=verify is Verify.full, copy_ssts=copy, reason=reason
        ),
        engine=engine_of(engine, master=master, conf=conf),
        spark=SparkSettings(master, dict(pair_of(one) for one in conf or ())),
        spec=read_draft(spec) if spec else None,
        spec_name=str(spec) if spec else "kstate.toml",
        topology=read_topology(topology) if topology else None,
        memory=bytes_of(memory) if memory else None,
        staging=staging,
        complete=dump_is_complete,
        committed_only=dump_is_committed,
        wait=wait,
        lock_is_shared=lock_is_shared,
        dry_run=dry_run,
        ask=facts_source(offsets, bootstrap_server, kafka_settings, group=path.name),
        digests=not skip_digests,
        after_error=after_error,
    )
    heard = StateCommand(on_state_change, request.app) if on_state_change is not None else None
    with Metrics(metrics_file, "restore", request.app) as metrics:
        with RestoreProgress(quiet=quiet, json=output is Format.json, on_state=heard) as progress:
            outcome = run_restore(request, on_plan=lambda plan: _show_plan(plan, output, progress), watcher=progress)
        metrics.records = sum(report.records for report in outcome.reports)
        return metrics.done(finish(outcome, output, quiet=quiet, warnings_ok=warnings_ok))


def _show_plan(plan: RestorePlan, output: Format, progress: RestoreProgress) -> None:
    from kstate_cli.cli.output import print_json, say
    from kstate_cli.cli.plan_view import show_plan

    progress.expect(plan)
    show_plan(plan.change, output)
    for one in plan.left:
        if output is Format.json:
            print_json({"schema_version": 1, "type": "left", "store": one.shown, "why": one.why})
        else:
            say(f"{one.shown}: left as it is: {one.why}")
