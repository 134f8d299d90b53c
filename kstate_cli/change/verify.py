"""Prove that the staged stores hold the data of the originals, before the switch.

- Linked SSTs: the live files of each column family are the same inodes. This proof costs nothing per byte.
- Converted rows: both sides are read and compared.
- Rewritten SSTs: RocksDB has checked its own output and counted its input. Here the formats are checked, and that a
  family with rows still has some; with ``full`` every row is compared. Entries are not counted: compactions drop some.
"""

from __future__ import annotations

import hashlib
import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kstate_cli.change.edit import DatabaseStep, verify_database, verify_placed
from kstate_cli.change.plan import (
    BuildDatabase,
    Conversion,
    CreateDatabase,
    EditDatabase,
    MoveStore,
    PlaceDatabase,
    Plan,
)
from kstate_cli.formats import sst
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.layouts import STRIP
from kstate_cli.formats.offsets import OffsetsRecord, decode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.parallel import Workers
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import is_sst, unflushed_logs
from kstate_cli.rocks.shadow import LiveFile, Shadow


class VerificationError(RocksError):
    """A staged store differs from the plan."""


@dataclass(frozen=True, slots=True)
class _Check:
    """A step, and the directories that its result is compared with."""

    step: DatabaseStep | MoveStore
    app: Path
    staged: Path
    full: bool
    linked: bool
    is_placed: bool = False
    """The database is that of a snapshot: APP has no original to compare it with."""


def verify_staged(plan: Plan, staged: Path, workers: Workers, *, full: bool, linked: bool) -> None:
    """Check every database that the plan changes. Raise VerificationError or RocksError, which name it.

    A database with several steps is compared with the last one: :func:`verify_changed_later` has compared the others.
    """
    last = _last_steps(plan)
    checks = [
        _Check(step, plan.app, staged, full, linked, step.path in plan.placed)
        for step in (*last.values(), *(step for step in plan.steps if isinstance(step, MoveStore)))
    ]
    for _ in workers.map(_verify, checks):
        pass


def verify_changed_later(
    plan: Plan, steps: Sequence[DatabaseStep], staged: Path, workers: Workers, *, linked: bool
) -> None:
    """Check those of the steps just carried out whose databases a later step changes again. Raise as verify_staged.

    Only here do they have exactly the files that their step states.
    """
    last = _last_steps(plan)
    checks = [
        _Check(step, plan.app, staged, full=False, linked=linked, is_placed=step.path in plan.placed)
        for step in steps
        if last[step.path] is not step
    ]
    for _ in workers.map(_verify, checks):
        pass


def _last_steps(plan: Plan) -> Mapping[str, DatabaseStep]:
    """Return the step of each database that is carried out last, in the order of the engine's waves."""
    order = (PlaceDatabase, EditDatabase, CreateDatabase, BuildDatabase)
    return {step.path: step for kind in order for step in plan.steps if isinstance(step, kind)}


def _verify(check: _Check) -> None:
    step, path = check.step, check.staged / check.step.path
    if isinstance(step, BuildDatabase):
        verify_database(step, check.staged, full=check.full)
        return
    if isinstance(step, PlaceDatabase):
        try:
            verify_placed(step, check.staged, full=check.full)
        except MalformedBytesError as error:
            raise VerificationError(f"{step.path}: {error}") from None
        return
    if isinstance(step, MoveStore):
        _verify_moved(check, step)
        return
    try:
        logs = unflushed_logs(path)
        if logs:
            raise VerificationError(f"{', '.join(logs)} still holds rows, so the database was not flushed")
        with Shadow(path) as shadow:
            if isinstance(step, CreateDatabase):
                _same_offsets(shadow, step.offsets)
            else:
                _verify_edited(check, step, shadow)
    except (RocksError, MalformedBytesError) as error:
        raise VerificationError(f"{step.path}: {error}") from None


def _verify_edited(check: _Check, step: EditDatabase, shadow: Shadow) -> None:
    """Compare an edited database with its step and its original."""
    # One family too many or too few, and the target release does not open the database.
    if frozenset(shadow.column_families) != step.families_after:
        raise VerificationError(f"has the column families {', '.join(shadow.column_families)}")
    if step.offsets is not None:
        _same_offsets(shadow, step.offsets)
    changed = {c.source for c in step.conversions} | {c.target for c in step.conversions} | set(step.drop)
    unchanged = [name for name in step.before.data_families if name not in changed]
    old, new = check.app / step.path, check.staged / step.path
    if step.sst_format is not None:
        _formats(shadow, new, step.sst_format)
        _compare_rows(step, check.app, shadow, unchanged, full=check.full)
    else:
        # Inodes are compared, not contents: RocksDB never changes an SST, so equal inodes are equal
        # rows.
        for name in unchanged:
            if check.is_placed:
                # The copies were compared with their digests, and no other step may rewrite one.
                _same_names(name, step.before.live[name], shadow.live_files(name))
            else:
                _same_files(name, step.before.live[name], shadow.live_files(name), old, new, linked=check.linked)
    _converted(step, check.app, shadow)


def _verify_moved(check: _Check, step: MoveStore) -> None:
    """Check that every database opens in its new place, and that its column families have exactly the old files."""
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


def _same_offsets(shadow: Shadow, planned: OffsetsRecord) -> None:
    stored = decode_rows(shadow.rows(OFFSETS_CF))
    if (
        dict(stored.offsets) != dict(planned.offsets)
        or stored.status != planned.status
        or stored.position != planned.position
    ):
        raise VerificationError(f"column family offsets holds {stored}, not {planned}")


def _same_files(
    family: str, before: tuple[LiveFile, ...], after: tuple[LiveFile, ...], old: Path, new: Path, *, linked: bool
) -> None:
    _same_names(family, before, after)
    for file in before:
        original, clone = (old / file.name).stat(), (new / file.name).stat()
        if linked and (original.st_dev, original.st_ino) != (clone.st_dev, clone.st_ino):
            raise VerificationError(f"{file.name} is not the original file")
        if not linked and _digest_file(old / file.name) != _digest_file(new / file.name):
            raise VerificationError(f"{file.name} differs from the file that it was copied from")


def _same_names(family: str, before: tuple[LiveFile, ...], after: tuple[LiveFile, ...]) -> None:
    # The MANIFEST of the clone must name the same files: an edit elsewhere must not compact this family.
    if sorted(before, key=_name_of) != sorted(after, key=_name_of):
        raise VerificationError(f"column family {family} consists of other SSTs than before")


def _name_of(file: LiveFile) -> str:
    return file.name


def _digest_file(path: Path) -> bytes:
    digest = hashlib.blake2b()
    with open(path, "rb") as file:
        # 1 MiB: large enough for the disk, small beside the memory of a worker.
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.digest()


def _formats(shadow: Shadow, path: Path, newest: int) -> None:
    """Raise VerificationError for an SST whose format is newer than ``newest``."""
    for family in shadow.column_families:
        for file in shadow.live_files(family):
            if not is_sst(file.name):
                continue
            with open(path / file.name, "rb") as handle:
                # The last 53 bytes of an SST have its format_version, little-endian, before the magic
                # number.
                handle.seek(-sst.FOOTER_LENGTH, os.SEEK_END)
                footer = sst.footer(handle.read())
            if footer.format_version > newest:
                raise VerificationError(f"{file.name} still has format {footer.format_version}")


def _compare_rows(step: EditDatabase, app: Path, shadow: Shadow, families: list[str], *, full: bool) -> None:
    """Check that each family of a rewritten database that had rows still has SSTs, and with ``full`` the same rows.

    Entries are not counted: a compaction drops overwritten and deleted rows, so fewer entries prove nothing.
    """
    for name in families:
        # Without a sample the family was empty before, and may stay without files.
        if not step.before.samples.get(name):
            continue
        if not shadow.live_files(name):
            raise VerificationError(f"column family {name} has lost all rows")
        if full:
            with Shadow(app / step.path) as original:
                if _digest_rows(original.rows(name)) != _digest_rows(shadow.rows(name)):
                    raise VerificationError(f"column family {name} has other rows than before")


def _converted(step: EditDatabase, app: Path, shadow: Shadow) -> None:
    """Compare every converted row on both sides: a conversion is the only change that writes rows."""
    if not step.conversions:
        return
    with Shadow(app / step.path) as original:
        for conversion in step.conversions:
            expected = _digest_rows(_expected_rows(original, conversion))
            if expected != _digest_rows(shadow.rows(conversion.target)):
                raise VerificationError(f"column family {conversion.target} does not hold the converted rows")


def _expected_rows(original: Shadow, conversion: Conversion) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows that the target must have: its own and the converted ones, which win if a key is in both."""
    strip = STRIP[conversion.layout]
    # 0 sorts before 1: of equal keys the converted row comes first, and the group takes its first row.
    newer = ((key, 0, strip(value)[0]) for key, value in original.rows(conversion.source))
    older: Iterator[tuple[bytes, int, bytes]] = iter(())
    if conversion.target in original.column_families:
        older = ((key, 1, value) for key, value in original.rows(conversion.target))
    for key, group in groupby(heapq.merge(newer, older), key=lambda row: row[0]):
        yield key, next(group)[2]


def _digest_rows(rows: Iterator[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Return the number and the digest of rows. Lengths are digested too: no byte can move between key and value."""
    digest = hashlib.blake2b()
    count = 0
    for key, value in rows:
        digest.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
        count += 1
    return count, digest.digest()
