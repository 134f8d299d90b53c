"""Options of ``kstate rehome`` for the broker, and for tasks to complete from a dump."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from kstate_cli import option
from kstate_cli.cli.help_panels import EXECUTION, LOGS
from kstate_cli.cli.options.restore import (
    AcceptResurrected,
    CommittedOffsets,
    DumpIsCommitted,
    DumpIsComplete,
    Memory,
    SkipDigests,
    VerifyDump,
    bytes_of,
    committed_of,
)
from kstate_cli.cli.options.shared import AUTO, Conf, Engine, KafkaSettings, Master, engine_of, spark_settings
from kstate_cli.cli.shell_completion import releases
from kstate_cli.errors import UsageError

if TYPE_CHECKING:
    from kstate_cli.change.course import Terms
    from kstate_cli.rehome.model import Cluster, RehomeOptions
    from kstate_cli.restore.running.restoration import RestoreRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The broker that knows group members and unread records."""

    HELP_PANEL: ClassVar[str] = LOGS

    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            option.BOOTSTRAP_SERVER,
            metavar="HOST:PORT",
            help=("Check for group members, unread records and partition counts on this broker."),
        ),
    ] = None
    kafka_settings: KafkaSettings = None

    def cluster(self, *, dry_run: bool) -> Cluster | None:
        """Return the cluster to check; None without a broker. Raise UsageError."""
        from kstate_cli.broker.settings import client_settings
        from kstate_cli.cli.options.logs import refuse_settings_alone
        from kstate_cli.rehome.model import Cluster

        refuse_settings_alone(self.bootstrap_server, self.kafka_settings)
        if self.bootstrap_server is None:
            return None
        return Cluster(self.bootstrap_server, client_settings(self.kafka_settings), only_looks=dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The Spark that reads the dump, if a task must be completed."""

    HELP_PANEL: ClassVar[str] = EXECUTION

    engine: Engine = AUTO
    master: Master = None
    conf: Conf = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """The dump that completes tasks, and its conditions."""

    HELP_PANEL: ClassVar[str] = "Incomplete tasks (if merged sub-topologies were on different hosts)"

    from_changelog: Annotated[
        str | None,
        typer.Option(option.FROM_CHANGELOG, metavar="DUMP", help="Add missing stores from this changelog dump."),
    ] = None
    release_name: Annotated[
        str | None,
        typer.Option(
            option.FOR,
            metavar="RELEASE",
            help="Build missing stores for this release. Pass the release that the application uses.",
            autocompletion=releases,
        ),
    ] = None
    complete: Annotated[
        list[str] | None,
        typer.Option(
            option.COMPLETE,
            metavar="TASK",
            help=(
                "Complete this merged task on this host. If this host should not complete any task, pass none. By "
                "default, the host with the lowest-numbered old task completes the merged task."
            ),
        ),
    ] = None
    committed_offsets: CommittedOffsets = None
    dump_is_complete: DumpIsComplete = False
    dump_is_committed: DumpIsCommitted = False
    skip_digests: SkipDigests = False
    verify_dump: VerifyDump = None
    accept_resurrected: AcceptResurrected = False
    memory: Memory = None
    spark: SparkOptions

    def refuse_contradictions(self, *, dry_run: bool) -> None:
        """Raise UsageError for options of a dump without ``--from-changelog``, and for a run that reads no rows.

        Raise it too for a release that kstate does not know.
        """
        # Imported here, so that ``--help`` and shell completion need not import the table of releases.
        from kstate_cli.releases import release

        values = {
            option.COMPLETE: self.complete,
            option.COMMITTED_OFFSETS: self.committed_offsets,
            option.DUMP_IS_COMPLETE: self.dump_is_complete,
            option.DUMP_IS_COMMITTED: self.dump_is_committed,
            option.SKIP_DIGESTS: self.skip_digests,
            option.VERIFY_DUMP: self.verify_dump is not None,
            option.ACCEPT_RESURRECTED: self.accept_resurrected,
        }
        if self.release_name is not None:
            # Called only to reject an unknown release. ``--for`` alone is no contradiction: [defaults] in kstate.toml
            # may set it for all commands.
            release(self.release_name)
        option_name = next((name for name, value in values.items() if value), None)
        if option_name is not None and self.from_changelog is None:
            raise UsageError(
                f"{option_name} needs --from-changelog",
                hint="pass the dump that completes the tasks",
            )
        if self.verify_dump is False and not dry_run:
            raise UsageError(
                "--no-verify-dump works only with --dry-run, because a restoration must read all rows",
                hint="also pass --dry-run",
            )

    def request(
        self, options: RehomeOptions, terms: Terms, source: BrokerOptions, *, after_error: bool
    ) -> RestoreRequest:
        """Return the request for ``restore``. Raise UsageError for options that exclude each other.

        Raise it too if the topology before, or the release, is missing or unknown. ``--from-changelog`` must be set.
        """
        from kstate_cli.cli.options.logs import facts_source
        from kstate_cli.releases import release
        from kstate_cli.restore.planning.judge import Permissions
        from kstate_cli.restore.planning.plan import RestoreOptions
        from kstate_cli.restore.running.restoration import RestoreRequest

        assert self.from_changelog is not None
        # The options of Spark are parsed before the dump is read, so that contradictions are reported at once.
        spark = spark_settings(self.spark.master, self.spark.conf)
        if options.old is None:
            raise UsageError(
                (
                    "--from-changelog needs the new and the old topology. Without the old one, kstate would mistake "
                    "another host's stores for new ones"
                ),
                hint="pass --topology NEW.txt --from OLD.txt" + (" --for RELEASE" if self.release_name is None else ""),
            )
        if self.release_name is None:
            raise UsageError(
                "--from-changelog needs --for",
                hint=("pass --for RELEASE, such as --for 4.3"),
            )
        target = release(self.release_name)
        # Refused, since the completed stores would get rows in a layout that no test has run with this release.
        if target.unproven:
            raise UsageError(
                f"kstate has not been tested with {target}, so it does not complete tasks for this release",
                hint="pass the release that the application runs",
            )
        return RestoreRequest(
            terms,
            dump=self.from_changelog,
            options=RestoreOptions(
                release=target,
                at_least_once=options.at_least_once,
                committed=committed_of(self.committed_offsets),
                from_broker=source.bootstrap_server is not None,
                # There is no permission to rebuild or empty a store: the stores that are here must stay as they are.
                permissions=Permissions(complete=self.dump_is_complete, accept_resurrected=self.accept_resurrected),
            ),
            engine=engine_of(self.spark.engine, spark),
            spark=spark,
            spec=options.spec,
            spec_name=options.spec_name or "kstate.toml",
            memory=bytes_of(self.memory) if self.memory else None,
            complete=self.dump_is_complete,
            committed_only=self.dump_is_committed,
            ask=facts_source(None, source.bootstrap_server, source.kafka_settings, group=terms.app.name),
            digests=not self.skip_digests,
            verify_dump=self.verify_dump,
            after_error=after_error,
        )
