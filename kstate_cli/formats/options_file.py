"""RocksDB's ``OPTIONS-<number>`` files: what a database was last opened with.

Text, UTF-8: sections ``[Version]``, ``[DBOptions]``, then ``[CFOptions "<name>"]`` and
``[TableOptions/<factory> "<name>"]`` per column family; lines ``name=value``; ``#`` begins a comment unless a
backslash precedes it. RocksDB leaves out ``wal_dir`` while it is the directory of the database, and never writes the
list of database paths.
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
    """Read a whole file, as its bytes or as text.

    :class:`MalformedBytesError` (RocksDB answers ``Corruption`` or ``InvalidArgument``, in Java a
    ``RocksDBException``) if it is not UTF-8, has a line outside a section or without ``=``, an unknown or repeated
    section, or lacks the version, the database options or the column family ``default``: a truncated file is refused,
    not half read.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"not UTF-8 at byte {error.start}") from None
    sections = _sections(text)
    version = sections.get(("Version", ""), {}).get("rocksdb_version")
    if version is None:
        raise _malformed("no rocksdb_version")
    db = sections.get(("DBOptions", ""))
    if db is None:
        raise _malformed("no [DBOptions]")
    families = {name: options for (kind, name), options in sections.items() if kind == "CFOptions"}
    if "default" not in families:
        raise _malformed('no [CFOptions "default"]')
    tables = {name: options for (kind, name), options in sections.items() if kind == "TableOptions"}
    return StoredOptions(version, db, families, tables)


def _sections(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return the options by kind and name of their section. :class:`MalformedBytesError` as :func:`parse`."""
    sections: dict[tuple[str, str], dict[str, str]] = {}
    current: dict[str, str] | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        line = _COMMENT.sub("", raw).strip()
        if not line:
            continue
        if line.startswith("["):
            section = _section(line, number)
            if section in sections:
                raise _malformed(f"line {number}: section {line} is there twice")
            current = sections[section] = {}
            continue
        name, equals, value = line.partition("=")
        if current is None or not equals or not name.strip():
            raise _malformed(f"line {number}: {line[:80]!r} is neither a section nor an option of one")
        current[name.strip()] = _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), value.strip())
    return sections


def foreign_settings(stored: StoredOptions, db_path: str = "") -> tuple[str, ...]:
    """Return why a database is more than its directory of rows in bytewise order, one sentence each; empty if not.

    Reported: a WAL outside ``db_path`` (the directory of the database, absolute), additional paths, another comparator
    (rows would be sorted wrongly), a merge operator (rows would be partial), another table format, and an environment
    that is not the default one (encryption). Without ``db_path`` every ``wal_dir`` that is set counts as outside.
    """
    reasons: list[str] = []
    wal_dir = stored.db.get("wal_dir", "")
    if wal_dir not in _UNSET and not (db_path and _same_path(wal_dir, db_path)):
        reasons.append(f"wal_dir is {wal_dir}: the write-ahead log lies outside the database's directory")
    db_paths = stored.db.get("db_paths", "")
    if db_paths not in _UNSET and not _same_path(db_paths, db_path):
        reasons.append(f"db_paths is {db_paths}: table files lie outside the database's directory")
    env = stored.db.get("env", "")
    if env not in _UNSET and not _is_default_env(env):
        reasons.append(f"env is {env}: not the default environment")
    for name, options in stored.column_families.items():
        cf_paths = options.get("cf_paths", "")
        if cf_paths not in _UNSET and not _same_path(cf_paths, db_path):
            reasons.append(f"column family {name}: cf_paths is {cf_paths}, outside the database's directory")
        comparator = options.get("comparator", _COMPARATOR)
        if comparator != _COMPARATOR:
            reasons.append(f"column family {name}: comparator is {comparator}, not {_COMPARATOR}")
        merge_operator = options.get("merge_operator", "")
        if merge_operator not in _UNSET:
            reasons.append(f"column family {name}: merge_operator is {merge_operator}")
        factory = options.get("table_factory", _TABLE_FACTORY)
        if factory != _TABLE_FACTORY:
            reasons.append(f"column family {name}: table_factory is {factory}, not {_TABLE_FACTORY}")
    return tuple(reasons)


def restore_settings(before: str, after: str, keep_new: frozenset[str]) -> str:
    """``after`` with the values that ``before`` has for the same keys of the same sections, as they are spelled there.

    Keys in ``keep_new``, ``[Version]``, and sections and keys that only ``after`` has stay as they are; nothing is
    added. :class:`MalformedBytesError` if either is not the text of a whole file (see :func:`parse`).
    """
    parse(before)
    parse(after)
    old = {(section, name): value for _, section, name, value in _assignments(before) if name}
    out: list[str] = []
    for line, section, name, value in _assignments(after):
        restored = old.get((section, name), value)
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
    """Return ``text`` with other values for keys of ``[DBOptions]``, and of every ``[CFOptions …]``.

    ``replaced`` names, by key of a column family, values and what replaces them. Keys that the text lacks are not
    added. :class:`MalformedBytesError` if it is not the text of a whole file (see :func:`parse`).
    """
    parse(text)
    out: list[str] = []
    for line, section, name, value in _assignments(text):
        new = value
        if section == "[DBOptions]":
            new = database.get(name, value)
        elif section.startswith("[CFOptions "):
            new = replaced.get(name, {}).get(value, families.get(name, value))
        out.append(line if new == value else f"  {name}={new}")
    return "\n".join(out)


def _assignments(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Each line of a text that can be parsed: itself, its section, and the name (or ``""``) and value it sets."""
    section = ""
    for raw in text.split("\n"):
        line = _COMMENT.sub("", raw).strip()
        if line.startswith("["):
            section = line
            yield raw, section, "", ""
            continue
        name, _, value = line.partition("=")
        yield raw, section, name.strip(), value.strip()


def _section(line: str, number: int) -> tuple[str, str]:
    match = _SECTION.fullmatch(line)
    kind = "" if match is None else match[1]
    if match is None or kind not in {"Version", "DBOptions", "CFOptions", "TableOptions"}:
        raise _malformed(f"line {number}: unknown section {line[:80]!r}")
    has_name = kind in {"CFOptions", "TableOptions"}
    if has_name != (match[3] is not None) or (kind == "TableOptions") != (match[2] is not None):
        raise _malformed(f"line {number}: section {line[:80]!r} is not complete")
    return kind, match[3] or ""


def _same_path(path: str, other: str) -> bool:
    return bool(other) and posixpath.normpath(path) == posixpath.normpath(other)


def _is_default_env(env: str) -> bool:
    match = _ENV_ID.match(env)
    return _DEFAULT_ENV.fullmatch((match[1] if match else env).strip()) is not None


def _malformed(problem: str) -> MalformedBytesError:
    return MalformedBytesError(f"OPTIONS file: {problem}", "RocksDBException")
