"""The place where hosts read each other's states: a small file for each host, which only that host writes.

An object store only has to return whole objects. Neither conditional requests nor up-to-date lists are needed, because
the hosts read the place again and again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.dump_reader.location import is_here, open_location, uri_text
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.json_text import parse_json
from kstate_cli.regular_files import NotReadableError, read_small, replace_text

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_FILE: Final = re.compile(r"barrier-([A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?)\.json")
_MOST_BYTES: Final = 1 << 20
_SCHEMA: Final = 2
_MODE: Final = 0o666
"""Other hosts read the file, perhaps as other users; the umask restricts it."""


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of one host."""

    host: str
    token: str
    """Random, and new for each wait."""
    hosts: int
    """The number of hosts to wait for, this one included."""
    tokens: Mapping[str, str]
    """Host -> the token that this host last read of it."""
    has_stopped: bool
    """The host no longer waits: a timeout, a signal or an error ended it."""
    beat: int = 0
    """A counter that grows while the host waits."""
    has_passed: bool = False
    """The host read the states of all hosts and continued: its state does not change any more."""


class MeetingPlace:
    """A folder or an object prefix. Raises UsageError for another place, Refused for one that cannot be reached."""

    def __init__(self, uri: str) -> None:
        self.shown = uri_text(uri)
        filesystem, self._root = open_location(uri)
        self._remote: FileSystem | None = None if is_here(filesystem) else filesystem
        if self._remote is None and not os.path.isdir(self._root):
            raise UsageError(
                f"{self.shown} is not a folder",
                hint="create it once where all hosts reach it, or name an object prefix",
            )

    def write(self, state: HostState) -> None:
        """Write the state of this host over its old one. Raises Refused."""
        text = json.dumps(
            {
                "schema_version": _SCHEMA,
                "host": state.host,
                "token": state.token,
                "hosts": state.hosts,
                "seen": dict(state.tokens),
                "left": state.has_stopped,
                "beat": state.beat,
                "gone_on": state.has_passed,
            }
        )
        path = f"{self._root}/{file_name(state.host)}"
        try:
            if self._remote is None:
                replace_text(Path(path), text + "\n", mode=_MODE)
            else:
                with self._remote.open_output_stream(path) as sink:
                    sink.write(text.encode() + b"\n")
        except OSError as error:
            raise self._unreachable("written", error) from None

    def states(self) -> dict[str, HostState]:
        """Return the states of all hosts; other files are ignored. Raises Refused."""
        states = {}
        try:
            for name in self._names():
                host = host_of(name)
                state = None if host is None else self._state(name, host)
                if host is not None and state is not None:
                    states[host] = state
        except OSError as error:
            raise self._unreachable("read", error) from None
        return states

    def _names(self) -> list[str]:
        if self._remote is None:
            return sorted(os.listdir(self._root))
        from pyarrow import fs

        entries = self._remote.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        return sorted(entry.base_name for entry in entries if entry.type == fs.FileType.File)

    def _state(self, name: str, host: str) -> HostState | None:
        path = f"{self._root}/{name}"
        try:
            if self._remote is None:
                data = read_small(Path(path), _MOST_BYTES)
            else:
                with self._remote.open_input_stream(path) as source:
                    data = source.read(_MOST_BYTES + 1)
            return _parsed(data, host)
        except (FileNotFoundError, NotReadableError, ValueError):
            return None  # replaced while it was read, or not a state: the host writes its state again

    def _unreachable(self, action: str, error: OSError) -> Refused:
        return Refused(
            f"{self.shown} cannot be {action}: {error.strerror or type(error).__name__}",
            hint="check that this host reaches it, and that this user may read and write there",
        )


def file_name(host: str) -> str:
    """Return the file name of a host. Raises UsageError for an invalid name."""
    name = f"barrier-{host}.json"
    if not _FILE.fullmatch(name):
        raise UsageError(
            f"{host!r} cannot be the name of a host here",
            hint="use letters, digits, dots, hyphens and underscores, and begin and end with a letter or digit",
        )
    return name


def host_of(name: str) -> str | None:
    """Return the host whose file has this name; None for another file."""
    match = _FILE.fullmatch(name)
    return None if match is None else match[1]


def _parsed(data: bytes, host: str) -> HostState | None:
    """Return the state in a file of ``host``; None if it has none. Raises ValueError if it is not JSON."""
    row: Any = parse_json(data) if len(data) <= _MOST_BYTES else None
    if not isinstance(row, dict) or row.get("schema_version") != _SCHEMA or row.get("host") != host:
        return None
    token, hosts, tokens = row.get("token"), row.get("hosts"), row.get("seen")
    has_stopped, beat, has_passed = row.get("left"), row.get("beat"), row.get("gone_on")
    if not (isinstance(token, str) and type(hosts) is int and isinstance(tokens, dict)):
        return None
    if not (isinstance(has_stopped, bool) and type(beat) is int and isinstance(has_passed, bool)):
        return None
    tokens = {name: text for name, text in tokens.items() if isinstance(text, str)}
    return HostState(host, token, hosts, tokens, has_stopped, beat, has_passed)
