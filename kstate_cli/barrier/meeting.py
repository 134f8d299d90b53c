"""Where hosts leave word for each other: one small file for each, which nobody but that host writes.

Object stores need nothing but whole files that are read as they were written: no condition, no list that is up to date
at once, since hosts look again and again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.dump_reader.location import is_here, open_location, shown
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.json_text import parse_json
from kstate_cli.regular_files import NotReadableError, read_small, replace_text

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_FILE: Final = re.compile(r"barrier-([A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?)\.json")
_MOST_BYTES: Final = 1 << 20
_SCHEMA: Final = 2
_MODE: Final = 0o666
"""Other hosts, as other users may be, read it; the umask narrows it."""


@dataclass(frozen=True, slots=True)
class Word:
    """What one host has left."""

    host: str
    token: str
    """Another one each time that the host comes here."""
    hosts: int
    """How many it waits for, itself among them."""
    seen: Mapping[str, str]
    """Host -> the token that it had when this one looked."""
    left: bool
    """It does not wait any longer: its time was up, a signal or an error ended it."""
    beat: int = 0
    """One more each time that it says that it still waits."""
    gone_on: bool = False
    """All were here for it, and it has gone on: nothing more is to be heard of it."""


class MeetingPlace:
    """A folder, or an object prefix. Raises UsageError for what is neither, Refused for what cannot be reached."""

    def __init__(self, uri: str) -> None:
        self.shown = shown(uri)
        filesystem, self._root = open_location(uri)
        self._remote: FileSystem | None = None if is_here(filesystem) else filesystem
        if self._remote is None and not os.path.isdir(self._root):
            raise UsageError(
                f"{self.shown} is no folder", hint="make it once, where all hosts reach it, or name an object prefix"
            )

    def leave(self, word: Word) -> None:
        """Writes what this host says, over what it said before. Raises Refused."""
        text = json.dumps(
            {
                "schema_version": _SCHEMA,
                "host": word.host,
                "token": word.token,
                "hosts": word.hosts,
                "seen": dict(word.seen),
                "left": word.left,
                "beat": word.beat,
                "gone_on": word.gone_on,
            }
        )
        path = f"{self._root}/{file_name(word.host)}"
        try:
            if self._remote is None:
                replace_text(Path(path), text + "\n", mode=_MODE)
            else:
                with self._remote.open_output_stream(path) as sink:
                    sink.write(text.encode() + b"\n")
        except OSError as error:
            raise self._unreachable("written", error) from None

    def words(self) -> dict[str, Word]:
        """What all hosts have left here. What is no such word is passed over. Raises Refused."""
        words = {}
        try:
            for name in self._names():
                host = host_of(name)
                word = None if host is None else self._word(name, host)
                if host is not None and word is not None:
                    words[host] = word
        except OSError as error:
            raise self._unreachable("read", error) from None
        return words

    def _names(self) -> list[str]:
        if self._remote is None:
            return sorted(os.listdir(self._root))
        from pyarrow import fs

        entries = self._remote.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        return sorted(entry.base_name for entry in entries if entry.type == fs.FileType.File)

    def _word(self, name: str, host: str) -> Word | None:
        path = f"{self._root}/{name}"
        try:
            if self._remote is None:
                data = read_small(Path(path), _MOST_BYTES)
            else:
                with self._remote.open_input_stream(path) as source:
                    data = source.read(_MOST_BYTES + 1)
            return _parsed(data, host)
        except (FileNotFoundError, NotReadableError, ValueError):
            return None  # replaced while it was read, or not a word: whose it is that host says again

    def _unreachable(self, what: str, error: OSError) -> Refused:
        return Refused(
            f"{self.shown} cannot be {what}: {error.strerror or type(error).__name__}",
            hint="see whether this host reaches it, and this user may read and write there",
        )


def file_name(host: str) -> str:
    """The file of a host. Raises UsageError for a name that cannot be one."""
    name = f"barrier-{host}.json"
    if not _FILE.fullmatch(name):
        raise UsageError(
            f"{host!r} cannot be the name of a host here",
            hint="letters, digits, dots, hyphens and underscores, beginning and ending with a letter or digit",
        )
    return name


def host_of(name: str) -> str | None:
    """The host whose file has this name; None for another file."""
    match = _FILE.fullmatch(name)
    return None if match is None else match[1]


def _parsed(data: bytes, host: str) -> Word | None:
    """Raises ValueError for what is no JSON."""
    row: Any = parse_json(data) if len(data) <= _MOST_BYTES else None
    if not isinstance(row, dict) or row.get("schema_version") != _SCHEMA or row.get("host") != host:
        return None
    token, hosts, seen = row.get("token"), row.get("hosts"), row.get("seen")
    left, beat, gone_on = row.get("left"), row.get("beat"), row.get("gone_on")
    if not (isinstance(token, str) and type(hosts) is int and isinstance(seen, dict)):
        return None
    if not (isinstance(left, bool) and type(beat) is int and isinstance(gone_on, bool)):
        return None
    return Word(host, token, hosts, {k: v for k, v in seen.items() if isinstance(v, str)}, left, beat, gone_on)
