"""``kstate seed``: write the changelogs of an application, from a dump or from state directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.seed import (
    SeedDirectoryOptions,
    SeedPartitionOptions,
    SeedReportOptions,
    SeedSourceOptions,
    SeedTargetOptions,
    seed_journal,
    seed_sources,
    seed_specification,
    source_connection,
)
from kstate_cli.cli.options.shared import Guarantee, declared
from kstate_cli.cli.output import output_of, waiting
from kstate_cli.errors import EXIT_OK, UsageError
from kstate_cli.texts import command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kstate_cli.cli.lines.changes import RestoreProgressLine
    from kstate_cli.cli.lines.seeds import SeedLine
    from kstate_cli.cli.output import Output
    from kstate_cli.cli.seeded_directories import RestoredDirectories
    from kstate_cli.errors import KstateError
    from kstate_cli.formats.topic_partition import TopicPartition
    from kstate_cli.seed.cluster import Connection
    from kstate_cli.seed.erasure import KeysToErase
    from kstate_cli.seed.model import SeedPlan, SeedRequest
    from kstate_cli.seed.partitioning import PartitionRequest

HELP_EXAMPLES: Final = {
    "seed": (
        Example(
            "Print what kstate would write",
            "seed --from /dump --app v2 --bootstrap-server broker:9092 --dry-run",
        ),
        Example("Create the changelogs for v2", "seed --from /dump --app v2 --bootstrap-server broker:9092"),
        Example(
            "DELETES the topics that the run created, if they are unused",
            "seed --undo --delete-topics seed.jsonl --bootstrap-server broker:9092",
        ),
    ),
}


_SCOPE_HINT = "pass either a single value, or SCOPE=VALUE once for each store or sub-topology"


@declared
def seed(
    source: SeedSourceOptions,
    target: SeedTargetOptions,
    partitions: SeedPartitionOptions,
    directories: SeedDirectoryOptions,
    report: SeedReportOptions,
) -> int:
    """Create changelogs for a new application.id from a dump, and copy the old application's input offsets.

    First stop the source application, and dump its changelogs. If the changelogs are lost, pass the state directories
    of all hosts instead. In this case, --app may be the old id.

    kstate creates the new application's changelogs, writes all records in transactions, and reads them back. kstate
    commits the input offsets last. It writes only to topics that it created and changes nothing in the source. If
    kstate was killed, repeat the command to resume.
    """
    from kstate_cli.broker.settings import client_settings
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.cli.views.seed import SeedProgress, show_end, show_outcome
    from kstate_cli.seed.cluster import Connection
    from kstate_cli.seed.conditions import refuse_missing, refuse_other_run
    from kstate_cli.seed.directories import hold
    from kstate_cli.seed.execution import carry_out
    from kstate_cli.seed.journal import open_journal, read_journal

    results: Output[SeedLine] = output_of(report.output, None, quiet=report.quiet)
    target_cluster = Connection(target.bootstrap_server, client_settings(target.kafka_settings))
    if report.undo or report.delete_topics is not None:
        return _undo(target_cluster, source, target, report, results)
    request = _request(source, target, partitions, report, target_cluster)
    restoration = _restoration(directories, request, report)
    with Metrics(report.metrics_file, "seed", None, application=request.app) as metrics, hold(request.directories):
        if report.dry_run:
            return metrics.finish(_check(request, read_journal(request.journal), report, results))
        with open_journal(request.journal) as journal:
            # The new application may be running by now, so nothing else is judged again.
            if (end := journal.first("done")) is not None:
                refuse_other_run(request, journal.events)
                refuse_missing(request, journal.events)
                restored = restoration(str(end["source_app"]))
                show_end(request, end, restored, results)
                return metrics.finish(_exit_code(restored))
            plan = _plan(request, journal.events, report)
            with SeedProgress(quiet=report.quiet) as progress:
                outcome = carry_out(request, plan, journal, progress)
            metrics.records = outcome.written
            restored = restoration(plan.source_app)
        show_outcome(request, plan, outcome, restored, results)
        return metrics.finish(_exit_code(restored))


def _restoration(
    options: SeedDirectoryOptions, request: SeedRequest, report: SeedReportOptions
) -> Callable[[str], RestoredDirectories | None]:
    """Return a function from the source application to its restored successor; without ``--out`` it does nothing.

    Raises UsageError, before anything is written.
    """
    if options.out is None:
        for name, value in ((option.FOR, options.release_name), (option.SHARE, options.share)):
            if value is not None:
                raise UsageError(f"{name} needs --out", hint="pass --out DIR")
        return lambda _: None
    if request.dump is None:
        raise UsageError("--out works only with a dump. If you seed from directories, copy their stores instead")
    from kstate_cli.cli.options.application import chosen_release
    from kstate_cli.cli.seeded_directories import SeededDirectories, restore_seeded

    progress: Output[RestoreProgressLine] = output_of(report.output, None, quiet=report.quiet, on_standard_error=True)
    release = None
    if options.release_name is not None:
        release = chosen_release(option.FOR, options.release_name, None, quiet=progress.is_silent)
    directories = SeededDirectories.of(
        options.out / request.app,
        release,
        request.spec,
        at_least_once=options.guarantee is Guarantee.at_least_once,
        share=options.share,
    )
    return lambda source_app: restore_seeded(request, source_app, directories, progress)


def _exit_code(restored: RestoredDirectories | None) -> int:
    """Return the exit code of the restoration; 0 without one."""
    if restored is None:
        return EXIT_OK
    return restored.code


def _check(
    request: SeedRequest, events: Sequence[Mapping[str, Any]], report: SeedReportOptions, results: Output[SeedLine]
) -> int:
    """Print every condition, and the plan if all are met. Raises the refusal of a real run otherwise."""
    from kstate_cli.cli.views.seed import show_conditions, show_end, show_plan
    from kstate_cli.seed.conditions import judge_run, judge_seeded, refuse_other_run, seeded_refusal

    with waiting("reading the dump and the brokers", quiet=report.quiet):
        end = next((event for event in events if event["event"] == "done"), None)
        if end is not None:
            refuse_other_run(request, events)
            conditions = judge_seeded(request, events)
            refusal: KstateError | None = seeded_refusal(conditions)
            plan: SeedPlan | None = None
        else:
            judgement = judge_run(request, events)
            conditions, plan, refusal = judgement.conditions, judgement.plan, judgement.refusal
    show_conditions(conditions, results)
    if refusal is not None:
        raise refusal
    if plan is not None:
        show_plan(request, plan, conditions, results)
    elif end is not None:
        show_end(request, end, None, results)
    return EXIT_OK


def _plan(request: SeedRequest, events: Sequence[Mapping[str, Any]], report: SeedReportOptions) -> SeedPlan:
    from kstate_cli.seed.journal import announced_topics
    from kstate_cli.seed.planner import plan_seed, read_facts

    with waiting("reading the source and the brokers", quiet=report.quiet):
        return plan_seed(request, read_facts(request, announced_topics(events)), events)


def _undo(
    cluster: Connection,
    source: SeedSourceOptions,
    target: SeedTargetOptions,
    report: SeedReportOptions,
    results: Output[SeedLine],
) -> int:
    """Delete the topics of a run. Raise UsageError, Refused and RunFailed."""
    from kstate_cli.cli.views.seed import show_undone
    from kstate_cli.seed.journal import open_journal
    from kstate_cli.seed.undo import undo_seed

    if report.delete_topics is None or not report.undo:
        raise UsageError(
            "--undo and --delete-topics work only together",
            hint=("pass --undo --delete-topics FILE with the run's journal"),
        )
    if source.sources or target.app is not None or report.dry_run:
        raise UsageError("--undo cannot be used with --from, --app or --dry-run", hint="omit these options")
    if not report.delete_topics.exists():
        raise UsageError(f"{report.delete_topics} does not exist", hint="pass the run's journal")
    with (
        waiting("deleting topics", quiet=report.quiet),
        open_journal(report.delete_topics, create=False) as journal,
    ):
        undone = undo_seed(cluster, journal)
    show_undone(report.delete_topics, undone, results)
    return EXIT_OK


def _erasure(target: SeedTargetOptions) -> tuple[KeysToErase | None, Path | None]:
    """Return the keys to erase, and the file that records what was erased."""
    from kstate_cli.seed.erasure import read_keys

    if target.drop_keys is not None:
        return read_keys(target.drop_keys), target.receipt or Path(f"kstate-seed-{target.app}-erased.jsonl")
    if target.receipt is not None:
        raise UsageError("kstate writes --receipt only with --drop-keys", hint="pass --drop-keys or omit --receipt")
    return None, None


def _request(
    source: SeedSourceOptions,
    target: SeedTargetOptions,
    partitions: SeedPartitionOptions,
    report: SeedReportOptions,
    cluster: Connection,
) -> SeedRequest:
    from kstate_cli.seed.model import SeedRequest

    if not source.sources or target.app is None:
        raise UsageError("kstate needs a source and the new application.id", hint="pass --from DUMP and --app ID")
    dump, directories = seed_sources(source.sources, option.FROM)
    _refuse_mixed(source, dump)
    origin = source_connection(source.source_bootstrap_server, source.source_kafka_settings, cluster)
    spec, draft = seed_specification(source.spec, dump)
    erased, receipt = _erasure(target)
    return SeedRequest(
        start_offsets=_start_offsets(target),
        dump=dump,
        app=target.app,
        source_app=source.source_app,
        target=cluster,
        source=origin,
        journal=seed_journal(report.journal, target.app),
        spec=spec,
        renamed=_renamed(target.rename_store or ()),
        copies_offsets=not target.no_offsets,
        directories=directories,
        erased=erased,
        receipt=receipt,
        draft=draft,
        spec_name=str(source.spec or "kstate.toml"),
        accepted=frozenset(source.accept or ()),
        skipped_tasks=frozenset(Path(os.path.realpath(path)) for path in source.skip_task or ()),
        partitions=_partitions(partitions, has_kinds=bool(directories) or spec is not None),
        source_stopped=source.source_stopped,
    )


def _start_offsets(target: SeedTargetOptions) -> Mapping[TopicPartition, int]:
    from kstate_cli.seed.start_offsets import read_start_offsets

    if target.start_offsets is None:
        return {}
    if target.no_offsets:
        raise UsageError("--no-offsets and --start-offsets cannot be used together", hint="omit one of them")
    return read_start_offsets(target.start_offsets)


def _refuse_mixed(source: SeedSourceOptions, dump: str | None) -> None:
    """Raise UsageError for options that do not fit the source."""
    if dump is not None and source.skip_task:
        raise UsageError(
            ("--skip-task works only with application directories"), hint="omit it or pass directories with --from"
        )
    if dump is None and source.source_app is not None:
        raise UsageError(
            "--source-app works only with dumps, because the name of an application directory is its application.id",
            hint="omit --source-app",
        )


def _partitions(options: SeedPartitionOptions, *, has_kinds: bool) -> PartitionRequest | None:
    """Return what the user states about partitions. Raise UsageError."""
    from kstate_cli.seed.partitioning import PartitionRequest, key_form_of, partitioner_of

    if not options.partitions:
        if options.partitioner or options.key_of:
            raise UsageError("--partitioner and --key-of need --partitions", hint="also pass --partitions")
        return None
    if not has_kinds:
        raise UsageError(
            "--partitions needs the stores' kinds, because a store's kind determines which bytes of a key "
            "decide the key's partition",
            hint=f"pass --spec FILE with the output of {command('ls', 'APP', option.SPEC)}",
        )
    counts = _by_scope(option.PARTITIONS, options.partitions)
    keys = _by_scope(option.KEY_OF, options.key_of or ())
    if None in keys:
        raise UsageError(f"--key-of {keys[None]!r} does not name a store", hint="pass --key-of STORE=KIND")
    return PartitionRequest(
        {scope: _count(text) for scope, text in counts.items()},
        {
            scope: partitioner_of(text)
            for scope, text in _by_scope(option.PARTITIONER, options.partitioner or ()).items()
        },
        {str(store): key_form_of(text) for store, text in keys.items()},
    )


def _by_scope(option_name: str, values: Sequence[str]) -> Mapping[str | None, str]:
    """Return scope -> text of ``SCOPE=TEXT``; the scope of a text alone is None. Raise UsageError."""
    by_scope: dict[str | None, str] = {}
    for value in values:
        name, equals, text = value.rpartition("=")
        scope = None
        if equals:
            scope = name
        if not text or scope == "" or scope in by_scope:
            raise UsageError(
                f"{option_name} {value!r} has no scope or no value, or you passed the same scope twice",
                hint=_SCOPE_HINT,
            )
        by_scope[scope] = text
    return by_scope


def _count(text: str) -> int:
    from kstate_cli.formats.topic_partition import MOST_PARTITIONS

    # int() also takes signs, spaces and underscores.
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST_PARTITIONS:
        raise UsageError(
            f"--partitions {text!r} is not a number from 1 to {MOST_PARTITIONS:,}", hint="pass N or SCOPE=N"
        )
    return int(text)


def _renamed(pairs: Sequence[str]) -> Mapping[str, str]:
    """Return old and new names of stores. Raise UsageError."""
    renamed: dict[str, str] = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not equals or not old or not new or old in renamed:
            raise UsageError(
                (f"--rename-store {pair!r} is not OLD=NEW, or you passed OLD twice"),
                hint="pass OLD=NEW once for each store",
            )
        renamed[old] = new
    return renamed
