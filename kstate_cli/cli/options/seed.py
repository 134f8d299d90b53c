"""Options of ``kstate seed``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from kstate_cli import option
from kstate_cli.cli.help_panels import OUTPUT_PANEL
from kstate_cli.cli.options.restore import RestoredGuarantee
from kstate_cli.cli.options.shared import Guarantee, MetricsFile, OutputFormat, Quiet
from kstate_cli.cli.output import Format
from kstate_cli.cli.shell_completion import releases


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSourceOptions:
    """Where the changelogs come from."""

    HELP_PANEL: ClassVar[str] = "Source"

    sources: Annotated[
        list[str] | None,
        typer.Option(
            option.FROM,
            metavar="DUMP/APP",
            help="Dump of all changelogs, written after the application stopped; or, if they are lost, the "
            "application directories of all hosts, each with --from.",
        ),
    ] = None
    source_app: Annotated[
        str | None,
        typer.Option(option.SOURCE_APP, metavar="ID", help="application.id of the source, if DUMP has several."),
    ] = None
    source_bootstrap_server: Annotated[
        str | None,
        typer.Option(
            option.SOURCE_BOOTSTRAP_SERVER,
            metavar="HOST:PORT",
            help="Cluster of the source; default: --bootstrap-server.",
        ),
    ] = None
    source_kafka_settings: Annotated[
        Path | None,
        typer.Option(
            option.SOURCE_KAFKA_SETTINGS,
            metavar="FILE",
            help="File with its client properties.",
            readable=False,
        ),
    ] = None
    source_stopped: Annotated[
        bool,
        typer.Option(option.SOURCE_STOPPED, help="Confirm that the source is stopped."),
    ] = False
    spec: Annotated[
        Path | None,
        typer.Option(
            option.SPEC,
            metavar="FILE",
            help="kstate.toml. Write only the newest record of each key; directories need it for retentions.",
            readable=False,
        ),
    ] = None
    accept: Annotated[
        list[str] | None,
        typer.Option(
            option.ACCEPT,
            metavar="STORE",
            help="Accept what kstate refuses about STORE, such as missing updates; repeatable.",
        ),
    ] = None
    skip_task: Annotated[
        list[Path] | None,
        typer.Option(
            option.SKIP_TASK,
            metavar="DIR",
            help="Task directory to ignore, such as a standby copy; repeatable.",
            readable=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedTargetOptions:
    """The new application."""

    app: Annotated[
        str | None, typer.Option(option.APP, metavar="ID", help="application.id of the new application.")
    ] = None
    bootstrap_server: Annotated[
        str, typer.Option(option.BOOTSTRAP_SERVER, metavar="HOST:PORT", help="The cluster to write to.")
    ]
    kafka_settings: Annotated[
        Path | None,
        typer.Option(
            option.KAFKA_SETTINGS,
            metavar="FILE",
            help="File with client properties, such as security.protocol.",
            readable=False,
        ),
    ] = None
    rename_store: Annotated[
        list[str] | None,
        typer.Option(
            option.RENAME_STORE,
            metavar="OLD=NEW",
            help="Give store OLD the name NEW in the new application; repeatable.",
        ),
    ] = None
    drop_keys: Annotated[
        Path | None,
        typer.Option(
            option.DROP_KEYS,
            metavar="FILE",
            help="Keys to erase, one per line: STORE=KEY or STORE:SERDE=KEY; * means every store.",
            readable=False,
        ),
    ] = None
    receipt: Annotated[
        Path | None,
        typer.Option(
            option.RECEIPT,
            metavar="FILE",
            help="Report of these keys; default: kstate-seed-ID-erased.jsonl.",
            readable=False,
        ),
    ] = None
    no_offsets: Annotated[
        bool, typer.Option(option.NO_OFFSETS, help="Write only the changelogs, no input offsets.")
    ] = False
    start_offsets: Annotated[
        Path | None,
        typer.Option(
            option.START_OFFSETS,
            metavar="FILE",
            help="Input offsets as CSV: topic,partition,offset.",
            readable=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedPartitionOptions:
    """Another number of partitions. A scope is a store, the number of a sub-topology, or an input topic."""

    HELP_PANEL: ClassVar[str] = "Another number of partitions"

    partitions: Annotated[
        list[str] | None,
        typer.Option(
            option.PARTITIONS,
            metavar="N",
            help="Partitions of the new changelogs: N, or SUBTOPOLOGY=N, or STORE=N; repeatable; needs --spec.",
        ),
    ] = None
    partitioner: Annotated[
        list[str] | None,
        typer.Option(
            option.PARTITIONER,
            metavar="MODULE:NAME",
            help="Function of key and count; default: murmur2. For one store: STORE=MODULE:NAME; repeatable.",
        ),
    ] = None
    key_of: Annotated[
        list[str] | None,
        typer.Option(
            option.KEY_OF,
            metavar="STORE=KIND",
            help="Form of the keys of a store: window, session, …, or MODULE:NAME of a function; repeatable.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedDirectoryOptions:
    """The directories of the new application."""

    HELP_PANEL: ClassVar[str] = "Directories"

    out: Annotated[
        Path | None,
        typer.Option(
            option.OUT,
            metavar="DIR",
            help="Also restore this state.dir; needs --for, --spec.",
            readable=False,
        ),
    ] = None
    release_name: Annotated[
        str | None,
        typer.Option(option.FOR, metavar="RELEASE", help="Release of the new application.", autocompletion=releases),
    ] = None
    share: Annotated[
        str | None, typer.Option(option.SHARE, metavar="I/N", help="Restore only this share of the tasks, such as 1/3.")
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
            help="Journal, needed to continue the run; default: kstate-seed-ID.jsonl.",
            readable=False,
        ),
    ] = None
    undo: Annotated[bool, typer.Option(option.UNDO, help="Undo a run; needs --delete-topics.")] = False
    delete_topics: Annotated[
        Path | None,
        typer.Option(
            option.DELETE_TOPICS,
            metavar="FILE",
            help="DELETES the unused topics that the run of this journal created.",
            readable=False,
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option(option.DRY_RUN, help="Print conditions and topics, and write nothing.")] = (
        False
    )
    metrics_file: MetricsFile = None
    output: OutputFormat = Format.table
    quiet: Quiet = False
