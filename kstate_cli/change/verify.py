"""Proves that the staged stores hold the original's data, before anything is switched.

Where SSTs are only linked, the live files of each column family being the very same inodes proves it at no cost per
byte. Where rows were converted, both sides are read and compared. Where SSTs were rewritten, RocksDB has checked its
own output and counted its input; here is looked at formats, and that rows are left where there were some; with
``full`` at every row. Nothing is counted.
"""

from __future__ import annotations

import hashlib
import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kstate_cli.change.edit import DatabaseStep, verify_database
from kstate_cli.change.plan import BuildDatabase, Conversion, CreateDatabase, EditDatabase, MoveStore, Plan
from kstate_cli.formats import sst
from kstate_cli.formats.families import OFFSETS_CF
from kstate_cli.formats.layouts import STRIP
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.offsets import OffsetsRecord, decode_rows
from kstate_cli.parallel.workers import Workers
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import is_sst, unflushed_logs
from kstate_cli.rocks.shadow import LiveFile, Shadow


class VerificationError(RocksError):
    """A staged store is not what the plan says."""


@dataclass(frozen=True, slots=True)
class _Check:
    """One step, and what its outcome is held against."""

    step: DatabaseStep | MoveStore
    app: Path
    staged: Path
    full: bool
    linked: bool


def verify_staged(plan: Plan, staged: Path, workers: Workers, *, full: bool, linked: bool) -> None:
    """Checks every database that the plan touches. Raises VerificationError or RocksError, naming it."""
    checks = [
        _Check(step, plan.app, staged, full, linked)
        for step in plan.steps
        if isinstance(step, (EditDatabase, CreateDatabase, BuildDatabase, MoveStore))
    ]
    for _ in workers.map(_verify, checks):
        pass


def _verify(check: _Check) -> None:
    step, app, staged, full, linked = check.step, check.app, check.staged, check.full, check.linked
    path = staged / step.path
    if isinstance(step, BuildDatabase):
        verify_database(step, staged, full=full)
        return
    if isinstance(step, MoveStore):
        _verify_moved(check, step)
        return
    try:
        logs = unflushed_logs(path)
        if logs:
            raise VerificationError(f"{', '.join(logs)} still holds rows: the database was not flushed")
        with Shadow(path) as shadow:
            if isinstance(step, CreateDatabase):
                _same_offsets(shadow, step.offsets)
                return
            if frozenset(shadow.column_families) != step.families_after:
                raise VerificationError(f"has the column families {', '.join(shadow.column_families)}")
            if step.offsets is not None:
                _same_offsets(shadow, step.offsets)
            touched = {c.source for c in step.conversions} | {c.target for c in step.conversions} | set(step.drop)
            untouched = [name for name in step.before.data_families if name not in touched]
            if step.sst_format is not None:
                _formats(shadow, path, step.sst_format)
                _compare_rows(step, app, shadow, untouched, full=full)
            else:
                for name in untouched:
                    _same_files(
                        name, step.before.live[name], shadow.live_files(name), app / step.path, path, linked=linked
                    )
            _converted(step, app, shadow)
    except (RocksError, MalformedBytesError) as error:
        raise VerificationError(f"{step.path}: {error}") from None


def _verify_moved(check: _Check, step: MoveStore) -> None:
    """Every database opens where it is now, and all its column families are the very files that they were."""
    for before in step.databases:
        below = before.path.relative_to(check.app / step.source)
        path = check.staged / step.path / below
        try:
            with Shadow(path) as shadow:
                if frozenset(shadow.column_families) != frozenset(before.column_families):
                    raise VerificationError(f"has the column families {', '.join(shadow.column_families)}")
                for name in before.column_families:
                    _same_files(
                        name, before.live[name], shadow.live_files(name), before.path, path, linked=check.linked
                    )
        except (RocksError, MalformedBytesError) as error:
            raise VerificationError(f"{step.path}: {error}") from None


def _same_offsets(shadow: Shadow, wanted: OffsetsRecord) -> None:
    stored = decode_rows(shadow.rows(OFFSETS_CF))
    if (
        dict(stored.offsets) != dict(wanted.offsets)
        or stored.status != wanted.status
        or stored.position != wanted.position
    ):
        raise VerificationError(f"column family offsets holds {stored}, not {wanted}")


def _same_files(
    family: str, before: tuple[LiveFile, ...], after: tuple[LiveFile, ...], old: Path, new: Path, *, linked: bool
) -> None:
    if before != after:
        raise VerificationError(f"column family {family} consists of other SSTs than before")
    for file in before:
        one, other = (old / file.name).stat(), (new / file.name).stat()
        if linked and (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino):
            raise VerificationError(f"{file.name} is not the original file")
        if not linked and _digest_file(old / file.name) != _digest_file(new / file.name):
            raise VerificationError(f"{file.name} is not a true copy")


def _digest_file(path: Path) -> bytes:
    digest = hashlib.blake2b()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.digest()


def _formats(shadow: Shadow, path: Path, wanted: int) -> None:
    for family in shadow.column_families:
        for file in shadow.live_files(family):
            if not is_sst(file.name):
                continue
            with open(path / file.name, "rb") as handle:
                handle.seek(-sst.FOOTER_LENGTH, os.SEEK_END)
                footer = sst.footer(handle.read())
            if footer.format_version > wanted:
                raise VerificationError(f"{file.name} still has format {footer.format_version}")


def _compare_rows(step: EditDatabase, app: Path, shadow: Shadow, families: list[str], *, full: bool) -> None:
    """Of a rewritten database: a family that had rows still has SSTs, and with ``full`` the very same rows.

    No entries are counted: a compaction drops what is overwritten or deleted, so fewer of them prove nothing.
    """
    for name in families:
        if not step.before.samples.get(name):
            continue
        if not shadow.live_files(name):
            raise VerificationError(f"column family {name} has no row left")
        if full:
            with Shadow(app / step.path) as original:
                if _digest_rows(original.rows(name)) != _digest_rows(shadow.rows(name)):
                    raise VerificationError(f"column family {name} has other rows than before")


def _converted(step: EditDatabase, app: Path, shadow: Shadow) -> None:
    """Every conversion is read on both sides: it is the only change that writes rows."""
    if not step.conversions:
        return
    with Shadow(app / step.path) as original:
        for conversion in step.conversions:
            wanted = _digest_rows(_expected_rows(original, conversion))
            if wanted != _digest_rows(shadow.rows(conversion.target)):
                raise VerificationError(f"column family {conversion.target} does not hold the converted rows")


def _expected_rows(original: Shadow, conversion: Conversion) -> Iterator[tuple[bytes, bytes]]:
    """What the target must hold: its own rows and the converted ones, which win where a key is in both."""
    strip = STRIP[conversion.layout]
    newer = ((key, 0, strip(value)[0]) for key, value in original.rows(conversion.source))
    older: Iterator[tuple[bytes, int, bytes]] = iter(())
    if conversion.target in original.column_families:
        older = ((key, 1, value) for key, value in original.rows(conversion.target))
    for key, group in groupby(heapq.merge(newer, older), key=lambda row: row[0]):
        yield key, next(group)[2]


def _digest_rows(rows: Iterator[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    digest = hashlib.blake2b()
    count = 0
    for key, value in rows:
        digest.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
        count += 1
    return count, digest.digest()
