"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kstate_cli.cli.output import Format

App = Annotated[
    Path,
    typer.Argument(metavar="APP", help="Application directory (state.dir/application.id), or a state.dir holding one."),
]
Output = Annotated[Format, typer.Option("-o", "--output", help="table, or json: one JSON object per line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No messages and no progress, only results and errors.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="Wait so long for the application's lock.", min=0)
]
LockIsShared = Annotated[
    bool,
    typer.Option(
        "--lock-is-shared",
        help="On NFS and the like: you vouch that the application runs nowhere, its lock may not be visible here.",
    ),
]
WarningsOk = Annotated[bool, typer.Option("--warnings-ok", help="Exit 0 instead of 1 when there are warnings.")]
AfterError = Annotated[
    bool,
    typer.Option("--after-error", help="The last run ended in ERROR, and its cause is mended."),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option("--metrics-file", metavar="FILE", help="Write what was done to FILE, for Prometheus' node exporter."),
]
LogOffsets = Annotated[
    Path | None,
    typer.Option(
        "--offsets",
        metavar="FILE",
        help='Log starts and ends as the broker has them now: {"TOPIC": {"0": {"start": 0, "end": 42}}}.',
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option("--bootstrap-server", metavar="HOST:PORT", help="Ask this broker for log starts and ends."),
]
KafkaSettings = Annotated[
    Path | None,
    typer.Option("--kafka-settings", metavar="FILE", help="name=value lines for librdkafka: security.protocol, …"),
]
SpecFile = Annotated[
    Path | None,
    typer.Option("--spec", metavar="FILE", help="kstate.toml that says the kinds of stores whose bytes leave it open."),
]
LastFlush = Annotated[
    bool,
    typer.Option("--last-flush", help="Beside a running application: what was flushed last."),
]
