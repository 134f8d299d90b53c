"""Wait until all hosts are at the barrier at the same time: a folder, or an object prefix, that all of them reach.

Each host creates a new token, and writes which tokens of other hosts it has read. It continues once enough other hosts
have read its token: each of them did so after this host came, so all of them had come by then. The files of an earlier
wait have other tokens and do not count; no clocks are compared. A host that continues first writes that it read the
tokens of all others and that it continues, so that none of them waits for it in vain.

A host that came once may be away again. A host that a signal or an error ends writes that it stopped. A host that was
killed or lost its power is silent. So a waiting host counts a beat up again and again, and a host whose beat has not
changed for long, by the clock of the reader, is away until it changes.

The place has a small file for each host, which only that host writes. An object store only has to return whole objects.
Neither conditional requests nor up-to-date lists are needed, because the hosts read the place again and again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from kstate_cli.deadline import leave
from kstate_cli.dump_reader.location import is_here, open_location, uri_text
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.binary import parse_json
from kstate_cli.regular_files import NotReadableError, read_small, replace_text

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


_LOOK_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 60.0
"""Retry for so long if the place can no longer be reached, because hours of restoring may precede the wait."""
_BEAT_SECONDS: Final = 10.0
"""The interval in which a waiting host counts its beat up."""
_SILENCE_SECONDS: Final = 90.0
"""A host with the same beat for so long is away. A network file system may show an old file for 60 s (NFS)."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Which hosts are at the barrier, and which are not."""

    here: tuple[str, ...]
    """Hosts that wait or continue together with this one, this one included."""
    missing: tuple[str, ...]
    """Hosts with a known name that are not here."""
    unknown: int
    """The number of further hosts, whose names are unknown."""
    stopped: tuple[str, ...]
    """Those of ``missing`` that no longer wait."""

    @property
    def all_here(self) -> bool:
        """Whether no host is missing."""
        return not self.missing and not self.unknown


@dataclass(slots=True)
class _Beats:
    """When the state of each other host last changed, by this host's own clock."""

    changes: dict[str, tuple[tuple[str, int], float]] = field(default_factory=dict)

    def is_here(self, state: HostState, mine: HostState, now: float) -> bool:
        """Return whether a host waits or continues together with this one."""
        beat = (state.token, state.beat)
        if self.changes.get(state.host, (None, now))[0] != beat:
            self.changes[state.host] = (beat, now)
        if state.has_stopped or state.tokens.get(mine.host) != mine.token:
            return False
        return state.has_passed or now - self.changes[state.host][1] < _SILENCE_SECONDS


def wait_for_all(
    place: MeetingPlace,
    host: str,
    hosts: int,
    *,
    names: tuple[str, ...] = (),
    timeout: float | None,
    on_change: Callable[[Waiting], None],
) -> Waiting:
    """Wait until ``hosts`` hosts are here, or ``timeout`` seconds have passed; return which hosts are here then.

    ``names``: the names of all hosts, if they are known. ``on_change`` gets the hosts whenever they change.
    Raises UsageError for an invalid name, and if hosts wait for different numbers of hosts; Refused if the place cannot
    be reached, or if another host has the same name.
    """
    file_name(host)
    wait = _Wait(place, HostState(host, secrets.token_hex(16), hosts, {}, has_stopped=False), names)
    leave(f"{host}'s file at {place.text}. After {_SILENCE_SECONDS:.0f} s, the other hosts treat this host as missing")
    place.write(wait.mine)
    try:
        deadline: float | None = None
        if timeout is not None:
            deadline = time.monotonic() + timeout
        waiting = wait.until_all_are_here(deadline, on_change)
        # The other hosts have the tokens that this host read. A late reader must not count it as silent.
        with contextlib.suppress(Refused):
            place.write(replace(wait.mine, has_stopped=not waiting.all_here, has_passed=waiting.all_here))
    except _SameName:
        raise Refused(
            f"another host with the name {host} is waiting at {place.text}",
            hint="give each host a unique name. If you ran this command twice, the first process is still waiting",
        ) from None
    except BaseException:
        # Whatever ended this host: the other hosts must not start as if it were here.
        with contextlib.suppress(Refused):
            place.write(replace(wait.mine, has_stopped=True))
        raise
    return waiting


class _SameName(Exception):
    """Another host has written the file of this host."""


@dataclass(slots=True)
class _Wait:
    """The wait of one host."""

    place: MeetingPlace
    mine: HostState
    names: tuple[str, ...]
    beats: _Beats = field(default_factory=_Beats)

    def until_all_are_here(self, deadline: float | None, on_change: Callable[[Waiting], None]) -> Waiting:
        """Return which hosts are here once all are, or at the deadline. Raises _SameName, UsageError, Refused."""
        before: Waiting | None = None
        last_beat = time.monotonic()
        while True:
            # A shared folder or bucket may be away for a moment: that must not end the wait of all
            # hosts.
            states = _with_retries(self.place.states)
            now = time.monotonic()
            mine = self.mine
            # Only this host writes its file, so another token proves a second host of the name.
            if mine.host in states and states[mine.host].token != mine.token:
                raise _SameName
            others = {name: state for name, state in states.items() if name != mine.host}
            tokens = _tokens(self.place, mine, others)
            # Written only for a change or a beat: an object store charges for each put.
            if tokens != mine.tokens or now - last_beat >= _BEAT_SECONDS:
                self.mine = replace(mine, tokens=tokens, beat=mine.beat + 1)
                last_beat = now
                _with_retries(partial(self.place.write, self.mine))
            here = [name for name, state in others.items() if self.beats.is_here(state, self.mine, now)]
            waiting = _waiting(self.mine, states, here, self.names)
            if waiting != before:
                before = waiting
                on_change(waiting)
            # Judged by what was read, after it was written: the others have this host's tokens by then.
            if waiting.all_here or (deadline is not None and now >= deadline):
                return waiting
            time.sleep(_LOOK_SECONDS)


def _with_retries(request: Callable[[], _Answer]) -> _Answer:
    """Return the answer of a request once the place can be reached. Raises Refused if it cannot for long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return request()
        except Refused:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_SECONDS)


def _tokens(place: MeetingPlace, mine: HostState, others: dict[str, HostState]) -> dict[str, str]:
    """Return host -> token of the hosts that wait. Raises UsageError if one waits for another number of hosts."""
    for state in others.values():
        # A file of an earlier wait has other tokens, so its number of hosts does not matter.
        here = state.tokens.get(mine.host) == mine.token
        # Two numbers would let one host start alone while the other waits forever.
        if here and state.hosts != mine.hosts:
            raise UsageError(
                f"this host is waiting for {mine.hosts} hosts at {place.text}, but {state.host} is waiting for "
                f"{state.hosts}",
                hint="pass the same number on every host",
            )
    # A host that has stopped must not count: it would come again with another token.
    return {name: state.token for name, state in others.items() if not state.has_stopped}


def _waiting(mine: HostState, states: dict[str, HostState], others: list[str], names: tuple[str, ...]) -> Waiting:
    here = sorted({mine.host, *others})
    absent = sorted({*names, *states} - set(here))
    awaited = max(0, mine.hosts - len(here))
    missing: tuple[str, ...] = ()
    # Names of hosts that came and left again are no news once enough others are here.
    if awaited:
        missing = tuple(absent)
    unknown = max(0, awaited - len(missing))
    # With a list of names no host is unknown.
    if names:
        unknown = 0
    stopped = tuple(name for name in missing if name in states and states[name].has_stopped)
    return Waiting(tuple(here), missing, unknown, stopped)


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
        self.text = uri_text(uri)
        filesystem, self._root = open_location(uri)
        self._remote: FileSystem | None = filesystem
        # A local folder is written by rename, which Arrow's local file system does not do.
        if is_here(filesystem):
            self._remote = None
        if self._remote is None and not os.path.isdir(self._root):
            state = "is not a folder" if os.path.lexists(self._root) else "does not exist"
            raise UsageError(
                f"{self.text} {state}",
                hint="create the folder in a place that all hosts can reach, or pass an object prefix",
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
            raise self._unreachable("write to", error) from None

    def states(self) -> dict[str, HostState]:
        """Return the states of all hosts; other files are ignored. Raises Refused."""
        states = {}
        try:
            for name in self._names():
                host = host_of(name)
                if host is None:
                    continue
                state = self._state(name, host)
                if state is not None:
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
            f"kstate cannot {action} {self.text}: {error.strerror or type(error).__name__}",
            hint=("check that this host can reach the place and that this user has read and write permission there"),
        )


def file_name(host: str) -> str:
    """Return the file name of a host. Raises UsageError for an invalid name."""
    name = f"barrier-{host}.json"
    if not _FILE.fullmatch(name):
        raise UsageError(
            f"{host!r} is not a valid host name",
            hint="use letters, digits, dots, hyphens and underscores. Begin and end with a letter or a digit",
        )
    return name


def host_of(name: str) -> str | None:
    """Return the host whose file has this name; None for another file."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    return match[1]


def _parsed(data: bytes, host: str) -> HostState | None:
    """Return the state in a file of ``host``; None if it has none. Raises ValueError if it is not JSON."""
    # One byte more was requested than a state may have: a longer file is none.
    if len(data) > _MOST_BYTES:
        return None
    row = parse_json(data)
    if not isinstance(row, dict) or row.get("schema_version") != _SCHEMA or row.get("host") != host:
        return None
    token, hosts, tokens = row.get("token"), row.get("hosts"), row.get("seen")
    has_stopped, beat, has_passed = row.get("left"), row.get("beat"), row.get("gone_on")
    if not (isinstance(token, str) and type(hosts) is int and isinstance(tokens, dict)):
        return None
    # type() for numbers, since true is an int in Python.
    if not (isinstance(has_stopped, bool) and type(beat) is int and isinstance(has_passed, bool)):
        return None
    tokens = {name: text for name, text in tokens.items() if isinstance(text, str)}
    return HostState(host, token, hosts, tokens, has_stopped, beat, has_passed)
