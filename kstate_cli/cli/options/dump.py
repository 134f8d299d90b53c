"""Options of ``kstate dump``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from kstate_cli import option
from kstate_cli.cli.help_panels import EXECUTION, OUTPUT_PANEL
from kstate_cli.cli.options.shared import (
    AUTO,
    Conf,
    Engine,
    Master,
    MetricsFile,
    OutputFormat,
    Quiet,
    WarningsOk,
    workers_option,
)
from kstate_cli.cli.output import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSourceOptions:
    """What to dump, from which broker, to which place."""

    bootstrap_server: Annotated[
        str, typer.Option(option.BOOTSTRAP_SERVER, metavar="HOST:PORT", help="Read from this broker.")
    ]
    out: Annotated[
        str,
        typer.Option(
            option.OUT,
            metavar="DUMP",
            help=(
                "Write the dump to this folder, or to s3://BUCKET/PREFIX (experimental). If the dump exists, "
                "kstate adds to it."
            ),
        ),
    ]
    app: Annotated[
        str | None, typer.Option(option.APP, metavar="ID", help="Dump every changelog of this application.id.")
    ] = None
    topic: Annotated[
        list[str] | None, typer.Option(option.TOPIC, metavar="TOPIC", help="Dump this topic. Can be repeated.")
    ] = None
    spec: Annotated[
        Path | None,
        typer.Option(
            option.SPEC, metavar="FILE", help="Dump the changelogs of the stores in this kstate.toml.", readable=False
        ),
    ] = None
    follow: Annotated[
        float | None,
        typer.Option(
            option.FOLLOW,
            metavar="SECONDS",
            help="Repeat at this interval until you stop kstate with a signal.",
            min=0.1,
        ),
    ] = None
    full: Annotated[bool, typer.Option(option.FULL, help="Write a new full dump and keep the existing ones.")] = False
    keep: Annotated[
        int | None,
        typer.Option(
            option.KEEP, metavar="N", help="DELETES all but the newest N full dumps of each partition.", min=1
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option(option.DRY_RUN, help="Show what kstate would read, but write nothing.")] = (
        False
    )
    kafka_settings: Annotated[
        Path | None,
        typer.Option(
            option.KAFKA_SETTINGS,
            metavar="FILE",
            help="Read Kafka client properties from FILE.",
            readable=False,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """Engine, parallelism and rate."""

    HELP_PANEL: ClassVar[str] = EXECUTION

    engine: Engine = AUTO
    master: Master = None
    conf: Conf = None
    workers: Annotated[int, workers_option("Read N ranges")] = 0
    max_rate: Annotated[
        str | None, typer.Option(option.MAX_RATE, metavar="BYTES", help="Read at most BYTES per second, such as 50M.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpReportOptions:
    """Output, metrics and exit code."""

    HELP_PANEL: ClassVar[str] = OUTPUT_PANEL

    output: OutputFormat = Format.table
    quiet: Quiet = False
    warnings_ok: WarningsOk = False
    metrics_file: MetricsFile = None
