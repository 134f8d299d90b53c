"""Prove that the staged stores hold the data of the originals, before the switch.

- Linked SSTs: the live files of each column family are the same inodes in both trees. This needs no reading.
- Converted rows: the rows of both sides are read and compared.
- Rewritten SSTs: RocksDB has checked its output and counted its input. Here kstate checks the format of each SST, and
  that a family with rows still has some. With ``full`` every row is compared. The number of entries proves nothing,
because a compaction drops entries.
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
    """Compare every database that the plan changes with its step. Raise VerificationError or RocksError, which name it.

    A database with several steps is compared with the last one. :func:`verify_changed_later` has compared the others.
    ``full`` reads every row; ``linked`` states that SSTs are hard links to those of APP, and not copies.
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
    """Verify the databases of ``steps`` that a later step of the plan changes again. Raise as :func:`verify_staged`.

    This is the only moment at which they have exactly the files that these steps state.
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
    """Return, for each database, its last step, by the order in which the engine runs the kinds of steps."""
    order = (PlaceDatabase, EditDatabase, CreateDatabase, BuildDatabase)
    return {step.path: step for kind in order for step in plan.steps if isinstance(step, kind)}


def _verify(check: _Check) -> None:
    """Compare one database, or the databases of a moved store, with its step.

    Raise VerificationError and RocksError.
    """
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
            raise VerificationError(
                f"the write-ahead log {', '.join(logs)} still contains rows, so RocksDB did not flush the database"
            )
        with Shadow(path) as shadow:
            if isinstance(step, CreateDatabase):
                _same_offsets(shadow, step.offsets)
            else:
                _verify_edited(check, step, shadow)
    except (RocksError, MalformedBytesError) as error:
        raise VerificationError(f"{step.path}: {error}") from None


def _verify_edited(check: _Check, step: EditDatabase, shadow: Shadow) -> None:
    """Compare an edited database with its step and its original."""
    # The target release does not open a database with a column family too many or too few.
    if frozenset(shadow.column_families) != step.families_after:
        raise VerificationError(
            f"the column families of the database differ from the plan: {', '.join(shadow.column_families)}"
        )
    if step.offsets is not None:
        _same_offsets(shadow, step.offsets)
    changed = {c.source for c in step.conversions} | {c.target for c in step.conversions} | set(step.drop)
    unchanged = [name for name in step.before.data_families if name not in changed]
    old, new = check.app / step.path, check.staged / step.path
    if step.sst_format is not None:
        _formats(shadow, new, step.sst_format)
        _compare_rows(step, check.app, shadow, unchanged, full=check.full)
    else:
        # Inodes are compared, not contents. RocksDB never changes an SST, so the same inode has the same rows.
        for name in unchanged:
            if check.is_placed:
                # The database comes from a snapshot. Its files were compared with their digests when they were copied,
                # so here only their names and sizes are compared with the step: no other step may have rewritten one.
                _same_names(name, step.before.live[name], shadow.live_files(name))
            else:
                _same_files(name, step.before.live[name], shadow.live_files(name), old, new, linked=check.linked)
    _converted(step, check.app, shadow)


def _verify_moved(check: _Check, step: MoveStore) -> None:
    """Check that every database of a moved store opens in its new place, with the same column families and files."""
    for before in step.databases:
        below = before.path.relative_to(check.app / step.source)
        path = check.staged / step.path / below
        try:
            with Shadow(path) as shadow:
                if frozenset(shadow.column_families) != frozenset(before.column_families):
                    raise VerificationError(
                        f"the column families of the database differ from the plan: {', '.join(shadow.column_families)}"
                    )
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
        raise VerificationError(f'the column family "offsets" contains {stored} instead of {planned}')


def _same_files(
    family: str, before: tuple[LiveFile, ...], after: tuple[LiveFile, ...], old: Path, new: Path, *, linked: bool
) -> None:
    _same_names(family, before, after)
    for file in before:
        original, clone = (old / file.name).stat(), (new / file.name).stat()
        if linked and (original.st_dev, original.st_ino) != (clone.st_dev, clone.st_ino):
            raise VerificationError(f"{file.name} is not a link to the original file")
        if not linked and _digest_file(old / file.name) != _digest_file(new / file.name):
            raise VerificationError(f"{file.name} differs from the original file")


def _same_names(family: str, before: tuple[LiveFile, ...], after: tuple[LiveFile, ...]) -> None:
    # The MANIFEST of the clone must name the same files. Other ones would mean that RocksDB has compacted this family
    # while a step changed another one.
    if sorted(before, key=_name_of) != sorted(after, key=_name_of):
        raise VerificationError(f"the SSTs of the column family {family} have changed")


def _name_of(file: LiveFile) -> str:
    return file.name


def _digest_file(path: Path) -> bytes:
    digest = hashlib.blake2b()
    with open(path, "rb") as file:
        # Chunks of 1 MiB are large enough for the disk, and small compared with the memory of a worker.
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
                # The footer, the last 53 bytes of an SST, has the format_version, little-endian, before the magic
                # number.
                handle.seek(-sst.FOOTER_LENGTH, os.SEEK_END)
                footer = sst.footer(handle.read())
            if footer.format_version > newest:
                raise VerificationError(f"{file.name} still has format {footer.format_version}")


def _compare_rows(step: EditDatabase, app: Path, shadow: Shadow, families: list[str], *, full: bool) -> None:
    """Check that each family of a rewritten database that had rows still has SSTs, and with ``full`` the same rows.

    The number of entries is not compared: a compaction drops overwritten and deleted rows, so a lower one proves
    nothing.
    """
    for name in families:
        # A family without a sampled row was empty before, so it may have no files now.
        if not step.before.samples.get(name):
            continue
        if not shadow.live_files(name):
            raise VerificationError(f"the column family {name} has lost all rows")
        if full:
            with Shadow(app / step.path) as original:
                if _digest_rows(original.rows(name)) != _digest_rows(shadow.rows(name)):
                    raise VerificationError(f"the rows of the column family {name} have changed")


def _converted(step: EditDatabase, app: Path, shadow: Shadow) -> None:
    """Compare every converted row with its original: a conversion is the only step of a migration that writes rows."""
    if not step.conversions:
        return
    with Shadow(app / step.path) as original:
        for conversion in step.conversions:
            expected = _digest_rows(_expected_rows(original, conversion))
            if expected != _digest_rows(shadow.rows(conversion.target)):
                raise VerificationError(f"the column family {conversion.target} does not contain the converted rows")


def _expected_rows(original: Shadow, conversion: Conversion) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows that the target of a conversion must have: its own and the converted ones.

    If a key is in both, the converted row wins.
    """
    strip = STRIP[conversion.layout]
    # Rows are merged by key, then by this number. So of equal keys the converted row (0) comes first, and is the one
    # taken.
    newer = ((key, 0, strip(value)[0]) for key, value in original.rows(conversion.source))
    older: Iterator[tuple[bytes, int, bytes]] = iter(())
    if conversion.target in original.column_families:
        older = ((key, 1, value) for key, value in original.rows(conversion.target))
    for key, group in groupby(heapq.merge(newer, older), key=lambda row: row[0]):
        yield key, next(group)[2]


def _digest_rows(rows: Iterator[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Return the number of rows and their digest.

    The digest includes the length of each key and value. Otherwise bytes could move from a key to its value unnoticed.
    """
    digest = hashlib.blake2b()
    count = 0
    for key, value in rows:
        digest.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
        count += 1
    return count, digest.digest()
