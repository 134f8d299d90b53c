"""RocksDB's files beside tables and blobs: OPTIONS, and MANIFEST.

*OPTIONS-<number>*: what a database was last opened with. Text, UTF-8: sections ``[Version]``, ``[DBOptions]``, then
``[CFOptions "<name>"]`` and ``[TableOptions/<factory> "<name>"]`` per column family; lines ``name=value``; ``#`` begins
a comment unless a backslash precedes it. RocksDB leaves out ``wal_dir`` while it is the directory of the database, and
never writes the list of database paths.

*MANIFEST-<number>*: a log of records in blocks of 32 KiB. Each record is a ``VersionEdit``. A record begins with a
masked CRC32C, a length of two bytes and a type. An edit is a sequence of tags and their fields: varints, low 7-bit
group first, and byte strings behind a varint of their length.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.binary import MalformedBytesError

_SECTION: Final = re.compile(r"\[([A-Za-z]+)(?:/([A-Za-z0-9_.]*))?(?:\s+\"(.*)\")?\]")
_COMMENT: Final = re.compile(r"(?<!\\)#.*")
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "r": "\r"}
_COMPARATOR: Final = "leveldb.BytewiseComparator"
_TABLE_FACTORY: Final = "BlockBasedTable"
_UNSET: Final = frozenset({"", "nullptr", "{}"})
_DEFAULT_ENV: Final = re.compile(r"(?:DefaultEnv|PosixEnv|Default|Posix)")
_ENV_ID: Final = re.compile(r"\{?\s*id=([^;}]*)")


@dataclass(frozen=True, slots=True)
class StoredOptions:
    """The options as text; ``column_families`` and ``tables`` are keyed by column family name."""

    rocksdb_version: str
    db: Mapping[str, str]
    column_families: Mapping[str, Mapping[str, str]]
    tables: Mapping[str, Mapping[str, str]]


def parse(data: bytes | str) -> StoredOptions:
    """Read the text of a whole OPTIONS file, as bytes or decoded.

    Raises :class:`MalformedBytesError` (RocksDB answers ``Corruption`` or ``InvalidArgument``, in Java a
    ``RocksDBException``) for text that is not UTF-8, a line outside of a section or without ``=``, an unknown or
    repeated section, a repeated option, and if the version, the database options or the column family ``default`` are
    missing: a truncated file is refused, not half read.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"the file is not UTF-8 at byte {error.start}") from None
    sections = _sections(text)
    version = sections.get(("Version", ""), {}).get("rocksdb_version")
    if version is None:
        raise _malformed("rocksdb_version is missing")
    db = sections.get(("DBOptions", ""))
    if db is None:
        raise _malformed("the section [DBOptions] is missing")
    families = {name: options for (kind, name), options in sections.items() if kind == "CFOptions"}
    if "default" not in families:
        raise _malformed('the section [CFOptions "default"] is missing')
    tables = {name: options for (kind, name), options in sections.items() if kind == "TableOptions"}
    return StoredOptions(version, db, families, tables)


def _sections(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return the options of each section, by the section's kind and name. Raises as :func:`parse`."""
    sections: dict[tuple[str, str], dict[str, str]] = {}
    current: dict[str, str] | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        # First the comment is cut, then the blanks, as RocksDB's own parser does (``OptionsParser``).
        line = _without_comment(raw).strip()
        if not line:
            continue
        if line.startswith("["):
            section = _section(line, number)
            # Of two equal sections the later one would win here, and kstate would restore wrong values.
            if section in sections:
                raise _malformed(f"line {number} repeats the section {line}")
            current = sections[section] = {}
            continue
        name, equals, value = line.partition("=")
        name, value = name.rstrip(), value.lstrip()
        # A line without ``=`` was cut off within its name: half a file is refused.
        if current is None or not equals or not name:
            raise _malformed(f"line {number} is neither a section nor an option: {line[:80]!r}")
        # RocksDB would take the first of these values (``OptionsParser``), and the line below the last one.
        if name in current:
            raise _malformed(f"line {number} repeats the option {name[:80]!r} of its section")
        if "\\" in value:
            value = _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), value)
        current[name] = value
    return sections


def _without_comment(line: str) -> str:
    # Nearly no line has a comment, and every store has hundreds of lines.
    if "#" not in line:
        return line
    return _COMMENT.sub("", line)


def foreign_settings(stored: StoredOptions, db_path: str = "") -> tuple[str, ...]:
    """Return why a database is more than its directory of rows in bytewise order, one sentence each; empty if not.

    Reported: a WAL outside ``db_path`` (the directory of the database, absolute), additional paths, another comparator
    (rows would be sorted wrongly), a merge operator (rows would be partial), another table format, and an environment
    that is not the default one (encryption). Without ``db_path`` every ``wal_dir`` that is set counts as outside.
    """
    reasons: list[str] = []
    wal_dir = stored.db.get("wal_dir", "")
    # The log is elsewhere: a copy of the directory would lack the newest rows, and kstate would write to that other
    # place if it opened the copy for writing.
    if wal_dir not in _UNSET and not (db_path and _same_path(wal_dir, db_path)):
        reasons.append(f"wal_dir is {wal_dir}, so the write-ahead log is outside the database directory")
    db_paths = stored.db.get("db_paths", "")
    if db_paths not in _UNSET and not _same_path(db_paths, db_path):
        reasons.append(f"db_paths is {db_paths}, so SSTs are outside the database directory")
    env = stored.db.get("env", "")
    if env not in _UNSET and not _is_default_env(env):
        reasons.append(f"env is {env}, which is not the default environment")
    for name, options in stored.column_families.items():
        cf_paths = options.get("cf_paths", "")
        if cf_paths not in _UNSET and not _same_path(cf_paths, db_path):
            reasons.append(f"cf_paths of column family {name} is {cf_paths}, outside the database directory")
        # Rows in another order would be merged and searched wrongly, without an error.
        comparator = options.get("comparator", _COMPARATOR)
        if comparator != _COMPARATOR:
            reasons.append(f"the comparator of column family {name} is {comparator}, not {_COMPARATOR}")
        merge_operator = options.get("merge_operator", "")
        # With a merge operator a value may be a chain of operands that only the application can combine.
        if merge_operator not in _UNSET:
            reasons.append(f"the merge_operator of column family {name} is {merge_operator}")
        factory = options.get("table_factory", _TABLE_FACTORY)
        if factory != _TABLE_FACTORY:
            reasons.append(f"the table_factory of column family {name} is {factory}, not {_TABLE_FACTORY}")
    return tuple(reasons)


def restore_settings(before: str, after: str, keep_new: frozenset[str]) -> str:
    """Return the text ``after`` with the values that ``before`` has for the same keys of the same sections.

    Values are copied as they are spelled. Keys in ``keep_new``, the section ``[Version]``, and sections and keys that
    only ``after`` has keep their values; nothing is added. :class:`MalformedBytesError` if one of the texts is not that
    of a whole OPTIONS file (see :func:`parse`).
    """
    # Both texts are checked as a whole first: a truncated ``before`` would give back only some of its settings.
    parse(before)
    parse(after)
    old = {(section, name): value for _, section, name, value in _assignments(before) if name}
    out: list[str] = []
    for line, section, name, value in _assignments(after):
        restored = old.get((section, name), value)
        # ``[Version]`` names the RocksDB that wrote ``after``, and must stay with the format of that text.
        if not name or section == "[Version]" or name in keep_new or restored == value:
            out.append(line)
        else:
            indent = line[: len(line) - len(line.lstrip())]
            out.append(f"{indent}{name}={restored}" + ("\r" if line.endswith("\r") else ""))
    return "\n".join(out)


def with_settings(
    text: str,
    database: Mapping[str, str],
    families: Mapping[str, str],
    replaced: Mapping[str, Mapping[str, str]],
) -> str:
    """Return ``text`` with other values for keys of ``[DBOptions]`` and of every ``[CFOptions …]``.

    ``database`` and ``families`` have the new value by key. ``replaced`` has, by key of a column family, a new value
    for each of some old ones, and goes before ``families``. Keys that the text lacks are not added.
    :class:`MalformedBytesError` if it is not the text of a whole OPTIONS file (see :func:`parse`).
    """
    parse(text)
    out: list[str] = []
    for line, section, name, value in _assignments(text):
        new = value
        if section == "[DBOptions]":
            new = database.get(name, value)
        elif section.startswith("[CFOptions "):
            # ``replaced`` changes only certain old values, those that RocksDB could not work with here.
            new = replaced.get(name, {}).get(value, families.get(name, value))
        out.append(line if new == value else f"  {name}={new}")
    return "\n".join(out)


def _assignments(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield each line of a valid text: itself, its section, and the name (or ``""``) and value that it sets."""
    section = ""
    for raw in text.split("\n"):
        line = _without_comment(raw).strip()
        if line.startswith("["):
            section = line
            yield raw, section, "", ""
            continue
        name, _, value = line.partition("=")
        yield raw, section, name.rstrip(), value.lstrip()


def _section(line: str, number: int) -> tuple[str, str]:
    match = _SECTION.fullmatch(line)
    if match is None or (kind := match[1]) not in {"Version", "DBOptions", "CFOptions", "TableOptions"}:
        raise _malformed(f"line {number} begins the unknown section {line[:80]!r}")
    has_name = kind in {"CFOptions", "TableOptions"}
    # A name where none belongs, or none where one does: the section of another file, or a line that was cut.
    if has_name != (match[3] is not None) or (kind == "TableOptions") != (match[2] is not None):
        raise _malformed(f"line {number} begins a section with an incomplete name: {line[:80]!r}")
    return kind, match[3] or ""


def _same_path(path: str, other: str) -> bool:
    return bool(other) and posixpath.normpath(path) == posixpath.normpath(other)


def _is_default_env(env: str) -> bool:
    # Releases write a name alone, or ``{id=Name;…}``.
    if match := _ENV_ID.match(env):
        env = match[1]
    return _DEFAULT_ENV.fullmatch(env.strip()) is not None


def _malformed(problem: str) -> MalformedBytesError:
    return MalformedBytesError(f"OPTIONS file: {problem}", "RocksDBException")


_BLOCK: Final = 32 * 1024
_HEADER: Final = 7
_RECYCLABLE_HEADER: Final = 11
_RECYCLABLE: Final = range(5, 9)
_FULL: Final = 1
_FIRST: Final = 2
_LAST: Final = 4

_PATH_ID: Final = re.compile(rb"\x41\x01[\x01-\x03]")
"""The custom field of a new SST that has a path id above 0: its tag, its length, its value."""
_NUMBERS: Final = frozenset({2, 3, 4, 9, 10, 203, 300})
"""Tags followed by one number: logs, the next file, the last sequence number, the rest of an atomic group."""
_COMPARATOR_TAG: Final = 1
_COMPACT_CURSOR: Final = 5
_DELETED: Final = 6
_NEW: Final = 103
_FAMILY, _FAMILY_ADDED, _FAMILY_DROPPED = 200, 201, 202
_BLOB_ADDED, _BLOB_GARBAGE = 400, 401
_BLOB_NUMBERS: Final = 3
_IGNORABLE: Final = 1 << 13
"""Tags with this bit are followed by a byte string that a reader may skip."""
_NEW_END, _NEW_PATH = 1, 65
_MORE: Final = 0x80
_MOST_BITS: Final = 70


def torn(data: bytes) -> str | None:
    """Return what is missing at the end of a MANIFEST; None if its last record is whole.

    RocksDB takes a MANIFEST that is cut off for a shorter one, and silently opens an older state of the database. The
    checksums of the records are left to RocksDB.
    """
    at, within = 0, False
    while at < len(data):
        rest = _BLOCK - at % _BLOCK
        if rest < _HEADER:
            at += rest  # RocksDB pads a block that has no space for another header
            continue
        kind = 0
        if at + 6 < len(data):
            kind = data[at + 6]
        size = int.from_bytes(data[at + 4 : at + 6], "little")
        if kind == 0 and not any(data[at:]):
            break  # space that RocksDB has reserved
        # The header of a recyclable type also has the number of the log, 4 bytes.
        end = at + (_RECYCLABLE_HEADER if kind in _RECYCLABLE else _HEADER) + size
        if end > len(data):
            return f"the file ends {end - len(data)} bytes before the end of its last record"
        # A record may be split at the ends of blocks. Its parts have the types full, first, middle and last; the
        # recyclable types, for log files that are used again, are the same four.
        piece = kind - _RECYCLABLE[0] + 1 if kind in _RECYCLABLE else kind
        within = piece not in (_FULL, _LAST)
        at = end
    if within:
        return "the file ends within a record"
    if not data:
        return "the file is empty"
    return None


def whole_records(data: bytes) -> bytes:
    """Return a MANIFEST up to the end of its last whole record: a process may be writing the next one."""
    # A record of several pieces counts once its last piece is complete.
    return data[: max((end for piece, _, end in _pieces(data) if piece in (_FULL, _LAST)), default=0)]


def families_with_tables(data: bytes) -> Mapping[int, str]:
    """Return id and name of each column family that has, or had, an SST since the MANIFEST was begun.

    RocksDB begins a MANIFEST at each open, with the files of that moment. If a compaction has since removed all SSTs of
    a family, the family is still in this result, but not in that of :func:`live_tables`. Raises MalformedBytesError as
    that function does.
    """
    names = {0: "default"}
    filled: set[int] = set()
    for record in _records(data):
        edit = _VersionEdit(record)
        edit.read()
        if edit.name is not None:
            names[edit.family] = edit.name
        if edit.added:
            filled.add(edit.family)
    return {family: names.get(family, "") for family in sorted(filled)}


def live_tables(data: bytes) -> Mapping[int, Mapping[int, int]]:
    """Return the path id of each SST that a MANIFEST names in the end, by column family and number of the SST.

    A path id counts the folders of ``cf_paths`` or ``db_paths``. RocksDB has one folder where an application sets
    neither, and every path id is 0. :class:`MalformedBytesError` for an edit that is not understood here, such as one
    of RocksDB before 5.
    """
    families: dict[int, dict[int, int]] = {}
    for record in _records(data):
        edit = _VersionEdit(record)
        edit.read()
        # Its SSTs are no part of the database any more, whatever the MANIFEST said of them before.
        if edit.dropped:
            families.pop(edit.family, None)
            continue
        tables = families.setdefault(edit.family, {})
        for number in edit.deleted:
            # Removals come first: an edit that moves an SST to another level deletes and adds it.
            tables.pop(number, None)
        tables.update(edit.added)
    return families


def may_have_paths(data: bytes) -> bool:
    """Return whether any SST may have a path id above 0, without reading each edit."""
    return any(_PATH_ID.search(record) for record in _records(data))


def _records(data: bytes) -> Iterator[bytes]:
    """Yield whole records; an incomplete one at the end is skipped, as RocksDB skips it."""
    pieces: list[bytes] = []
    for piece, begin, end in _pieces(data):
        if piece in (_FULL, _FIRST):
            pieces = []
        pieces.append(data[begin:end])
        if piece in (_FULL, _LAST):
            yield b"".join(pieces)


def _pieces(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield type, begin and end of the content of each complete piece of a record; types as without recycling."""
    at = 0
    while at + _HEADER <= len(data):
        rest = _BLOCK - at % _BLOCK
        if rest < _HEADER:
            at += rest  # RocksDB pads a block that has no space for another header
            continue
        kind, size = data[at + 6], int.from_bytes(data[at + 4 : at + 6], "little")
        if kind == 0:
            return  # space that RocksDB has reserved
        header, piece = _HEADER, kind
        if kind in _RECYCLABLE:
            header, piece = _RECYCLABLE_HEADER, kind - _RECYCLABLE[0] + 1
        begin = at + header
        at = begin + size
        if at > len(data):
            return
        yield piece, begin, at


class _VersionEdit:
    """One ``VersionEdit``: which SSTs of which column family it adds and removes."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._at = 0
        self.family = 0
        self.dropped = False
        self.name: str | None = None
        """The name of a column family that the edit adds."""
        self.added: dict[int, int] = {}
        self.deleted: list[int] = []

    def read(self) -> None:
        """Read all fields. Raises MalformedBytesError."""
        while self._at < len(self._record):
            tag = self._number()
            if tag == _NEW:
                self._table()
            elif tag == _DELETED:
                self._number()  # the level
                self.deleted.append(self._number())
            elif tag == _FAMILY:
                self.family = self._number()
            elif tag == _FAMILY_DROPPED:
                self.dropped = True
            elif tag in (_BLOB_ADDED, _BLOB_GARBAGE):
                self._blob(checksum=tag == _BLOB_ADDED)
            else:
                self._other(tag)

    def _table(self) -> None:
        """Read an SST: level, number, size, two keys, two sequence numbers, custom fields."""
        self._number()
        number = self._number()
        self._number()
        self._skip()
        self._skip()
        self._number()
        self._number()
        path = 0
        while (tag := self._number()) != _NEW_END:
            begin = self._at
            self._skip()
            if tag == _NEW_PATH:
                # A length of one byte, and the id: ``_PATH_ID``, which looks for such bytes, must not miss another
                # form.
                if self._at != begin + 2:
                    raise _unclear("a path id has one byte")
                path = self._record[begin + 1]
        self.added[number] = path

    def _blob(self, *, checksum: bool) -> None:
        for _ in range(_BLOB_NUMBERS):
            self._number()
        if checksum:
            # The checksum consists of two byte strings: its method, and its value.
            self._skip()
            self._skip()
        while self._number():
            self._skip()

    def _other(self, tag: int) -> None:
        """Read a field of the edit that says nothing about SSTs, to get to the next one."""
        if tag == _FAMILY_ADDED:
            size = self._skip()
            # Read after the check of the length: a name that was cut off is the name of another family.
            self.name = self._record[self._at - size : self._at].decode("utf-8", "replace")
        elif tag == _COMPARATOR_TAG or tag & _IGNORABLE:
            self._skip()
        elif tag == _COMPACT_CURSOR:
            self._number()
            self._skip()
        elif tag in _NUMBERS:
            self._number()
        else:
            # Its fields have unknown lengths, so everything behind it would be misread.
            raise _unclear(f"the tag {tag} is unknown")

    def _number(self) -> int:
        """Read a varint of at most 64 bits."""
        value = shift = 0
        while self._at < len(self._record):
            byte = self._record[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < _MORE:
                return value
            shift += 7
            # 64 bits have at most ten groups. A damaged record may have millions, which would make a number of
            # megabytes, byte by byte.
            if shift >= _MOST_BITS:
                raise _unclear("a number has more than 64 bits")
        raise _unclear("a number extends beyond the end of the record")

    def _skip(self) -> int:
        """Skip a byte string; return its length."""
        size = self._number()
        self._at += size
        if self._at > len(self._record):
            raise _unclear("a byte string extends beyond the end of the record")
        return size


def _unclear(problem: str) -> MalformedBytesError:
    return MalformedBytesError(f"MANIFEST: {problem}")
