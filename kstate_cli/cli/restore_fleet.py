"""``kstate restore`` on one of several hosts: which tasks are this host's, and at which barrier it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstate_cli.errors import KstateError, UsageError
from kstate_cli.texts import command

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstate_cli.barrier.wait import Waiting
    from kstate_cli.cli.barrier_view import BarrierView
    from kstate_cli.cli.restore_options import FleetOptions

_MAKE = command("fleet", "HOST.json", "-o", "json")
_PART_HINT = "the second of three hosts: --share 2/3"


def share_of(fleet: FleetOptions) -> tuple[int, int] | None:
    """``--share``. Raises UsageError."""
    from kstate_cli.cli.options import part_of

    return None if fleet.share is None else part_of("--share", fleet.share, _PART_HINT)


def tasks_of(fleet: FleetOptions, application: str) -> tuple[frozenset[str], frozenset[str] | None]:
    """The tasks that other hosts have, and those that this host had, where that is told. Raises UsageError, Refused."""
    from kstate_cli.fleet.missing import had_before, held_elsewhere, read_fleet

    if fleet.missing is None:
        if fleet.before is not None:
            raise UsageError(
                "--before says what this host had, and --missing what nobody has",
                hint="pass both, --missing FILE of now and --before FILE of before the loss, and --host NAME; "
                f"each file is made by {_MAKE}",
            )
        return frozenset(), None
    if (fleet.before is None) == (fleet.share is None):
        raise UsageError(
            "--missing tells which tasks nobody has, and not which of them are this host's",
            hint="--share 1/2 and --share 2/2 on two empty hosts, --share 1/1 where this is the only one; or --before "
            f"FILE --host NAME, with what was said before the loss by {_MAKE}",
        )
    if fleet.before is not None and fleet.host is None:
        raise UsageError("--before tells of hosts by their names", hint="--host NAME: this one's, as the file has it")
    elsewhere = held_elsewhere(read_fleet(fleet.missing), application, fleet.host)
    if fleet.before is None or fleet.host is None:
        return elsewhere, None
    return elsewhere, had_before(read_fleet(fleet.before), application, fleet.host)


def barrier_of(fleet: FleetOptions, *, is_started: bool) -> BarrierView | None:
    """Where to wait for the others. Raises UsageError and Refused."""
    from kstate_cli.cli.barrier_view import BarrierView

    if fleet.barrier is None:
        if fleet.hosts is not None:
            raise UsageError("--hosts is for --barrier", hint="--barrier PLACE: a folder or URI that all hosts reach")
        return None
    if not is_started:
        raise UsageError("a standby is not started, and waits for nobody", hint="leave out --barrier")
    share = share_of(fleet)
    if share is not None and fleet.hosts not in (None, share[1]):
        raise UsageError("--share and --hosts differ in the number of hosts", hint="leave --hosts out")
    hosts = fleet.hosts if share is None else share[1]
    if hosts is None:
        raise UsageError("how many hosts are to come to the barrier?", hint="--hosts N, this one among them")
    names: tuple[str, ...] = ()
    host = fleet.host
    if share is not None and host is None and fleet.missing is None:
        names = tuple(f"{one}-of-{hosts}" for one in range(1, hosts + 1))
        host = names[share[0] - 1]
    return BarrierView(fleet.barrier, host=host, hosts=hosts, timeout=fleet.barrier_timeout, names=names)


def waited(wait: Callable[[], Waiting], finish: Callable[[Waiting | None], int], *, warnings_ok: bool) -> int:
    """Waits, and then says what was restored: that is said too where the waiting fails."""
    try:
        waiting = wait()
    except KstateError:
        finish(None)
        raise
    code = finish(waiting)
    return code if waiting.all_here or warnings_ok else max(code, 1)
