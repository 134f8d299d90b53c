"""Waits until all hosts are here at once.

Each host comes with a new token, and writes down whose tokens it has seen. It goes on once so many others have seen its
own: whoever has seen it was here after it came, so every one of them had come by then. What an earlier round left has
seen other tokens, and counts for nothing; no clock is compared. A host that goes on writes down first that it has seen
all the others, and that it goes on, so that none of them waits for one that has gone.

Whoever was here once need not be here any more. A host that ends otherwise, by a signal or an error, writes down that
it left. One that could not, since it was killed or lost its power, is silent: a host that waits says so again and
again, and one that has not been heard for long, by the clock of the one that listens, is not here until it is heard.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from kstate_cli.barrier.meeting import MeetingPlace, Word, file_name
from kstate_cli.deadline import leave
from kstate_cli.errors import Refused, UsageError

_LOOK_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 60.0
"""So long a place that could be reached may be out of reach: hours of restoring are behind this."""
_BEAT_SECONDS: Final = 10.0
"""So often a host says that it still waits."""
_SILENCE_SECONDS: Final = 90.0
"""Not heard for so long, a host is not here: longer than a network file system may show an old file (NFS: 60 s)."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who is here, and who is not."""

    here: tuple[str, ...]
    """Hosts that wait, or have gone on, together with this one, which is among them."""
    missing: tuple[str, ...]
    """Hosts that are known by name, and are not here."""
    unknown: int
    """How many more are awaited, whose names nobody knows."""
    left: tuple[str, ...]
    """Of ``missing``, those that did not wait any longer."""

    @property
    def all_here(self) -> bool:
        """None is missing."""
        return not self.missing and not self.unknown


@dataclass(slots=True)
class _Ears:
    """When each of the others was heard last, by this host's own clock."""

    heard: dict[str, tuple[tuple[str, int], float]] = field(default_factory=dict)

    def here(self, word: Word, mine: Word, now: float) -> bool:
        """Whether a host waits, or has gone on, together with this one."""
        said = (word.token, word.beat)
        if self.heard.get(word.host, (None, now))[0] != said:
            self.heard[word.host] = (said, now)
        if word.left or word.seen.get(mine.host) != mine.token:
            return False
        return word.gone_on or now - self.heard[word.host][1] < _SILENCE_SECONDS


def wait_for_all(
    place: MeetingPlace,
    host: str,
    hosts: int,
    *,
    names: tuple[str, ...] = (),
    timeout: float | None,
    on_change: Callable[[Waiting], None],
) -> Waiting:
    """Waits until ``hosts`` of them are here, or ``timeout`` seconds have passed; who was here then.

    ``names``: all of them, where they are known beforehand. ``on_change`` is told who is here whenever that changes.
    Raises UsageError for a name that cannot be one, and where hosts wait for different numbers of hosts; Refused where
    the place cannot be reached, and where another host has the same name.
    """
    file_name(host)
    wait = _Wait(place, Word(host, secrets.token_hex(16), hosts, {}, left=False), names)
    leave(f"the file of {host} at {place.shown}: the other hosts count it as silent after {_SILENCE_SECONDS:.0f} s")
    place.leave(wait.mine)
    try:
        waiting = wait.until_all_are_here(None if timeout is None else time.monotonic() + timeout, on_change)
        # The others have what this host has seen. Those that look late are told that nothing more is to be heard of it.
        with contextlib.suppress(Refused):
            place.leave(replace(wait.mine, left=not waiting.all_here, gone_on=waiting.all_here))
    except _SameName:
        raise Refused(
            f"another host is called {host} too: it waits at {place.shown}",
            hint="give each its own name; of one that was started twice the other one goes on waiting",
        ) from None
    except BaseException:
        # Whatever ended it, the others are not to start as if it were here.
        with contextlib.suppress(Refused):
            place.leave(replace(wait.mine, left=True))
        raise
    return waiting


class _SameName(Exception):
    """The file of this host is another's now."""


@dataclass(slots=True)
class _Wait:
    """One host that waits."""

    place: MeetingPlace
    mine: Word
    names: tuple[str, ...]
    ears: _Ears = field(default_factory=_Ears)

    def until_all_are_here(self, deadline: float | None, on_change: Callable[[Waiting], None]) -> Waiting:
        """Who was here then, or at the deadline. Raises _SameName, UsageError, Refused."""
        told: Waiting | None = None
        spoke = time.monotonic()
        while True:
            words = _patiently(self.place.words)
            now = time.monotonic()
            mine = self.mine
            if mine.host in words and words[mine.host].token != mine.token:
                raise _SameName
            others = {name: word for name, word in words.items() if name != mine.host}
            seen = _seen(self.place, mine, others)
            if seen != mine.seen or now - spoke >= _BEAT_SECONDS:
                self.mine = replace(mine, seen=seen, beat=mine.beat + 1)
                spoke = now
                _patiently(partial(self.place.leave, self.mine))
            here = [name for name, word in others.items() if self.ears.here(word, self.mine, now)]
            waiting = _who(self.mine, words, here, self.names)
            if waiting != told:
                told = waiting
                on_change(waiting)
            if waiting.all_here or (deadline is not None and now >= deadline):
                return waiting
            time.sleep(_LOOK_SECONDS)


def _patiently(ask: Callable[[], _Answer]) -> _Answer:
    """The answer, once the place can be reached. Raises Refused where it cannot for long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except Refused:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_SECONDS)


def _seen(place: MeetingPlace, mine: Word, others: dict[str, Word]) -> dict[str, str]:
    """Host -> token of those that wait. Raises UsageError where one waits for another number of hosts."""
    for word in others.values():
        here = word.seen.get(mine.host) == mine.token
        if here and word.hosts != mine.hosts:
            raise UsageError(
                f"{word.host} waits for {word.hosts} hosts at {place.shown}, and this one for {mine.hosts}",
                hint="all of them are given the same number",
            )
    return {name: word.token for name, word in others.items() if not word.left}


def _who(mine: Word, words: dict[str, Word], others: list[str], names: tuple[str, ...]) -> Waiting:
    here = sorted({mine.host, *others})
    known = sorted({*names, *words} - set(here))
    awaited = max(0, mine.hosts - len(here))
    missing = tuple(known) if awaited else ()
    unknown = 0 if names else max(0, awaited - len(missing))
    left = tuple(name for name in missing if name in words and words[name].left)
    return Waiting(tuple(here), missing, unknown, left)
