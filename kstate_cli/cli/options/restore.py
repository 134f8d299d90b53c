"""Options of ``kstate restore``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from kstate_cli import option
from kstate_cli.cli.help_panels import EXECUTION, LOGS, OUTPUT_PANEL, choices_text
from kstate_cli.cli.options.application import ForJar
from kstate_cli.cli.options.shared import (
    AUTO,
    AfterError,
    BootstrapServer,
    Conf,
    DryRun,
    Engine,
    Guarantee,
    KafkaSettings,
    LockIsShared,
    LogOffsets,
    Master,
    MetricsFile,
    OutputFormat,
    Quiet,
    Reason,
    Stores,
    Tasks,
    TransactionalStores,
    Unproven,
    Verbose,
    Verify,
    Wait,
    WarningsOk,
    workers_option,
)
from kstate_cli.cli.output import Format
from kstate_cli.cli.shell_completion import releases
from kstate_cli.errors import UsageError
from kstate_cli.formats.binary import JsonObject, parse_json
from kstate_cli.regular_files import read_given

if TYPE_CHECKING:
    from kstate_cli.formats.topic_partition import TopicPartition

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_MOST_DIGITS = 19


CommittedOffsets = Annotated[
    Path | None,
    typer.Option(
        option.COMMITTED_OFFSETS,
        metavar="FILE",
        help=('Read committed offsets from FILE, as JSON: {"TOPIC": {"0": 42}}.'),
        readable=False,
    ),
]
DumpIsComplete = Annotated[
    bool,
    typer.Option(option.DUMP_IS_COMPLETE, help="Confirm that no dump files are missing."),
]
DumpIsCommitted = Annotated[
    bool, typer.Option(option.DUMP_IS_COMMITTED, help="Confirm that all records in the dump are committed.")
]
VerifyDump = Annotated[
    bool | None,
    typer.Option(
        f"{option.VERIFY_DUMP}/{option.NO_VERIFY_DUMP}", help="Verify all rows in the dump first, or skip this check."
    ),
]
SkipDigests = Annotated[bool, typer.Option(option.SKIP_DIGESTS, help="Skip the SHA-256 check of the dump files.")]
AcceptResurrected = Annotated[
    bool, typer.Option(option.ACCEPT_RESURRECTED, help="Accept that deleted keys may reappear.")
]
RestoredGuarantee = Annotated[
    Guarantee,
    typer.Option(
        option.GUARANTEE,
        metavar="GUARANTEE",
        show_default=False,
        help="Assume this processing.guarantee: exactly_once_v2 (default) or at_least_once.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        option.MEMORY, metavar="BYTES", help="Use at most this much memory, such as 4G. The default is 1.7G per core."
    ),
]
"""Options that other commands share with ``restore``."""


class OnInvalid(str, Enum):
    """What to do with a store whose offset is outside its changelog."""

    rebuild = "rebuild"
    fail = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The tasks of this host, and the barrier."""

    HELP_PANEL: ClassVar[str] = "Several hosts"

    share: Annotated[
        str | None, typer.Option(option.SHARE, metavar="I/N", help="Restore only this share of tasks, such as 1/3.")
    ] = None
    missing: Annotated[
        Path | None,
        typer.Option(
            option.MISSING,
            metavar="FILE",
            help=("Restore only the tasks that no host has. FILE contains the output of `kstate fleet -o json`."),
            readable=False,
        ),
    ] = None
    before: Annotated[
        Path | None,
        typer.Option(
            option.BEFORE,
            metavar="FILE",
            help=("Restore only the tasks that this host had. FILE contains earlier `kstate fleet -o json` output."),
            readable=False,
        ),
    ] = None
    host: Annotated[
        str | None, typer.Option(option.HOST, metavar="NAME", help=("Name of this host in the --before file."))
    ] = None
    barrier: Annotated[
        str | None,
        typer.Option(
            option.BARRIER,
            metavar="PLACE",
            help="After the restoration, wait for all hosts. PLACE is a shared folder or URI.",
        ),
    ] = None
    hosts: Annotated[
        int | None,
        typer.Option(option.HOSTS, metavar="N", min=1, help="Number of hosts. The default is N from --share."),
    ] = None
    barrier_timeout: Annotated[
        int,
        typer.Option(option.BARRIER_TIMEOUT, metavar="SECONDS", min=0, help="Wait up to SECONDS for the other hosts."),
    ] = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """The dump, the release, and the stores to restore."""

    HELP_PANEL: ClassVar[str] = "Source and target"

    from_changelog: Annotated[
        str,
        typer.Option(
            option.FROM_CHANGELOG,
            metavar="DUMP",
            help="Restore from the changelog dump at this path or URI.",
        ),
    ]
    release_name: Annotated[
        str | None,
        typer.Option(
            option.FOR,
            metavar="RELEASE",
            help="Restore for this release, such as 4.3. Required unless you pass --for-jar.",
            autocompletion=releases,
        ),
    ] = None
    for_jar: ForJar = None
    spec: Annotated[
        Path | None,
        typer.Option(
            option.SPEC,
            metavar="FILE",
            help="Read store kinds and retentions from a kstate.toml.",
            readable=False,
        ),
    ] = None
    topology: Annotated[
        Path | None,
        typer.Option(
            option.TOPOLOGY,
            metavar="FILE",
            help="Read the lost stores' tasks from FILE, the output of Topology#describe.",
            readable=False,
        ),
    ] = None
    task: Tasks = None
    store: Stores = None
    partition: Annotated[
        list[int] | None,
        typer.Option(option.PARTITION, metavar="N", min=0, help="Select only tasks for partition N. Can be repeated."),
    ] = None
    ignore: Annotated[
        list[str] | None,
        typer.Option(option.IGNORE, metavar="TOPIC", help="Skip topics that match this pattern. Can be repeated."),
    ] = None
    dry_run: DryRun = False
    fleet: FleetOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Log bounds, and what the user confirms of a dump without a manifest."""

    HELP_PANEL: ClassVar[str] = LOGS

    offsets: LogOffsets = None
    bootstrap_server: BootstrapServer = None
    kafka_settings: KafkaSettings = None
    committed_offsets: CommittedOffsets = None
    dump_is_complete: DumpIsComplete = False
    dump_is_committed: DumpIsCommitted = False
    skip_digests: SkipDigests = False
    verify_dump: VerifyDump = None
    guarantee: RestoredGuarantee = Guarantee.exactly_once
    full_dump: Annotated[
        int | None,
        typer.Option(option.FULL_DUMP, metavar="GENERATION", help="Restore from this older full dump.", min=1),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOptions:
    """Permissions and modes for special cases."""

    HELP_PANEL: ClassVar[str] = "Special cases"

    rebuild: Annotated[bool, typer.Option(option.REBUILD, help="Rebuild existing stores from scratch.")] = False
    on_invalid_offset: Annotated[
        OnInvalid,
        typer.Option(
            option.ON_INVALID_OFFSET,
            metavar="ACTION",
            help="If an offset is out of range, rebuild the store (default) or fail.",
            show_default=False,
        ),
    ] = OnInvalid.rebuild
    allow_empty: Annotated[bool, typer.Option(option.ALLOW_EMPTY, help="Empty a store if its changelog is empty.")] = (
        False
    )
    accept_resurrected: AcceptResurrected = False
    wipe_unclean: Annotated[bool, typer.Option(option.WIPE_UNCLEAN, help="Rebuild all stores in unclean tasks.")] = (
        False
    )
    transactional_stores: TransactionalStores = False
    unproven: Unproven = False
    after_error: AfterError = False
    standby: Annotated[bool, typer.Option(option.STANDBY, help="Create or update a standby.")] = False
    follow: Annotated[
        float | None,
        typer.Option(option.FOLLOW, metavar="SECONDS", help=("Keep updating the standby at this interval."), min=0.1),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """Engine, memory and parallelism."""

    HELP_PANEL: ClassVar[str] = EXECUTION

    engine: Engine = AUTO
    master: Master = None
    conf: Conf = None
    staging: Annotated[
        str | None,
        typer.Option(
            option.STAGING,
            metavar="URI",
            help=("Write sorted files to this folder. All executors must have access to it."),
        ),
    ] = None
    memory: Memory = None
    workers: Annotated[int, workers_option("Restore N stores")] = 0
    verify: Annotated[
        Verify,
        typer.Option(
            option.VERIFY,
            metavar=choices_text(Verify),
            help="Select how to check the restored stores. With full, kstate reads all rows back.",
        ),
    ] = Verify.quick
    copy: Annotated[bool, typer.Option(option.COPY, help="Copy SSTs instead of linking them.")] = False
    wait: Wait = 0.0
    lock_is_shared: LockIsShared = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Output, metrics, reason and exit code."""

    HELP_PANEL: ClassVar[str] = OUTPUT_PANEL

    output: OutputFormat = Format.table
    verbose: Verbose = False
    quiet: Quiet = False
    warnings_ok: WarningsOk = False
    metrics_file: MetricsFile = None
    reason: Reason = None
    on_state_change: Annotated[
        str | None,
        typer.Option(
            option.ON_STATE_CHANGE,
            metavar="CMD",
            help="Each time the state changes, run CMD with the old and new state as arguments.",
        ),
    ] = None


def bytes_of(text: str, option_name: str = option.MEMORY) -> int:
    """Return the bytes of ``2G`` or ``1500M``. Raise UsageError, which names the option."""
    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = number[-1:] if number[-1:] in _UNITS and not number[-1:].isdigit() else ""
    digits = number.removesuffix(unit) if unit else number
    # isdigit alone accepts digits of every script, which int would convert silently.
    # So does a number of more digits than any memory has: int refuses thousands of them with an error of its own.
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise UsageError(f"{option_name} {text!r} is not a number of bytes", hint="pass a number such as 2G or 1500M")
    return int(digits) * _UNITS[unit]


def committed_of(path: Path | None) -> dict[TopicPartition, int]:
    """Return the offsets in the file of ``--committed-offsets``. Raise UsageError."""
    from kstate_cli.formats.topic_partition import TopicPartition, legal_topic, parse_partition

    if path is None:
        return {}
    committed = {}
    try:
        for topic, partitions in JsonObject.of(parse_json(read_given(path)), "the file").members.items():
            # A topic that no broker accepts is a typing error, and its offsets would silently apply to nothing.
            if not legal_topic(topic):
                raise ValueError(f"{topic[:100]!r} is not the name of a topic")
            offsets = JsonObject.of(partitions, topic)
            for partition in offsets.members:
                committed[TopicPartition(topic, parse_partition(partition))] = offsets.number(partition)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"kstate cannot read {path}: {error}", hint='write the offsets as JSON, such as {"topic": {"0": 42}}'
        ) from None
    return committed
