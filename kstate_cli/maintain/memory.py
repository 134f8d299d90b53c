"""What ``kstate maintain`` remembers from call to call: a file of its own, replaced as a whole after every step.

Without it everything is due, no more: nothing that is done depends on what was remembered.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kstate_cli.errors import InUse, Refused, UsageError
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.json_text import parse_json
from kstate_cli.regular_files import MOST_GIVEN_BYTES, NotReadableError, read_small, replace_text
from kstate_cli.statedir.names import LOCK
from kstate_cli.texts import printable, quoted

FORMAT: Final = 1
_OURS: Final = os.O_CLOEXEC | os.O_NOFOLLOW
GOOD: Final = (0, 1)
"""Exit codes of a command that did what it was asked for."""
_FOUND: Final = 3
"""Of one that has looked at everything, and found something."""
_MOST_SHARES: Final = 1 << 16
"""A share that does not fit then has a single store that takes too long."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a step the last time; times are ms since 1970."""

    step: str
    of: str | None
    began_ms: int
    ended_ms: int
    exit: int
    success_ms: int | None
    """When it last ended with 0, or with 1 and ``--warnings-ok``."""
    message: str | None = None
    findings: Mapping[str, int] = field(default_factory=dict)
    """``level code`` -> how many."""
    lags: tuple[Mapping[str, Any], ...] = ()
    """Of each store: ``task``, ``store``, ``lag``, ``lag_seconds``, and ``reached``: {topic: {partition: offset}}."""

    @property
    def good(self) -> bool:
        """Whether it did what it was asked for."""
        return self.exit in GOOD


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts that do not fit into the time limit of their step, and are read share by share.

    The stores of part i of n are those of the parts i and i + n of 2 n.
    """

    parts: int
    """Into how many parts ``kstate.toml`` cuts the stores."""
    cut: Mapping[int, tuple[tuple[int, int], ...]]
    """A part -> its shares, each as its number and of how many; a part that fits is not among them."""
    of_part: int
    waiting: tuple[tuple[int, int], ...]
    """The shares of that part that are still to be read."""
    began_ms: int | None = None
    """When the first share of the part that was read was begun."""
    incomplete: bool = False
    """A share of the part was passed over."""


@dataclass(slots=True)
class Memory:
    """All of it."""

    results: dict[tuple[str, str | None], Result] = field(default_factory=dict)
    parts: dict[str, tuple[int, int, int | None, int | None]] = field(default_factory=dict)
    """Of a directory: the part that was verified last, of how many, when the circle began, when one was last full."""
    shares: dict[str, Shares] = field(default_factory=dict)
    """Of a directory whose parts do not fit into the time limit of the step."""

    def result(self, step: str, of: str | None) -> Result | None:
        """What came of a step the last time."""
        return self.results.get((step, of))

    def forget_others(self, wanted: Collection[tuple[str, str | None]]) -> None:
        """Steps that are no longer asked for: nothing is to look as if they were late."""
        self.results = {key: one for key, one in self.results.items() if key in wanted}
        steps = {("verify", of): of or "" for of in self.parts} | {("verify-dump", None): ""}
        known = {of for step, of in steps.items() if step in wanted}
        self.parts = {of: one for of, one in self.parts.items() if of in known}
        verified = {of or "" for step, of in wanted if step == "verify"}
        self.shares = {of: shares for of, shares in self.shares.items() if of in verified}

    def next_part(self, of: str | None, parts: int) -> tuple[int, int]:
        """Return the part that comes next, or the next share of it; the first part if they are other parts now."""
        last, known, _, _ = self.parts.get(of or "", (0, parts, None, None))
        number = last % parts + 1 if known == parts else 1
        shares = self.shares.get(of or "")
        if shares is None or shares.parts != parts or number not in shares.cut:
            return number, parts
        if shares.of_part != number or not shares.waiting:
            shares = self.shares[of or ""] = Shares(parts, shares.cut, number, shares.cut[number])
        return shares.waiting[0]

    def too_large(self, of: str | None, part: tuple[int, int], parts: int) -> tuple[int, int] | None:
        """Note that a part, or a share, did not fit into its time; return its half that comes next.

        None for a share that cannot be cut: it is passed over, the others are read, and the circle is not full.
        """
        number, of_all = (part[0] - 1) % parts + 1, part[1]
        shares = self.shares.get(of or "")
        if shares is None or shares.parts != parts:
            shares = Shares(parts, {}, number, (part,))
        elif part not in shares.waiting[:1]:
            shares = Shares(parts, shares.cut, number, (part,))
        if of_all * 2 > parts * _MOST_SHARES:
            shares = replace(shares, waiting=shares.waiting[1:], incomplete=True)
            half = None
            if not shares.waiting:
                _, _, _, full = self.parts.get(of or "", (0, parts, None, None))
                self.parts[of or ""] = (number, parts, None, full)
        else:
            halves = ((part[0], of_all * 2), (part[0] + of_all, of_all * 2))
            others = (share for share in shares.cut.get(number, ()) if share != part)
            cut = {**shares.cut, number: (*halves, *others)}
            shares = replace(shares, cut=cut, waiting=(*halves, *shares.waiting[1:]))
            half = halves[0]
        self.shares[of or ""] = shares
        return half

    def verified(self, of: str | None, part: tuple[int, int], parts: int, began_ms: int, ended_ms: int) -> bool:
        """Note that a part, or a share, was read; return whether that was the last of a full circle."""
        number = (part[0] - 1) % parts + 1
        shares = self.shares.get(of or "")
        incomplete = False
        if shares is not None and part in shares.waiting[:1]:
            began_ms = began_ms if shares.began_ms is None else shares.began_ms
            shares = self.shares[of or ""] = replace(shares, waiting=shares.waiting[1:], began_ms=began_ms)
            if shares.waiting:
                return False
            incomplete = shares.incomplete
        _, _, circle, full = self.parts.get(of or "", (0, parts, None, None))
        circle = None if incomplete else began_ms if number == 1 else circle
        is_full = number == parts and circle is not None
        self.parts[of or ""] = (number, parts, circle, ended_ms if is_full else full)
        return is_full


def looked(exit_code: int) -> bool:
    """Whether a command that only looks has looked at everything."""
    return exit_code in (*GOOD, _FOUND)


def take_lock(path: Path) -> int:
    """The lock of a memory file, held until its descriptor is closed in every process that has it.

    Raises InUse where a call, or a command of one that was killed, is still there; UsageError where it cannot be made.
    """
    try:
        lock = os.open(path.with_name(f".{path.name}{LOCK}"), os.O_CREAT | os.O_RDWR | _OURS, 0o600)
    except OSError as error:
        raise UsageError(
            f"memory_file {quoted(path)} cannot be written: {error.strerror}",
            hint="its folder has to be there, and yours",
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        who = os.pread(lock, 200, 0).decode("utf-8", "replace").strip()
        os.close(lock)
        raise InUse(
            "another call with this memory_file is at work",
            where=os.fspath(path),
            hint=f"wait for it; last it said: {printable(who)}" if who else "wait for it",
        ) from None
    return lock


def tell_in_lock(lock: int, text: str) -> None:
    """Whoever finds the lock taken is told this."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, text.encode("utf-8", "replace"), 0)


def read_memory(path: Path) -> Memory:
    """What is remembered; nothing where there is no file. Raises Refused for a file that is none of ours."""
    try:
        content = parse_json(read_small(path, MOST_GIVEN_BYTES))
        return _memory(content)
    except FileNotFoundError:
        return Memory()
    except NotReadableError as error:
        raise _refused(path, error.why) from None
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise _refused(path, "is not what is written here") from None


def _refused(path: Path, why: str) -> Refused:
    return Refused(
        f"memory_file {quoted(path)} {why}",
        hint="look at it, and move it elsewhere: without it every step is due, and verify begins with its first part",
    )


def _memory(content: Any) -> Memory:
    if content["format"] != FORMAT:
        raise ValueError("another format")
    memory = Memory()
    for one in content["results"]:
        result = Result(**{**one, "lags": tuple(one["lags"])})
        for number in (result.began_ms, result.ended_ms, result.exit):
            _number(number)
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
        memory.results[result.step, result.of] = result
    for of, (number, parts, circle, full) in content["parts"].items():
        for value in (number, parts, *(one for one in (circle, full) if one is not None)):
            _number(value)
        if not 1 <= number <= parts:
            raise ValueError("a part")
        memory.parts[of] = (number, parts, circle, full)
    for of, shares in content.get("shares", {}).items():
        memory.shares[of] = _shares(shares)
    return memory


def _shares(content: Any) -> Shares:
    parts, of_part = _number(content["parts"]), _number(content["of_part"])
    cut = {_number(int(name)): _of_a_part(shares, int(name), parts) for name, shares in content["cut"].items()}
    began_ms = None if content["began_ms"] is None else _number(content["began_ms"])
    return Shares(
        parts, cut, of_part, _of_a_part(content["waiting"], of_part, parts), began_ms, bool(content["incomplete"])
    )


def _of_a_part(content: Any, part: int, parts: int) -> tuple[tuple[int, int], ...]:
    shares = tuple((_number(number), _number(of_all)) for number, of_all in content)
    for number, of_all in shares:
        if not 1 <= number <= of_all or (number - 1) % parts + 1 != part or of_all % parts:
            raise ValueError("a share")
    return shares


def _lag(lag: Mapping[str, Any]) -> None:
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
    if type(value) is not int or not 0 <= value <= MAX_I64:
        raise ValueError("a number")
    return value


def write_memory(path: Path, memory: Memory) -> None:
    """Replaces the file. Raises OSError, with the old one as it was."""
    content = {
        "format": FORMAT,
        "results": [asdict(one) for one in memory.results.values()],
        "parts": {of: list(one) for of, one in memory.parts.items()},
        "shares": {of: asdict(shares) for of, shares in memory.shares.items()},
    }
    replace_text(path, json.dumps(content) + "\n", mode=0o600)
