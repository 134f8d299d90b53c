"""Options of ``kstate seed``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from kstate_cli import option
from kstate_cli.cli.help_panels import OUTPUT_PANEL
from kstate_cli.cli.options.restore import RestoredGuarantee
from kstate_cli.cli.options.shared import Guarantee, MetricsFile, OutputFormat, Quiet
from kstate_cli.cli.output import Format
from kstate_cli.cli.shell_completion import releases
from kstate_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstate_cli.seed.cluster import Connection
    from kstate_cli.specification.draft import Spec, SpecDraft


SourceBootstrapServer = Annotated[
    str | None,
    typer.Option(
        option.SOURCE_BOOTSTRAP_SERVER,
        metavar="HOST:PORT",
        help="Broker of the source cluster. The default is --bootstrap-server.",
    ),
]
SourceKafkaSettings = Annotated[
    Path | None,
    typer.Option(
        option.SOURCE_KAFKA_SETTINGS,
        metavar="FILE",
        help="Read Kafka client properties for the source cluster from FILE.",
        readable=False,
    ),
]
SourceStopped = Annotated[
    bool, typer.Option(option.SOURCE_STOPPED, help="Confirm that the source application is stopped.")
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        option.ACCEPT,
        metavar="STORE",
        help="Accept STORE despite problems such as missing updates. Can be repeated.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedCheckOptions:
    """The seed whose conditions ``check`` judges."""

    HELP_PANEL: ClassVar[str] = "Checking a seed"

    seed_to: Annotated[
        str | None,
        typer.Option(
            option.SEED_TO,
            metavar="ID",
            help=(
                "Check whether `kstate seed` can create changelogs for this new application.id or, after a seed, "
                "whether the changelogs are still complete. Requires --bootstrap-server."
            ),
        ),
    ] = None
    seed_from: Annotated[
        list[str] | None,
        typer.Option(
            option.SEED_FROM,
            metavar="DUMP/APP",
            help=(
                "Check a seed from this dump. To check a seed from directories, pass --seed-from once for each "
                "host's application directory. The default is APP."
            ),
        ),
    ] = None
    source_bootstrap_server: SourceBootstrapServer = None
    source_kafka_settings: SourceKafkaSettings = None
    source_stopped: SourceStopped = False
    accept: Accept = None
    journal: Annotated[
        Path | None,
        typer.Option(
            option.JOURNAL,
            metavar="FILE",
            help="Read the seed's journal from FILE. The default is kstate-seed-ID.jsonl.",
            readable=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSourceOptions:
    """Where the changelogs come from."""

    HELP_PANEL: ClassVar[str] = "Source"

    sources: Annotated[
        list[str] | None,
        typer.Option(
            option.FROM,
            metavar="DUMP/APP",
            help=(
                "Read this dump of all changelogs, created after the application stopped. If the changelogs are "
                "lost, pass --from once for each host's application directory instead."
            ),
        ),
    ] = None
    source_app: Annotated[
        str | None,
        typer.Option(
            option.SOURCE_APP,
            metavar="ID",
            help=("Read the changelogs of this application.id. Required if the dump contains more than one."),
        ),
    ] = None
    source_bootstrap_server: SourceBootstrapServer = None
    source_kafka_settings: SourceKafkaSettings = None
    source_stopped: SourceStopped = False
    spec: Annotated[
        Path | None,
        typer.Option(
            option.SPEC,
            metavar="FILE",
            help=(
                "Read store kinds and retentions from this kstate.toml. With this option, kstate writes only the "
                "newest record for each key if the store does not need older ones. Required if you pass application "
                "directories, because kstate needs the retention periods."
            ),
            readable=False,
        ),
    ] = None
    accept: Accept = None
    skip_task: Annotated[
        list[Path] | None,
        typer.Option(
            option.SKIP_TASK,
            metavar="DIR",
            help="Ignore this task directory, such as a standby copy. Can be repeated.",
            readable=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedTargetOptions:
    """The new application."""

    app: Annotated[
        str | None, typer.Option(option.APP, metavar="ID", help="Create changelogs for this new application.id.")
    ] = None
    bootstrap_server: Annotated[
        str, typer.Option(option.BOOTSTRAP_SERVER, metavar="HOST:PORT", help="Write to this broker's cluster.")
    ]
    kafka_settings: Annotated[
        Path | None,
        typer.Option(
            option.KAFKA_SETTINGS,
            metavar="FILE",
            help="Read Kafka client properties, such as security.protocol, from FILE.",
            readable=False,
        ),
    ] = None
    rename_store: Annotated[
        list[str] | None,
        typer.Option(
            option.RENAME_STORE,
            metavar="OLD=NEW",
            help="Rename store OLD to NEW in the new application. Can be repeated.",
        ),
    ] = None
    drop_keys: Annotated[
        Path | None,
        typer.Option(
            option.DROP_KEYS,
            metavar="FILE",
            help=(
                "Erase the keys listed in FILE. Each line is STORE=KEY or STORE:SERDE=KEY. If STORE is *, the "
                "line applies to every store."
            ),
            readable=False,
        ),
    ] = None
    receipt: Annotated[
        Path | None,
        typer.Option(
            option.RECEIPT,
            metavar="FILE",
            help="Write a report of the erased keys to FILE. The default is kstate-seed-ID-erased.jsonl.",
            readable=False,
        ),
    ] = None
    no_offsets: Annotated[
        bool, typer.Option(option.NO_OFFSETS, help="Write only the changelogs, without input offsets.")
    ] = False
    start_offsets: Annotated[
        Path | None,
        typer.Option(
            option.START_OFFSETS,
            metavar="FILE",
            help="Read input offsets from FILE. Each line is topic,partition,offset.",
            readable=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedPartitionOptions:
    """Another number of partitions. A scope is a store, the number of a sub-topology, or an input topic."""

    HELP_PANEL: ClassVar[str] = "Changing the number of partitions"

    partitions: Annotated[
        list[str] | None,
        typer.Option(
            option.PARTITIONS,
            metavar="N",
            help=(
                "Create the changelogs with this number of partitions. To set the number for one sub-topology or "
                "store, pass SUBTOPOLOGY=N or STORE=N. Requires --spec. Can be repeated."
            ),
        ),
    ] = None
    partitioner: Annotated[
        list[str] | None,
        typer.Option(
            option.PARTITIONER,
            metavar="MODULE:NAME",
            help=(
                "Call this Python function to choose the partition for each key. The default is murmur2. To set "
                "it for one store, pass STORE=MODULE:NAME. Can be repeated."
            ),
        ),
    ] = None
    key_of: Annotated[
        list[str] | None,
        typer.Option(
            option.KEY_OF,
            metavar="STORE=KIND",
            help=(
                "Specify the kind of the store's keys: window, session, …, or a Python function (MODULE:NAME). "
                "Can be repeated."
            ),
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedDirectoryOptions:
    """The directories of the new application."""

    HELP_PANEL: ClassVar[str] = "State directories"

    out: Annotated[
        Path | None,
        typer.Option(
            option.OUT,
            metavar="DIR",
            help="Also restore the stores to this state.dir. Requires --for and --spec.",
            readable=False,
        ),
    ] = None
    release_name: Annotated[
        str | None,
        typer.Option(
            option.FOR, metavar="RELEASE", help="Restore for this release of Kafka Streams.", autocompletion=releases
        ),
    ] = None
    share: Annotated[
        str | None, typer.Option(option.SHARE, metavar="I/N", help="Restore only this share of tasks, such as 1/3.")
    ] = None
    guarantee: RestoredGuarantee = Guarantee.exactly_once


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedReportOptions:
    """The journal, and what is printed."""

    HELP_PANEL: ClassVar[str] = OUTPUT_PANEL

    journal: Annotated[
        Path | None,
        typer.Option(
            option.JOURNAL,
            metavar="FILE",
            help=(
                "Write the journal to FILE. kstate needs the journal to resume or undo the run. The default is "
                "kstate-seed-ID.jsonl."
            ),
            readable=False,
        ),
    ] = None
    undo: Annotated[bool, typer.Option(option.UNDO, help="Undo a run. Requires --delete-topics.")] = False
    delete_topics: Annotated[
        Path | None,
        typer.Option(
            option.DELETE_TOPICS,
            metavar="FILE",
            help="DELETES the topics that the run in this journal created, if they are unused.",
            readable=False,
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option(option.DRY_RUN, help="Check all conditions and print the topics, but write nothing.")
    ] = False
    metrics_file: MetricsFile = None
    output: OutputFormat = Format.table
    quiet: Quiet = False


def source_connection(bootstrap: str | None, settings: Path | None, target: Connection) -> Connection:
    """Return the cluster of the source: that of the target unless the user names another one. Raise UsageError."""
    from kstate_cli.broker.settings import client_settings
    from kstate_cli.seed.cluster import Connection

    if bootstrap is not None:
        return Connection(bootstrap, client_settings(settings))
    if settings is not None:
        raise UsageError(
            "--source-kafka-settings needs --source-bootstrap-server", hint="pass --source-bootstrap-server HOST:PORT"
        )
    return target


def seed_sources(texts: Sequence[str], option_name: str) -> tuple[str | None, tuple[Path, ...]]:
    """Return the dump, or the application directories. Raise UsageError for several dumps, or both."""
    from kstate_cli.seed.directories import find_directories
    from kstate_cli.statedir.find import has_application

    directories = [text for text in texts if has_application(Path(text))]
    if len(directories) == len(texts):
        return None, find_directories(directories, option_name)
    if len(texts) > 1:
        raise UsageError(
            f"{option_name} must be one dump or one or more application directories",
            hint="pass one dump or only directories",
        )
    return texts[0], ()


def seed_specification(spec: Path | None, dump: str | None) -> tuple[Spec | None, SpecDraft | None]:
    """Return the specification for a dump, or the draft for directories, which may have what the file lacks."""
    from kstate_cli.specification.toml_file import read_draft, read_spec

    if spec is None:
        return None, None
    if dump is not None:
        return read_spec(spec), None
    return None, read_draft(spec)


def seed_journal(journal: Path | None, application: str) -> Path:
    """Return the path of the journal: by default, in the working directory."""
    return journal or Path(f"kstate-seed-{application}.jsonl")
