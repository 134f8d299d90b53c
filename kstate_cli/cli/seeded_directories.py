"""Restore the directories of a seeded application in the same run: dump its changelogs, then restore from that dump.

It is the restoration of ``kstate restore``, from changelogs that kstate has just compared. So the offsets in the stores
are those of the new topics, and Kafka Streams starts with no record to restore.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kstate_cli import option
from kstate_cli.broker.client import ask_broker
from kstate_cli.change.course import Terms
from kstate_cli.change.engine import RunOptions
from kstate_cli.cli.options.shared import AUTO, at_once, engine_of, part_of, spark_settings
from kstate_cli.cli.views.dump import DumpProgress
from kstate_cli.cli.views.restore import RestoreProgress, code_of
from kstate_cli.dump_writer.plan import DumpRequest, of_spec
from kstate_cli.dump_writer.rounds import dump_round
from kstate_cli.dump_writer.stores import destination
from kstate_cli.errors import UsageError
from kstate_cli.restore.planning.plan import RestoreOptions
from kstate_cli.restore.running.pipeline import restore
from kstate_cli.restore.running.restoration import RestoreRequest
from kstate_cli.seed.cluster import read_topics
from kstate_cli.seed.planner import target_topic
from kstate_cli.specification.draft import Spec, draft_of
from kstate_cli.statedir.find import find_application_to_create
from kstate_cli.texts import command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstate_cli.broker.facts import Facts
    from kstate_cli.cli.lines.changes import RestoreProgressLine
    from kstate_cli.cli.output import Output
    from kstate_cli.releases import Release
    from kstate_cli.restore.running.restoration import RestoreOutcome
    from kstate_cli.seed.model import SeedRequest

_SHARE_HINT = "for example, on the second of three hosts, pass --share 2/3"


@dataclass(frozen=True, slots=True)
class SeededDirectories:
    """Where the directories are restored, and for which application."""

    application: Path
    """``state.dir/application.id`` of the new application."""
    release: Release
    spec: Spec
    """Of the source application."""
    at_least_once: bool
    share: tuple[int, int] | None

    @classmethod
    def of(
        cls, application: Path, release: Release | None, spec: Spec | None, *, at_least_once: bool, share: str | None
    ) -> SeededDirectories:
        """Return what the options ask for. Raise UsageError if one is missing, or if the folder above is."""
        if release is None or spec is None:
            raise UsageError(
                "with --out, kstate needs the new application's release and the kinds of its stores",
                hint=f"pass --for RELEASE and --spec FILE. To create the file, run {command('ls', 'APP', option.SPEC)}",
            )
        part = None
        if share is not None:
            part = part_of(option.SHARE, share, _SHARE_HINT)
        # Before hours of writing: the folder above must exist.
        return cls(find_application_to_create(application), release, spec, at_least_once, part)


@dataclass(frozen=True, slots=True)
class RestoredDirectories:
    """What the restoration has done."""

    application: Path
    dump: Path
    outcome: RestoreOutcome

    @property
    def code(self) -> int:
        """The exit code of the restoration."""
        return code_of(self.outcome, warnings_ok=False)


def seeded_spec(request: SeedRequest, source_app: str, spec: Spec) -> Spec:
    """Return the specification of the new application: its id, its stores, and their new changelogs.

    Raises UsageError and RunFailed.
    """
    stores = []
    topics: set[str] = set()
    for store in spec.stores:
        changelog = store.changelog
        if changelog is not None and not store.is_global:
            changelog = target_topic(request, source_app, changelog)
            if store.source_topic is None:
                topics.add(changelog)
        stores.append(replace(store, name=request.renamed_store(store.name), changelog=changelog))
    # The file has the partitions of the source, and --partitions may have given the changelogs others.
    counts = {name: topic.partitions for name, topic in read_topics(request.target, topics).items()}
    counted = [replace(store, partitions=counts.get(str(store.changelog), store.partitions)) for store in stores]
    return Spec(request.app, tuple(counted))


def restore_seeded(
    request: SeedRequest,
    source_app: str,
    directories: SeededDirectories,
    progress_lines: Output[RestoreProgressLine],
) -> RestoredDirectories:
    """Dump the changelogs of the new application beside the journal, and restore its directory from there.

    Raises what the commands ``dump`` and ``restore`` raise.
    """
    target = request.target
    spec = seeded_spec(request, source_app, directories.spec)
    dump = request.journal.with_suffix(".dump")
    spark = spark_settings(None, None)
    with DumpProgress(quiet=progress_lines.quiet) as dumping:
        dump_round(
            DumpRequest(
                bootstrap=target.bootstrap,
                settings=target.settings,
                out=destination(str(dump)),
                app=None,
                # The topics of global tables and of tables without a changelog too: their stores are restored as well.
                topics=dict.fromkeys(of_spec(spec), "the specification names the topic"),
                engine=engine_of(AUTO, spark),
                spark=spark,
                workers=at_once(0),
                group=request.app,
            ),
            dumping,
        )

    def ask(topics: Iterable[str]) -> Facts:
        return ask_broker(target.bootstrap, target.settings, group=request.app, topics=topics)

    with RestoreProgress(progress_lines) as progress:
        outcome = restore(
            RestoreRequest(
                Terms(directories.application, RunOptions(workers=at_once(0)), may_be_lost=True),
                dump=str(dump),
                options=RestoreOptions(
                    release=directories.release,
                    share=directories.share,
                    at_least_once=directories.at_least_once,
                    from_broker=True,
                ),
                engine=engine_of(AUTO, spark),
                spark=spark,
                spec=draft_of(spec),
                ask=ask,
            ),
            on_plan=progress.expect,
            watcher=progress,
        )
    return RestoredDirectories(directories.application, dump, outcome)
