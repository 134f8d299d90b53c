"""Waits until all hosts are here at once.

Each host comes with a new token, and writes down whose tokens it has seen. It goes on once so many others have seen its
own: whoever has seen it was here after it came, so every one of them had come by then. What an earlier round left has
seen other tokens, and counts for nothing; no clock is compared. A host that goes on writes down first that it has seen
all the others, so that none of them waits for one that has gone.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from kstate_cli.barrier.meeting import MeetingPlace, Word, file_name
from kstate_cli.errors import Refused, UsageError

_LOOK_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 60.0
"""So long a place that could be reached may be out of reach: hours of restoring are behind this."""
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
    mine = Word(host, secrets.token_hex(16), hosts, {}, left=False)
    place.leave(mine)
    deadline = None if timeout is None else time.monotonic() + timeout
    told: Waiting | None = None
    while True:
        words = _patiently(place.words)
        if host in words and words[host].token != mine.token:
            raise Refused(
                f"another host is called {host} too: it waits at {place.shown}",
                hint="give each its own name; one that was started twice waits where it came last",
            )
        mine = _looked(place, mine, {name: word for name, word in words.items() if name != host})
        waiting = _who(mine, words, names)
        if waiting != told:
            told = waiting
            on_change(waiting)
        if waiting.all_here:
            return waiting
        if deadline is not None and time.monotonic() >= deadline:
            place.leave(replace(mine, left=True))
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


def _looked(place: MeetingPlace, mine: Word, others: dict[str, Word]) -> Word:
    """What this host has to say now, and has said."""
    for word in others.values():
        here = word.seen.get(mine.host) == mine.token
        if here and word.hosts != mine.hosts:
            raise UsageError(
                f"{word.host} waits for {word.hosts} hosts at {place.shown}, and this one for {mine.hosts}",
                hint="all of them are given the same number",
            )
    seen = {name: word.token for name, word in others.items() if not word.left}
    if seen != mine.seen:
        mine = replace(mine, seen=seen)
        _patiently(partial(place.leave, mine))
    return mine


def _who(mine: Word, words: dict[str, Word], names: tuple[str, ...]) -> Waiting:
    here = sorted(
        {mine.host} | {name for name, word in words.items() if word.seen.get(mine.host) == mine.token and not word.left}
    )
    known = sorted({*names, *words} - set(here))
    awaited = max(0, mine.hosts - len(here))
    missing = tuple(known) if awaited else ()
    unknown = 0 if names else max(0, awaited - len(missing))
    left = tuple(name for name in missing if name in words and words[name].left)
    return Waiting(tuple(here), missing, unknown, left)
