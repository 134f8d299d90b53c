"""Wait at a barrier, and print who is missing meanwhile."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from kstate_cli.cli.output import say
from kstate_cli.texts import plural, some

if TYPE_CHECKING:
    from kstate_cli.barrier import Waiting
    from kstate_cli.cli.lines.changes import RestoreBarrierLine
    from kstate_cli.cli.lines.shared import BarrierMembers
    from kstate_cli.cli.output import Output


class BarrierView:
    """One host at one barrier. The place is checked here: a restoration must not run for one that does not exist.

    ``hosts``: their number, including this one. Raise UsageError and Refused.
    """

    def __init__(self, uri: str, *, host: str | None, hosts: int, timeout: float, names: tuple[str, ...] = ()) -> None:
        from kstate_cli.barrier import MeetingPlace, file_name

        self._place = MeetingPlace(uri)
        self._host = host or socket.gethostname()
        # Rejects a name that cannot be a file name, before the restoration that may take hours.
        file_name(self._host)
        # Lists the place once, for the same reason: a missing bucket or right shows now.
        self._place.states()
        self._hosts, self._timeout, self._names = hosts, timeout, names

    def wait(self, results: Output[RestoreBarrierLine]) -> Waiting:
        """Wait, and print who is missing whenever that changes. Raise UsageError and Refused."""
        from kstate_cli.barrier import wait_for_all

        def show(waiting: Waiting) -> None:
            results.lines([{"type": "barrier", **self.members(waiting)}])
            if not waiting.all_here:
                results.remark(f"waiting at {self._place.text} for {missing_text(waiting)}")

        waiting = wait_for_all(
            self._place, self._host, self._hosts, names=self._names, timeout=self._timeout, on_change=show
        )
        if waiting.all_here:
            ready = f"all {self._hosts} hosts are ready"
            if self._hosts == 1:
                ready = "the only host is ready"
            results.remark(f"{ready}. Start the application now")
        else:
            names = ""
            if waiting.missing:
                names = f" ({missing_text(waiting)})"
            count = len(waiting.missing) + waiting.unknown
            say(
                f"{count} of {plural(self._hosts, 'host')} did not arrive within {self._timeout:g} s{names}. "
                "If you start the application without these hosts, the other hosts take over the missing hosts' tasks "
                "and restore them from the broker. To continue waiting, run the command again"
            )
        return waiting

    def members(self, waiting: Waiting) -> BarrierMembers:
        """Return who is at the barrier, as members of a line."""
        return {
            "place": self._place.text,
            "host": self._host,
            "awaited": self._hosts,
            "here": list(waiting.here),
            "missing": list(waiting.missing),
            "unnamed": waiting.unknown,
            "gave_up": list(waiting.stopped),
        }


def barrier_result(waiting: Waiting) -> str:
    """Return the result for programs."""
    return "passed" if waiting.all_here else "not-all-came"


def missing_text(waiting: Waiting) -> str:
    """Return the hosts that have not reached the barrier, as a text for people."""
    missing = set(waiting.stopped)
    parts = []
    for name in waiting.missing:
        text = name
        if name in missing:
            # This host has recorded that it stopped waiting, so its application may be running alone by now.
            text += ", which has stopped waiting"
        parts.append(text)
    if waiting.unknown:
        noun = "host"
        if parts:
            noun = "more host"
        parts.append(plural(waiting.unknown, noun))
    return some(parts, len(parts))
