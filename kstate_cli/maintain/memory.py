"""The memory of ``kstate maintain`` between its calls: one file, which is replaced as a whole after every step.

Without the file every step is due. A step itself never depends on the memory.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from kstate_cli.errors import InUse, Refused, UsageError
from kstate_cli.formats.binary import MAX_I64, parse_json
from kstate_cli.limits import MOST_GIVEN_BYTES
from kstate_cli.regular_files import NotReadableError, read_small, replace_text
from kstate_cli.statedir.names import LOCK
from kstate_cli.texts import printable, quoted

FORMAT: Final = 1
# O_NOFOLLOW: a link of another user must not make this user create or lock a file elsewhere.
_OURS: Final = os.O_CLOEXEC | os.O_NOFOLLOW
GOOD: Final = (0, 1)
"""Exit codes of a command that succeeded."""
_FINDINGS_CODE: Final = 3
"""The exit code of a command that has checked everything and reports findings."""
_MOST_SHARES: Final = 1 << 16
"""A share that is smaller than this part of the stores has a single store, which takes too long."""


@dataclass(frozen=True, slots=True)
class Result:
    """The last result of a step; times are ms since 1970."""

    step: str
    of: str | None
    began_ms: int
    ended_ms: int
    exit: int
    success_ms: int | None
    """When it last ended with 0, or with 1 and accepted warnings."""
    message: str | None = None
    findings: Mapping[str, int] = field(default_factory=dict)
    """``level code`` -> number of findings."""
    lags: tuple[Mapping[str, Any], ...] = ()
    """For each store: ``task``, ``store``, ``lag``, ``lag_seconds``, and ``reached``: {topic: {partition: offset}}."""

    @property
    def good(self) -> bool:
        """Whether the command succeeded."""
        return self.exit in GOOD


Share = tuple[int, int]
"""A number i and a count n, written i/n: every n-th store of the directory, beginning with the i-th.

A part is such a share, with the number of parts as its count. Half of a share has twice its count.
"""


class Cycle(NamedTuple):
    """How far the stores of a directory were verified, part by part. Times are ms since 1970."""

    last_part: int
    """The last part that was verified completely. 0: none yet."""
    parts: int
    """The number of parts at that time."""
    began_ms: int | None = None
    """When this cycle began. None if it is incomplete: it did not begin with part 1, or a share was skipped."""
    last_complete_ms: int | None = None
    """When the last complete cycle ended. None if no cycle was complete."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts that do not fit into the time limit of their step and are read share by share.

    The stores of part i of n are those of the parts i and i + n of 2 n.
    """

    parts: int
    """The number of parts into which ``kstate.toml`` divides the stores."""
    cut: Mapping[int, tuple[Share, ...]]
    """The number of a part -> its shares. A part that fits into the time limit is absent."""
    of_part: int
    """The number of the part that is being read."""
    waiting: tuple[Share, ...]
    """The shares of that part that are still to be read, the next one first; empty if the part is complete."""
    began_ms: int | None = None
    """When the reading of the first share of the part began."""
    incomplete: bool = False
    """Whether a share of the part was skipped."""


@dataclass(slots=True)
class Memory:
    """The content of the file."""

    results: dict[tuple[str, str | None], Result] = field(default_factory=dict)
    parts: dict[str, Cycle] = field(default_factory=dict)
    """For each directory. The file has texts as keys, so the dump, which has no directory, has the key ""."""
    shares: dict[str, Shares] = field(default_factory=dict)
    """For each directory whose parts do not fit into the time limit of the step; with the keys of ``parts``."""

    def result(self, step: str, of: str | None) -> Result | None:
        """Return the last result of a step; None if it never ran."""
        return self.results.get((step, of))

    def forget_others(self, steps: Collection[tuple[str, str | None]]) -> None:
        """Forget all steps but these, so that no metric shows a step that was removed as late."""
        # By step and directory: a step may have been removed for one of its directories only.
        self.results = {key: result for key, result in self.results.items() if key in steps}
        verified = {of or "" for step, of in steps if step == "verify"}
        cycles = verified | {"" for step, _ in steps if step == "verify-dump"}
        self.parts = {of: part for of, part in self.parts.items() if of in cycles}
        self.shares = {of: shares for of, shares in self.shares.items() if of in verified}

    def select_next_part(self, of: str | None, parts: int) -> Share:
        """Select the part, or share of a part, that is verified next, and return it.

        Until :meth:`verified` or :meth:`too_large` records its end, each call selects the same one: a killed run is
        repeated. If the number of parts has changed, it is the first part. A part that did not fit into its time limit
        was cut into shares. If none of them is waiting, all are recorded as waiting. ``of`` is the directory (None for
        the dump).
        """
        before = self.parts.get(of or "", Cycle(0, parts))
        number = 1
        if before.parts == parts:
            # While shares of a part are waiting, the last part is still the one before it.
            number = before.last_part % parts + 1
        shares = self.shares.get(of or "")
        # Shares of another number of parts have other stores.
        if shares is None or shares.parts != parts or number not in shares.cut:
            return number, parts
        # Another part was read in shares before, or all shares of this part were read in the last cycle.
        if shares.of_part != number or not shares.waiting:
            shares = self.shares[of or ""] = Shares(parts, shares.cut, number, shares.cut[number])
        return shares.waiting[0]

    def too_large(self, of: str | None, part: Share, parts: int) -> Share | None:
        """Record that a part, or a share, did not fit into its time limit; return the half of it that comes next.

        None for a share that cannot be halved: it is skipped, the others are still read, and the cycle is incomplete.
        ``of`` is the directory (None for the dump), and ``parts`` the number of parts in ``kstate.toml``.
        """
        # Share i of 2n belongs to part (i - 1) mod n + 1: see :class:`Shares`.
        number, of_all = (part[0] - 1) % parts + 1, part[1]
        shares = self.shares.get(of or "")
        if shares is None or shares.parts != parts:
            shares = Shares(parts, {}, number, (part,))
        # The waiting shares belong to another part. Now those of this part are read.
        elif part not in shares.waiting[:1]:
            shares = Shares(parts, shares.cut, number, (part,))
        if of_all * 2 > parts * _MOST_SHARES:
            shares = replace(shares, waiting=shares.waiting[1:], incomplete=True)
            half = None
            if not shares.waiting:
                before = self.parts.get(of or "", Cycle(0, parts))
                # The cycle gets no beginning (None), because the skipped share makes it incomplete.
                self.parts[of or ""] = Cycle(number, parts, None, before.last_complete_ms)
        else:
            # The stores in share i of m are those in the shares i and i + m of 2m.
            halves = ((part[0], of_all * 2), (part[0] + of_all, of_all * 2))
            others = (share for share in shares.cut.get(number, ()) if share != part)
            cut = {**shares.cut, number: (*halves, *others)}
            shares = replace(shares, cut=cut, waiting=(*halves, *shares.waiting[1:]))
            half = halves[0]
        self.shares[of or ""] = shares
        return half

    def verified(self, of: str | None, part: Share, parts: int, began_ms: int, ended_ms: int) -> bool:
        """Record that a part of the stores, or a share of a part (:class:`Shares`), was read.

        Return whether that completes a cycle: all parts were read, one after the other, and no share was skipped.
        """
        number = (part[0] - 1) % parts + 1
        shares = self.shares.get(of or "")
        incomplete = False
        if shares is not None and part in shares.waiting[:1]:
            if shares.began_ms is not None:
                # A part counts as read from the beginning of its first share on.
                began_ms = shares.began_ms
            shares = self.shares[of or ""] = replace(shares, waiting=shares.waiting[1:], began_ms=began_ms)
            if shares.waiting:
                return False
            incomplete = shares.incomplete
        before = self.parts.get(of or "", Cycle(0, parts))
        cycle_began_ms, last_complete_ms = before.began_ms, before.last_complete_ms
        if incomplete:
            cycle_began_ms = None
        elif number == 1:
            cycle_began_ms = began_ms
        is_complete = number == parts and cycle_began_ms is not None
        if is_complete:
            last_complete_ms = ended_ms
        self.parts[of or ""] = Cycle(number, parts, cycle_began_ms, last_complete_ms)
        return is_complete


def has_checked_all(exit_code: int) -> bool:
    """Return whether a reading command has checked everything, with or without findings."""
    return exit_code in (*GOOD, _FINDINGS_CODE)


def take_lock(path: Path) -> int:
    """Lock a memory file. The lock is held until its descriptor is closed in every process that has it.

    Raises InUse if another call, or a command that a killed call has started, is still running. Raises UsageError if
    the lock cannot be created.
    """
    try:
        # The lock has a separate file: the memory file is replaced by a rename, and a lock would stay with the old
        # file.
        lock = os.open(path.with_name(f".{path.name}{LOCK}"), os.O_CREAT | os.O_RDWR | _OURS, 0o600)
    except OSError as error:
        raise UsageError(
            f"kstate cannot write memory_file {quoted(path)}: {error.strerror}",
            hint="create this file's folder and give this user write permission there",
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 200, 0).decode("utf-8", "replace").strip()
        os.close(lock)
        hint = "wait until the other run ends"
        if holder:
            hint += f". It is running {printable(holder)}"
        raise InUse("another run with this memory_file is in progress", where=os.fspath(path), hint=hint) from None
    return lock


def write_to_lock(lock: int, text: str) -> None:
    """Write the text that another call prints if it cannot take the lock."""
    # The holder writes, and others only read: no lock beyond the one it has.
    os.ftruncate(lock, 0)
    os.pwrite(lock, text.encode("utf-8", "replace"), 0)


def read_memory(path: Path) -> Memory:
    """Return the memory in a file; empty if the file does not exist. Raises Refused if kstate did not write it."""
    try:
        content = parse_json(read_small(path, MOST_GIVEN_BYTES))
        return _memory(content)
    except FileNotFoundError:
        return Memory()
    except NotReadableError as error:
        raise _refusal(path, error.why) from None
    except OSError as error:
        raise _refusal(path, f"is unreadable: {error.strerror}") from None
    # AttributeError: a number where an object belongs has no members.
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _refusal(path, "was not written by kstate") from None


def _refusal(path: Path, why: str) -> Refused:
    return Refused(
        f"memory_file {quoted(path)} {why}",
        hint=(
            "check this file and move it elsewhere. Without it, all steps are due, and `kstate verify` starts with "
            "its first part"
        ),
    )


def _memory(content: Any) -> Memory:
    """Return the memory in parsed JSON. Raise ValueError, KeyError or TypeError if it is not as kstate writes it."""
    if content["format"] != FORMAT:
        raise ValueError("a different format")
    memory = Memory()
    for row in content["results"]:
        result = _result(row)
        memory.results[result.step, result.of] = result
    for of, values in content["parts"].items():
        last_part, parts, began_ms, last_complete_ms = values
        cycle = Cycle(last_part, parts, began_ms, last_complete_ms)
        # All values are checked, because a file that was edited must not make kstate skip a part.
        for value in (cycle.last_part, cycle.parts):
            _number(value)
        for time_ms in (cycle.began_ms, cycle.last_complete_ms):
            if time_ms is not None:
                _number(time_ms)
        if not 1 <= cycle.last_part <= cycle.parts:
            raise ValueError("a part")
        memory.parts[of] = cycle
    for of, shares in content.get("shares", {}).items():
        memory.shares[of] = _shares(shares)
    return memory


def _result(row: Any) -> Result:
    """Return the result of a step. Raise ValueError, KeyError or TypeError if the row is not a result."""
    # An unknown member raises TypeError. Then a newer kstate wrote the file, which is refused.
    result = Result(**{**row, "lags": tuple(row["lags"])})
    for number in (result.began_ms, result.ended_ms, result.exit):
        _number(number)
    # A dataclass does not check the types of its fields.
    if not isinstance(result.step, str) or not (result.of is None or isinstance(result.of, str)):
        raise TypeError("a step has a name")
    if result.success_ms is not None:
        _number(result.success_ms)
    for code, count in result.findings.items():
        if len(code.split()) != 2:
            raise ValueError("a level and a code")
        _number(count)
    for lag in result.lags:
        _lag(lag)
    return result


def _shares(content: Any) -> Shares:
    """Return the shares of a directory in parsed JSON. Raise ValueError, KeyError or TypeError if they are not so."""
    parts, of_part = _number(content["parts"]), _number(content["of_part"])
    cut = {_number(int(name)): _of_a_part(shares, int(name), parts) for name, shares in content["cut"].items()}
    began_ms = None
    if content["began_ms"] is not None:
        began_ms = _number(content["began_ms"])
    return Shares(
        parts, cut, of_part, _of_a_part(content["waiting"], of_part, parts), began_ms, bool(content["incomplete"])
    )


def _of_a_part(content: Any, part: int, parts: int) -> tuple[Share, ...]:
    """Return shares of a part in parsed JSON. Raise ValueError for a share of another part, or of another count."""
    shares = tuple((_number(number), _number(of_all)) for number, of_all in content)
    for number, of_all in shares:
        if not 1 <= number <= of_all or (number - 1) % parts + 1 != part or of_all % parts:
            raise ValueError("a share")
    return shares


def _lag(lag: Mapping[str, Any]) -> None:
    """Raise TypeError, KeyError or AttributeError if ``lag`` is not an entry of :attr:`Result.lags`."""
    if not isinstance(lag["task"], str) or not isinstance(lag["store"], str):
        raise TypeError("a store has a name")
    for key in ("lag", "lag_seconds"):
        if lag[key] is not None and not isinstance(lag[key], (int, float)):
            raise TypeError("a lag is a number")
    for partitions in lag["reached"].values():
        for offset in partitions.values():
            if type(offset) is not int:
                raise TypeError("an offset is a number")


def _number(value: Any) -> int:
    """Return a count or a time of the file. Raise ValueError if it is not one."""
    # type, not isinstance: bool is an int in Python.
    if type(value) is not int or not 0 <= value <= MAX_I64:
        raise ValueError("a number")
    return value


def write_memory(path: Path, memory: Memory) -> None:
    """Replace the file. Raises OSError, and leaves the old file unchanged then."""
    content = {
        "format": FORMAT,
        "results": [asdict(result) for result in memory.results.values()],
        "parts": {of: list(part) for of, part in memory.parts.items()},
        "shares": {of: asdict(shares) for of, shares in memory.shares.items()},
    }
    # Replaced as a whole, and synced: after a crash the file is the old or the new one.
    replace_text(path, json.dumps(content) + "\n", mode=0o600)
