"""Kafka Streams releases as data: what each writes, what it reads, what it cannot read.

A new release is one row in ``RELEASES``; what was run against the real releases is in ``PROVEN``.
Sources: the rocksdbjni version in each release's pom, and the writer/reader matrix of RocksDB versions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from os import PathLike
from typing import Final

from kstate_cli import option
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.store_kinds import OFFSETS_CF, headers_families, row_families, store_kind
from kstate_cli.patch_releases import PatchDifference, behaviour, decides, is_new
from kstate_cli.texts import did_you_mean, hint_with_suggestion


class OffsetsHome(Enum):
    """Where a release keeps changelog offsets and Positions."""

    FILES = "files"
    """``.checkpoint`` and ``<store>.position`` beside the stores (``OffsetCheckpoint``)."""
    COLUMN_FAMILY = "column-family"
    """The ``offsets`` column family in each RocksDB (KIP-1035)."""


@dataclass(frozen=True, slots=True)
class Release:
    """One minor release of Kafka Streams."""

    name: str
    rocksdb: tuple[str, ...]
    """Versions of rocksdbjni that patch releases of this minor release ship."""
    reads_sst_format: int
    """The highest SST ``format_version`` that its RocksDB reads."""
    offsets_home: OffsetsHome
    unproven: bool = False
    """The row is from public changes alone: the release was never started (``scripts/prove-release.sh`` does)."""
    transactional: bool = False
    """It has stores whose rows, offsets and Position are one batch at each commit (KIP-892), where they are turned on.

    Such a store never writes ``status``, and still reads it.
    """
    patch: int | None = field(default=None, compare=False)
    """2 of 4.2.2, where the user names the patch release. No part of the row: 4.2.1 and 4.2.2 are equal."""

    @property
    def number(self) -> tuple[int, int]:
        """``(4, 3)`` for ``4.3``: what releases are ordered by."""
        return _number(self.name)

    @property
    def version(self) -> str:
        """The release as options and messages name it: ``4.2.2`` where the next start depends on the patch release."""
        # The patch release is repeated in commands only where it matters: 4.2 and 4.2.1 are the same start otherwise.
        if self.patch is None or not decides(self.name):
            return self.name
        return f"{self.name}.{self.patch}"

    def is_new(self, difference: PatchDifference) -> bool | None:
        """Return whether it behaves the new way; None if the patch release decides and is not named."""
        return is_new(difference, self.name, self.patch)

    @property
    def behaviour(self) -> tuple[bool | None, ...]:
        """What its next start depends on, difference by difference: equal for patch releases that are alike."""
        return behaviour(self.name, self.patch)

    def __str__(self) -> str:
        return self.name


def _number(name: str) -> tuple[int, int]:
    major, minor = name.split(".")[:2]
    return int(major), int(minor)


_FILES, _COLUMN_FAMILY = OffsetsHome.FILES, OffsetsHome.COLUMN_FAMILY

RELEASES: tuple[Release, ...] = (
    Release("3.2", ("6.29.4.1",), 5, _FILES),
    Release("3.3", ("7.1.2",), 5, _FILES),
    Release("3.4", ("7.1.2",), 5, _FILES),
    Release("3.5", ("7.9.2",), 5, _FILES),
    Release("3.6", ("7.9.2",), 5, _FILES),
    Release("3.7", ("7.9.2",), 5, _FILES),
    Release("3.8", ("7.9.2",), 5, _FILES),
    Release("3.9", ("7.9.2",), 5, _FILES),
    Release("4.0", ("9.7.3",), 6, _FILES),
    Release("4.1", ("9.7.3",), 6, _FILES),
    Release("4.2", ("10.1.3",), 6, _FILES),
    Release("4.3", ("10.1.3",), 6, _COLUMN_FAMILY),
    Release("4.4", ("10.1.3",), 6, _COLUMN_FAMILY, transactional=True),
    Release("4.5", ("10.10.1",), 7, _COLUMN_FAMILY, unproven=True, transactional=True),
)

_PROVEN: Final = {
    "3.2": "3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0 4.1 4.2 4.3 4.4",
    "3.3": "3.2 3.4 3.5 3.6 3.7 3.8 3.9 4.0 4.1 4.2 4.3 4.4",
    "3.4": "3.2 3.3 3.5 3.6 3.7 3.8 3.9 4.0 4.1 4.2 4.3 4.4",
    "3.5": "3.2 3.3 3.4 3.6 3.7 3.8 3.9 4.0 4.1 4.2 4.3 4.4",
    "3.6": "3.2 3.3 3.4 3.5 3.7 3.8 3.9 4.0 4.1 4.2 4.3 4.4",
    "3.7": "3.2 3.3 3.4 3.5 3.6 3.8 3.9 4.0 4.1 4.2 4.3 4.4",
    "3.8": "3.2 3.3 3.4 3.5 3.6 3.7 3.9 4.0 4.1 4.2 4.3 4.4",
    "3.9": "3.2 3.3 3.4 3.5 3.6 3.7 3.8 4.0 4.1 4.2 4.3 4.4",
    "4.0": "3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.1 4.2 4.3 4.4",
    "4.1": "3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0 4.2 4.3 4.4",
    "4.2": "3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0 4.1 4.3 4.4",
    "4.3": "3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0 4.1 4.2 4.4",
    "4.4": "3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0 4.1 4.2 4.3",
}  # as `python -m tests.interop.proving` says it
PROVEN: Final = frozenset((source, target) for source, targets in _PROVEN.items() for target in targets.split())
"""(from, to) pairs that were run with the real releases; the record of them is tests/interop/pairs.jsonl."""

SUBSCRIPTION_VERSION_SINCE: dict[int, str] = {1: "3.3"}
"""Versions of the foreign-key join's ``SubscriptionWrapper`` that not every release reads."""

CONFLUENT: Final = {
    **{f"7.{minor}": f"3.{minor}" for minor in range(10)},
    **{f"8.{minor}": f"4.{minor}" for minor in range(5)},
}
"""Releases of Confluent Platform, and the release of Apache Kafka in each (Confluent's table of versions, its upgrade
guides for Streams: "Confluent Platform 8.3.0 (Kafka Streams 4.3.0)", "8.4.1 (Kafka Streams 4.4.0)")."""
# ``7.9``, ``v7.9.1``, ``7.9.1-0-ccs``: tags of images, versions of packages, and versions in jars.
_CONFLUENT_NUMBER: Final = re.compile(
    r"v?([0-9]+\.[0-9]+)(?:\.(?:[0-9]+|x))?(?:(?:-[0-9]+)?-(?:ccs|ce))?(?:-SNAPSHOT)?"
)
_CONFLUENT_BUILD: Final = re.compile(r".*-(?:ccs|ce)(?:-SNAPSHOT)?")
CONFLUENT_NAME: Final = "cp-"
"""Begins a release of Confluent Platform where no number alone says whose it is: ``cp-7.6``."""

OLD_SST_FORMAT = 5
"""The SST format that every release of ``RELEASES`` reads."""
NEWEST_SST_FORMAT = max(row.reads_sst_format for row in RELEASES if not row.unproven)
"""The newest that a release has written which was run."""


_BUILD: Final = re.compile(r"v?([0-9]+\.[0-9]+)(?:\.([0-9]+|x))?(?:[.+_-]([A-Za-z0-9][A-Za-z0-9.+_-]*))?")
"""A version as builds of Kafka name it: ``4.2.1``, ``3.9.x``, ``3.7.0.redhat-00007``, ``3.4.1.7.3.1.0-197``,
``3.6.0.1``, ``2.8.2-tiered``, ``4.3.1-rc1``."""
# Builds from before X.Y.0: their formats may still have changed until the release.
_BEFORE_RELEASE: Final = re.compile(
    r"(?:.*[.-])?(?:SNAPSHOT|rc-?[0-9]*|alpha-?[0-9]*|beta-?[0-9]*|EA|preview)", re.IGNORECASE
)


def release(text: str, option_name: str | None = None) -> Release:
    """Return the release that ``text`` names: ``4.2``, ``4.2.1`` with its patch, Confluent's ``cp-8.2``, or a build.

    A build has a version of Apache Kafka and a suffix of its vendor: ``3.7.0.redhat-00007``. It has no patch release,
    since a vendor may have taken over changes of later ones. Raise UsageError for anything else: for a number that
    only Confluent Platform has, and for builds that were made before X.Y.0 was released. ``option_name``: the option
    that names a release, for the hint.
    """
    name = text.strip()
    if name.startswith(CONFLUENT_NAME):
        return _in_confluent(text, name.removeprefix(CONFLUENT_NAME))
    rows = {row.name: row for row in RELEASES}
    build = _BUILD.fullmatch(name)
    row = None
    if build is not None:
        row = rows.get(build[1])
    if build is not None and row is not None and _CONFLUENT_BUILD.fullmatch(name) is None:
        patch, suffix = build[2], build[3]
        if suffix is None:
            return row if patch in (None, "x") else replace(row, patch=int(patch))
        # A snapshot of X.Y.1 was built after X.Y.0 was released, so it counts as that release.
        if _BEFORE_RELEASE.fullmatch(suffix) is None or (patch or "0") != "0":
            return row
        instruction = f", pass {option_name} {row}" if option_name else f", pass {row}"
        raise UsageError(
            f"release {text!r} was built before the release of {row}.0, so kstate does not know its formats",
            hint=f"if the release behaves like {row}{instruction}",
        )
    choices = f"known releases: {', '.join(rows)}, and their patch releases"
    apache = confluent(text)
    if apache is not None:
        # Refused although it is understood: 7.6 might as well be a release of Kafka to come.
        message = f"release {text!r} belongs to Confluent Platform and contains Apache Kafka {apache}"
        hint = f"kstate does not know that release. {choices}"
        if apache in rows:
            hint = f"pass {apache}"
        raise UsageError(message, hint=hint)
    raise UsageError(
        f"kstate does not know release {text!r}",
        hint=hint_with_suggestion(did_you_mean([text.strip()], rows), choices),
    )


def build_note(text: str) -> str | None:
    """Return what to tell the user about a version with a suffix of its vendor; None for releases of Apache Kafka.

    ``text``: a version that :func:`release` takes.
    """
    name = text.strip()
    build = _BUILD.fullmatch(name)
    if build is None or build[3] is None or _CONFLUENT_BUILD.fullmatch(name) is not None:
        return None
    return (
        f"{name} is a vendor's build or an unreleased version. kstate treats it as Apache Kafka {build[1]} and does "
        "not know what was changed"
    )


def _in_confluent(text: str, number: str) -> Release:
    apache = confluent(number)
    rows = {row.name: row for row in RELEASES}
    if apache in rows:
        return rows[apache]
    choices = ", ".join(f"{CONFLUENT_NAME}{name}" for name, kafka in CONFLUENT.items() if kafka in rows)
    raise UsageError(
        f"kstate does not know release {text!r}" + (f": it has Apache Kafka {apache}" if apache else ""),
        hint=f"known releases of Confluent Platform: {choices}",
    )


def release_of_build(version: str) -> str:
    """Return a jar's version as :func:`release` takes it: Confluent's builds end in ``-ccs`` and ``-ce``."""
    if _CONFLUENT_BUILD.fullmatch(version):
        return f"{CONFLUENT_NAME}{version}"
    return version


def confluent(text: str) -> str | None:
    """Return the Apache release in a release of Confluent Platform: 3.9 for ``7.9``, ``7.9.1``, ``7.9.1-ccs``."""
    number = _CONFLUENT_NUMBER.fullmatch(text.strip())
    if number is None:
        return None
    return CONFLUENT.get(number[1])


def readable_by(kind: str, target: Release) -> bool:
    """Return True if ``target`` has stores of this kind. ValueError for an unknown kind."""
    return _is_from(store_kind(kind).first_release, target)


def knows_headers(target: Release) -> bool:
    """Return True if ``target`` has stores with record headers (KIP-1271)."""
    return any(_is_from(row_families()[name], target) for name in headers_families())


def _is_from(first: str | None, target: Release) -> bool:
    return first is None or target.number >= _number(first)


def opens(target: Release, *, kinds: frozenset[str], families: frozenset[str], sst_formats: frozenset[int]) -> bool:
    """Return True if ``target`` opens an unchanged database of these column families and SST formats."""
    if sst_formats and max(sst_formats) > target.reads_sst_format:
        return False
    if not all(readable_by(kind, target) for kind in kinds):
        return False
    # RocksDB opens a database only if the caller names all of its families, and releases up to 4.2 do not know this
    # one.
    if OFFSETS_CF in families and target.offsets_home is not OffsetsHome.COLUMN_FAMILY:
        return False
    first_releases = row_families()
    return all(name in first_releases and _is_from(first_releases[name], target) for name in families - {OFFSETS_CF})


def opens_in(*, kinds: frozenset[str], families: frozenset[str], sst_formats: frozenset[int]) -> tuple[str, ...]:
    """Return the names of the releases that open such a database; unproven ones only if no other does."""
    opening = [row for row in RELEASES if opens(row, kinds=kinds, families=families, sst_formats=sst_formats)]
    return tuple(row.name for row in prefer_proven(opening))


def prefer_proven(alike: Sequence[Release]) -> Sequence[Release]:
    """Return those of several releases that were run; all if none was. So an added row never replaces a proven one."""
    # An empty list is falsy: where no release was run, all of them stay.
    return [row for row in alike if not row.unproven] or alike


def written_by(rocksdb_version: str | None, families: frozenset[str]) -> tuple[Release, ...]:
    """Return the releases that may have opened a database last, by the RocksDB that wrote its OPTIONS."""
    has_offsets = OFFSETS_CF in families
    # Without such a release only the layout counts.
    shipped = is_shipped(rocksdb_version)
    releases: list[Release] = []
    for candidate in RELEASES:
        if (candidate.offsets_home is OffsetsHome.COLUMN_FAMILY) != has_offsets:
            continue
        if not shipped or any(_same_version(rocksdb_version or "", v) for v in candidate.rocksdb):
            releases.append(candidate)
    return tuple(releases)


def is_shipped(rocksdb_version: str | None) -> bool:
    """Return whether a release has that RocksDB: OPTIONS that kstate itself, or ldb, wrote name another one."""
    return any(_same_version(rocksdb_version or "", v) for candidate in RELEASES for v in candidate.rocksdb)


def unproven_too(name: str) -> tuple[str, ...]:
    """Return the option that a command needs to write for an unproven release; nothing for any other."""
    if any(row.unproven and row.name == name for row in RELEASES):
        return (option.UNPROVEN,)
    return ()


def unproven_release(target: Release, where: PathLike[str], line: str) -> Refused:
    """Return the refusal to write for an unproven release; ``line`` is the command that does it."""
    return Refused(
        f"{target} is unproven, because no test has started this release with files that kstate wrote. kstate "
        "follows only the published changes",
        where=str(where),
        hint=f"to try it on a copy of the directory: {line}",
    )


def representative(alike: Sequence[Release]) -> Release:
    """Return one of several releases that a directory does not distinguish: all of them read what it writes.

    Of releases that keep offsets in the stores it is the oldest, because more of them will follow. Releases that keep
    them in files are complete, and SST formats distinguish them already: of those it is the newest.
    """
    oldest, *_ = ordered = sorted(alike, key=lambda row: row.number)
    if oldest.offsets_home is OffsetsHome.COLUMN_FAMILY:
        return oldest
    return ordered[-1]


def _same_version(stored: str, shipped: str) -> bool:
    """Compare three numbers: OPTIONS files name ``6.29.4`` where rocksdbjni may have ``6.29.4.1``."""
    return shipped.split(".")[:3] == stored.split(".")[:3]


def proven(sources: tuple[str, ...], target: Release) -> bool:
    """Return True if the interop tests run a pair of one of ``sources`` and ``target``."""
    return any((source, target.name) in PROVEN for source in sources)
