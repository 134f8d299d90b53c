"""
The cases of `kstate restore`: a directory that is lost, one with a store wiped, one that is behind, and one whose restoration
was killed in its middle, for a release that keeps offsets in files and for one that keeps them in the stores.

Slices are made in the process of the command (`--engine local`), by the tasks that Spark would run: so one trace has all calls.
As with migrations there is a case for the directory with several kinds of stores, and one for each part of it.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.unit.rehome.texts import text

from . import tiny_dump
from .case import Case, Repair
from .forked import Kstate
from .injection import KILL, Fault, trace_of
from .tiny_dump import APP, GLOBAL, KV, VERSIONED, WINDOW, Dump

EXACT = {"4.2": "4.2.1", "4.3": "4.3.1"}
_HALF = 0.5


@dataclass(frozen=True)
class Restoration:
    """What is restored, for which release, and what is there before."""

    name: str
    release: str
    stores: tuple[str, ...]
    before: Callable[[Restoration, Kstate, Path], None]
    """Makes what is there before, in a state directory of its own."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command line; a run before it may have ended in ERROR."""
        return restore(self.dump(), self.release, "--after-error")

    def dump(self, part: float = 1.0) -> Dump:
        """The dump of these stores, or its first part."""
        return _dump(self.stores, part)


def restore(dump: Dump, release: str, *options: str) -> tuple[str, ...]:
    """One worker, one slice after the other: the order of the calls is then the same every time."""
    return (
        "restore",
        *dump.options,
        "--for",
        release,
        "--quiet",
        "--workers",
        "1",
        "--engine",
        "local",
        "--warnings-ok",
        *options,
    )


def lost(restoration: Restoration, kstate: Kstate, state: Path) -> None:
    """Nothing but the state.dir."""


def wipe_store(restoration: Restoration, kstate: Kstate, state: Path) -> None:
    """The first store was moved out; a task that it shared with others keeps those."""
    _good(kstate, state / APP, restore(restoration.dump(), restoration.release))
    _good(kstate, state / APP, ("wipe", "--store", restoration.stores[0], "--quiet"))
    _good(kstate, state / APP, ("clean",))


def behind(restoration: Restoration, kstate: Kstate, state: Path) -> None:
    """Restored from a dump that was half as long."""
    _good(kstate, state / APP, restore(restoration.dump(_HALF), restoration.release))
    _good(kstate, state / APP, ("clean",))


def interrupt_restoration(restoration: Restoration, kstate: Kstate, state: Path) -> None:
    """Lost; its restoration was killed when it noted that it begins the last of its slices."""
    undisturbed = _temporary() / "w" / "state"
    undisturbed.mkdir(parents=True)
    notes = [
        step
        for step in trace_of(kstate, undisturbed / APP, restoration.command).steps
        if step.path.endswith(".started.tmp")
    ]
    last = next(step for step in reversed(notes) if step.call == "openat")
    fault = Fault(last.call, last.nth_filtered, KILL)
    ended, killed = fault.strike(
        kstate, state / APP, restoration.command, last.argument.replace(str(undisturbed), str(state))
    )
    assert killed, ended


def _good(kstate: Kstate, app: Path, command: tuple[str, ...]) -> None:
    ended = kstate(app, command)
    assert ended.status == 0, ended.output


@functools.cache
def _dump(stores: tuple[str, ...], part: float) -> Dump:
    return tiny_dump.make(_temporary() / "dump", stores, part=part)


def _temporary() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="kstate-faults-")
    _backup.append(folder)
    return Path(folder.name)


_backup: list[tempfile.TemporaryDirectory[str]] = []
_outputs: dict[Restoration, Path] = {}


def fresh(restoration: Restoration, kstate: Kstate, state: Path) -> Path:
    """What is there before, copied with its times from where it was made once."""
    if restoration not in _outputs:
        template = _temporary() / "w" / "state"
        template.mkdir(parents=True)
        restoration.before(restoration, kstate, template)
        _outputs[restoration] = template
    state.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(_outputs[restoration]), str(state)], check=True)
    return state.resolve() / APP


def restoration(entry: Restoration, share: tuple[int, int] | None = None) -> Case:
    """`kstate restore`, repaired by undo and by itself: as a resumption, where slices are finished."""
    return Case(
        entry.name,
        lambda kstate, state: fresh(entry, kstate, state),
        entry.command,
        {"old": EXACT[entry.release], "new": EXACT[entry.release]},
        (
            Repair(("undo",), "old"),
            Repair(entry.command, "new"),
            Repair(entry.command, "new"),
            Repair(("undo",), "old"),
        ),
        share=share,
    )


def half(restoration: Restoration, kstate: Kstate, state: Path) -> None:
    """One store of two, whose tasks lay on two hosts before they became one."""
    here = _dump(restoration.stores[:1], 1.0)
    _good(kstate, state / APP, restore(here, restoration.release))
    _good(kstate, state / APP, ("clean",))


@dataclass(frozen=True)
class Completion(Restoration):
    """`kstate rehome`, which restores in the same run what the task lacks."""

    @property
    def command(self) -> tuple[str, ...]:
        """With the texts of before and after."""
        dump = self.dump()
        old, new = dump.folder / "old.txt", dump.folder / "new.txt"
        old.write_text(text({at: (store,) for at, store in enumerate(self.stores)}), encoding="utf-8")
        new.write_text(text({0: self.stores}), encoding="utf-8")
        return ("rehome", "--topology", str(new), "--from", str(old), *restore(dump, self.release, "--after-error")[1:])


def _restoration_of(way: str, release: str, *stores: str) -> Restoration:
    before = {"lost": lost, "wiped": wipe_store, "behind": behind, "resumed": interrupt_restoration}[way]
    return Restoration(f"restore-{way}-{release}-{'-'.join(stores)}", release, stores, before)


_WHOLE = (
    _restoration_of("lost", "4.3", KV, GLOBAL),
    _restoration_of("behind", "4.2", KV, VERSIONED),
    _restoration_of("resumed", "4.3", GLOBAL),
    Completion("rehome-half-4.3", "4.3", (KV, VERSIONED), half),
)
RESTORED = tuple(restoration(entry, (i, len(_WHOLE))) for i, entry in enumerate(_WHOLE))
RESTORED_IN_PARTS = tuple(
    restoration(completion)
    for completion in (
        _restoration_of("lost", "4.3", KV),
        _restoration_of("lost", "4.2", WINDOW),
        _restoration_of("wiped", "4.2", KV, VERSIONED),
        _restoration_of("behind", "4.3", KV),
        _restoration_of("behind", "4.2", GLOBAL),
        _restoration_of("resumed", "4.2", GLOBAL),
        Completion("rehome-half-4.2", "4.2", (KV, VERSIONED), half),
    )
)
