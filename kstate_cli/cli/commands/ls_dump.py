"""``kstate dump ls``, by its other name ``ls-dump``: what a dump holds, partition by partition."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.options.shared import OutputFormat, Quiet
from kstate_cli.cli.output import Format, output_of, table, waiting
from kstate_cli.clock import duration_text, now_ms, utc_text
from kstate_cli.errors import EXIT_OK, ConditionNotMet
from kstate_cli.texts import command, plural, size_text, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.cli.lines.dumps import LsDumpLine, LsDumpPartitionLine
    from kstate_cli.cli.output import Output
    from kstate_cli.dump_reader.open import DumpedPartition, DumpOverview


def ls_dump(
    dump: Annotated[str, typer.Argument(metavar="DUMP", help="Changelog dump, as a path or URI.", show_default=False)],
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """List the contents of a dump: offsets, full and incremental dumps, gaps, size, age and health of each partition.

    ls-dump reads only manifests and footers. To read the files in full, run kstate verify-dump. A gap is a range of
    offsets that is missing between two full dumps, because the log no longer had it. The exit code is 3 if a file is
    damaged or missing.
    """
    from kstate_cli.dump_reader.open import read_overview

    # Only manifests and footers are read, so that the command is quick in a bucket too.
    with waiting("reading the manifest and footers", quiet=quiet):
        overview = read_overview(dump)
    verified_ms = _verified_ms(dump)
    results: Output[LsDumpLine] = output_of(output, None, quiet=quiet)
    results.show(_lines(dump, overview, verified_ms), partial(_show, overview))
    for sentence in _ending(dump, overview, verified_ms):
        results.remark(sentence)
    damaged = [partition for partition in overview.partitions if partition.damage is not None]
    if damaged:
        named = some([str(partition.key) for partition in damaged], 5)
        raise ConditionNotMet(
            f"{plural(len(damaged), 'partition')} damaged: {named}",
            details=[f"{partition.key}: {partition.damage}" for partition in damaged[:5]],
            hint="copy the dump again from a complete copy, or take a new one into an empty folder",
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


def _show(overview: DumpOverview) -> None:

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
    names = ("topic", "partition", "from", "to", "full", "incremental", "gaps", "records", "size", "age")
    table(
        None,
        (*names, Column("health", fold=Fold.WORDS)),
        rows,
        right=frozenset({"partition", "from", "to", "full", "incremental", "records", "size"}),
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


def _ending(dump: str, overview: DumpOverview, verified_ms: int | None) -> Iterator[str]:

    kind = "written at once"
    if overview.generation is not None:
        kind = f"generation {overview.generation}"
    yield f"{plural(len(overview.partitions), 'partition')}, {kind}"
    if verified_ms is None:
        yield f"no command has read all files yet. To read them: {command('verify-dump', dump)}"
    else:
        yield f"all files were read since {utc_text(verified_ms)}"


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
