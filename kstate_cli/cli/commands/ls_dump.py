"""``kstate ls-dump``: list what a dump holds, partition by partition."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import OutputFormat, Quiet
from kstate_cli.cli.output import Format, output_of, print_line, table, waiting
from kstate_cli.clock import duration_text, now_ms, utc_text
from kstate_cli.errors import EXIT_OK, ConditionNotMet
from kstate_cli.texts import command, plural, size_text, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.cli.lines.dumps import LsDumpLine, LsDumpPartitionLine
    from kstate_cli.cli.output import Output
    from kstate_cli.dump_reader.open import DumpedPartition, DumpOverview

HELP_EXAMPLES: Final = {
    "ls-dump": (
        Example("Show offsets, gaps, age and health of each partition", "ls-dump /backup/orders"),
        Example("Print the same information as JSON", "ls-dump /backup/orders -o json"),
    ),
}


def ls_dump(
    dump: Annotated[str, typer.Argument(metavar="DUMP", help="Path or URI of the changelog dump.", show_default=False)],
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """List the contents of a dump: offsets, full and incremental dumps, gaps, size, age and health of each partition.

    This command reads only manifests and footers. To check the complete files, run `kstate verify-dump`. The `to`
    column shows the offset that follows the last one in the dump. A gap is a range of offsets that is missing between
    two full dumps, because the log no longer contained these offsets. The exit code is 3 if a file is damaged or
    missing.
    """
    from kstate_cli.dump_reader.open import read_overview

    # Only manifests and footers are read, so that the command is quick in a bucket too.
    with waiting("reading the manifest and footers", quiet=quiet):
        overview = read_overview(dump)
    verified_ms = _verified_ms(dump)
    results: Output[LsDumpLine] = output_of(output, None, quiet=quiet)
    results.show(_lines(dump, overview, verified_ms), partial(_show, overview, quiet=quiet))
    sys.stdout.flush()
    results.remark(_verified_text(dump, verified_ms))
    # The totals come last, because a terminal scrolls a long table away.
    results.text(lambda: print_line(_totals(overview)))
    sys.stdout.flush()
    damaged = [partition for partition in overview.partitions if partition.damage is not None]
    if damaged:
        named = some([str(partition.key) for partition in damaged], 5)
        raise ConditionNotMet(
            f"the dump is damaged in {plural(len(damaged), 'partition')}: {named}",
            details=[f"{partition.key}: {partition.damage}" for partition in damaged[:5]],
            hint="copy the dump again from a complete copy, or write a new dump to an empty folder",
        )
    return EXIT_OK


def _verified_ms(dump: str) -> int | None:
    from kstate_cli.dump_writer.verified import read_verified

    with contextlib.suppress(OSError):
        record = read_verified(dump)
        if record is not None:
            return record.oldest_ms()
    # Unreadable counts as never: the listing must not claim a verification that it cannot show.
    return None


def _show(overview: DumpOverview, *, quiet: bool) -> None:
    rows = [
        (
            partition.key.topic,
            partition.key.partition,
            _offset(partition.start),
            _offset(partition.end),
            partition.fulls,
            partition.increments,
            ", ".join(f"{first}-{end - 1}" for first, end in partition.gaps) or "none",
            f"{partition.records:,}",
            _size(partition.bytes),
            _age(partition.as_of_ms),
            partition.damage or "ok",
        )
        for partition in overview.partitions
    ]
    table(
        None,
        (
            "topic",
            Column("partition", right=True),
            Column("from", right=True, spare=3),
            Column("to", right=True),
            Column("full", right=True, spare=5),
            Column("incremental", right=True, spare=6),
            "gaps",
            Column("records", right=True, spare=4),
            Column("size", right=True, spare=2),
            Column("age", spare=1),
            Column("health", fold=Fold.WORDS),
        ),
        rows,
        quiet=quiet,
    )


def _offset(offset: int | None) -> str:
    if offset is None:
        return "-"
    return str(offset)


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    return size_text(size)


def _age(as_of_ms: int | None) -> str:

    if as_of_ms is None:
        return "unknown"
    # The host that dumped may have a clock ahead of this one.
    return duration_text(max(0.0, (now_ms() - as_of_ms) / 1000))


def _verified_text(dump: str, verified_ms: int | None) -> str:
    if verified_ms is None:
        return f"the dump has never been completely verified. To verify it, run {command('verify-dump', dump)}"
    return f"kstate last verified every file at {utc_text(verified_ms)} or later"


def _totals(overview: DumpOverview) -> str:
    """Return the partitions, records, bytes and gaps of a dump, and whether a part is damaged."""
    partitions = overview.partitions
    kind = "written in one go"
    if overview.generation is not None:
        kind = f"generation {overview.generation}"
    gaps = sum(len(partition.gaps) for partition in partitions)
    damaged = sum(partition.damage is not None for partition in partitions)
    sizes = [partition.bytes for partition in partitions if partition.bytes is not None]
    records = sum(partition.records for partition in partitions)
    amount = [plural(len(partitions), "partition"), plural(records, "record")]
    # If the size of one part is unknown, no sum is printed: it would look like that of all.
    if len(sizes) == len(partitions):
        amount.append(size_text(sum(sizes)))
    amount.append(plural(gaps, "gap") if gaps else "no gaps")
    health = f"{damaged} damaged" if damaged else "none damaged"
    return f"{', '.join(amount)}, {kind}: {health}"


def _lines(dump: str, overview: DumpOverview, verified_ms: int | None) -> Iterator[LsDumpLine]:
    from kstate_cli.dump_reader.location import absolute, uri_text

    yield from map(_partition_line, overview.partitions)
    yield {
        "type": "summary",
        "path": uri_text(absolute(dump)),
        "ok": all(partition.damage is None for partition in overview.partitions),
        "generation": overview.generation,
        "partitions": len(overview.partitions),
        "records": sum(partition.records for partition in overview.partitions),
        "verified": _utc(verified_ms),
    }


def _utc(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    return utc_text(time_ms)


def _partition_line(partition: DumpedPartition) -> LsDumpPartitionLine:

    return {
        "type": "partition",
        "topic": partition.key.topic,
        "partition": partition.key.partition,
        "start": partition.start,
        "end": partition.end,
        "log_start": partition.log_start,
        "log_end": partition.log_end,
        "full_dumps": partition.fulls,
        "incremental_dumps": partition.increments,
        "gaps": [{"start": first, "end": end} for first, end in partition.gaps],
        "records": partition.records,
        "files": partition.files,
        "bytes": partition.bytes,
        "dumped_at": _utc(partition.as_of_ms),
        "damage": partition.damage,
    }
