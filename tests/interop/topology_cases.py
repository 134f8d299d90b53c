"""The directories that ``kstate check --topology`` and real releases are asked about: what wrote them, and what is started."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from .check_cases import OLD, STARTED
from .checking import PARTS, Directory
from .harness import Guarantee, Harness, Run
from .support import kstate

A = "removed,global-table,count+window-count,reduce,session-count,source-table,last-count+in-memory"
"""Sub-topologies in the order of their numbers, and the stores of each (``Parts.java``); a global store takes a number."""
B = "global-table,count,window-count,reduce+session-count+new-count,source-table,last-count+in-memory"
"""A after a change: one gone, one split, two merged, the others renumbered, a table on its source topic among them."""
NEW_COUNT = '[stores.new-count]\nkind = "timestamped-key-value"\n'


def without_global(parts: str) -> str:
    """The same without its global store: what follows has other numbers."""
    return parts.replace("global-table,", "").replace(",global-table", "")


@dataclass(frozen=True)
class Started:
    """What an edit of a case may go by."""

    harness: Harness
    directory: Directory
    release: str
    after: str
    words: tuple[object, ...]
    """``--topology`` and what else is said to ``kstate``."""

    def run(self, run: Run, parts: str | None = None) -> None:
        """A start of the new topology, or of another one, on the directory."""
        app = self.directory.base.app
        started = type(app)(app.name, PARTS + (parts or self.after), app.guarantee, app.input)
        self.harness.run(self.release, started, self.directory.path.parent, run)


Prepare = Callable[[Started], None]


def nothing(_: Started) -> None:
    """The directory as it was left."""


def rehome_and_start(started: Started) -> None:
    """By kstate."""
    result = kstate("rehome", started.directory.path, *started.words, "--warnings-ok")
    assert result.status == 0, result.report


def rehome_and_kill(started: Started) -> None:
    """Rehomed; then the new topology ran, and was killed."""
    rehome_and_start(started)
    started.run(Run(read=False, kill=True))


def kill_start(started: Started) -> None:
    """A start of the new topology that was killed, or that failed."""
    started.run(Run(read=False, kill=True))


def ran(started: Started) -> None:
    """The new topology has run here, and restored what it needed."""
    started.run(Run(read=False, options={"timeout": 25}))


def keep_a_single_partition(started: Started) -> None:
    """The other partition lies on another host."""
    for task in started.directory.path.glob("*_1"):
        shutil.rmtree(task)


def leave_a_task(started: Started) -> None:
    """Of the sub-topology that is gone one task is here."""
    for task in started.directory.path.glob("6_1"):
        shutil.rmtree(task)


def leave_tasks_without_stores(started: Started) -> None:
    """Nothing but ``.checkpoint`` is in the tasks of the sub-topology that is gone."""
    for task in started.directory.path.glob("6_*"):
        shutil.rmtree(task)
        task.mkdir()
        (task / ".checkpoint").write_text("0\n0\n", encoding="utf-8")


def leave_malformed_checkpoint(started: Started) -> None:
    """``.checkpoint`` of a task of the sub-topology that is gone is no such file."""
    (started.directory.path / "6_0" / ".checkpoint").write_text("x\n", encoding="utf-8")


@dataclass(frozen=True)
class Change:
    """One directory, and the topology that is started on it."""

    name: str
    situation: str
    """For the table in the docs."""
    before: str = A
    after: str = B
    prepare: Prepare = nothing
    code: str | None = None
    """The finding that it must have; None: all is well."""
    guarantee: Guarantee = "eos"
    releases: tuple[str, ...] = STARTED
    killed: bool = False
    named: str | None = None
    with_old: bool = True
    spec: str = NEW_COUNT
    with_rehome: bool = False
    """``kstate rehome``, as the check names it, is run then, and all is well."""
    quick: bool = False

    @property
    def varies(self) -> bool:
        """Whether what it begins with is another thing each time."""
        return self.killed or self.prepare in (kill_start, rehome_and_kill)


SHIFTED = A.removeprefix("removed,")
_NO_LOG = "removed,global-table,count,last-count+no-log"
CHANGES = [
    Change("homes-at-home", "no change", after=A, quick=True),
    Change("homes-at-home-alos", "no change", after=A, guarantee="alos"),
    Change("homes-changed", "one sub-topology was removed, one was split, two were merged, one was added, and the others were renumbered", code="store-elsewhere",
           with_rehome=True, quick=True),
    Change("homes-changed-alos", "the same change", code="store-elsewhere", with_rehome=True, guarantee="alos"),
    Change("homes-changed-unsaid", "the same change, but the test passes neither the old topology nor the kinds of the stores", code="new-store", with_old=False, spec=""),
    Change("homes-changed-no-global", "the same change, without a global store", without_global(A), without_global(B),
           code="store-elsewhere", with_rehome=True),
    Change("homes-changed-no-global-alos", "the same change, without a global store", without_global(A), without_global(B),
           code="store-elsewhere", guarantee="alos"),
    Change("homes-shifted", "the first sub-topology was removed", after=SHIFTED, code="store-elsewhere", with_rehome=True, spec=""),
    Change("homes-last-gone", "the last sub-topology was removed", after=A.removesuffix(",last-count+in-memory"), code="left-over-task",
           with_rehome=True, spec=""),
    Change("homes-one-left-over", "the last sub-topology was removed, and one of its tasks is on this host", after=A.removesuffix(",last-count+in-memory"),
           prepare=leave_a_task, code="left-over-task", spec=""),
    Change("homes-empty-left-over", "the last sub-topology was removed, and its tasks are empty", after=A.removesuffix(",last-count+in-memory"),
           prepare=leave_tasks_without_stores, spec=""),
    Change("homes-malformed-left-over", "the last sub-topology was removed, and one of its `.checkpoint` files is malformed",
           after=A.removesuffix(",last-count+in-memory"), prepare=leave_malformed_checkpoint, code="malformed-checkpoint", spec=""),
    Change("homes-store-new", "a store on disk was added", after=A.replace("reduce", "reduce+new-count"), code="new-store", with_rehome=True),
    Change("homes-store-new-alos", "a store on disk was added", after=A.replace("reduce", "reduce+new-count"), guarantee="alos"),
    Change("homes-window-new", "a window store was added", after=A.replace("reduce", "reduce+new-window"), code="new-store",
           spec='[stores.new-window]\nkind = "window"\n', with_rehome=True),
    Change("homes-memory-new", "an in-memory store was added", after=A.replace("reduce", "reduce+new-in-memory"),
           spec='[stores.new-in-memory]\nkind = "in-memory"\n'),
    Change("homes-store-gone", "one of several stores in a sub-topology was removed", after=A.replace("count+window-count", "window-count"),
           code="store-not-in-topology", with_rehome=True, spec=""),
    Change("homes-global-gone", "the global store was removed", SHIFTED, without_global(SHIFTED), code="store-elsewhere",
           with_rehome=True, spec=""),
    Change("homes-global-new", "a global store was added", without_global(SHIFTED), SHIFTED, code="store-elsewhere",
           with_rehome=True, spec=""),
    Change("homes-global-memory", "changed, with an in-memory global store", A.replace("global-table", "global-memory"),
           B.replace("global-table", "global-memory"), code="left-over-task", guarantee="alos"),
    Change("homes-two-globals", "one of two global stores was removed", f"global-second,{SHIFTED}", SHIFTED,
           code="global-unknown-topic", releases=OLD, with_rehome=True, spec=""),
    Change("homes-no-log", "a store without a changelog moved to a different task", _NO_LOG, _NO_LOG.removeprefix("removed,"),
           code="moved-without-changelog", releases=OLD, with_rehome=True, spec=""),
    Change("homes-no-log-no-global", "a store without a changelog moved to a different task, and there is no global store", without_global(_NO_LOG),
           without_global(_NO_LOG).removeprefix("removed,"), code="moved-without-changelog", with_rehome=True, spec="",
           guarantee="alos"),
    Change("homes-killed", "changed after the application was killed", killed=True, code="left-over-task"),
    Change("homes-killed-alos", "changed after the application was killed", killed=True, code="left-over-task", guarantee="alos"),
    Change("homes-tried", "changed, and the new topology was started once and killed", prepare=kill_start, code="left-over-task"),
    Change("homes-tried-alos", "changed, and the new topology was started once and killed", prepare=kill_start, code="left-over-task",
           guarantee="alos"),
    Change("homes-ran", "changed, and the new topology has already run on this host", prepare=ran, code="left-over-task", releases=OLD),
    Change("homes-rehomed", "changed, and moved with `kstate rehome`", prepare=rehome_and_start, quick=True),
    Change("homes-rehomed-alos", "changed, and moved with `kstate rehome`", prepare=rehome_and_start, guarantee="alos"),
    Change("homes-rehomed-killed", "changed, moved with `kstate rehome`, started and killed", prepare=rehome_and_kill),
    Change("homes-rehomed-killed-alos", "changed, moved with `kstate rehome`, started and killed", prepare=rehome_and_kill, guarantee="alos"),
    Change("homes-one-partition", "changed, and the other partition is on a different host", prepare=keep_a_single_partition, code="store-elsewhere"),
    Change("homes-named", "changed, with a named topology", without_global(A), without_global(B), code="store-elsewhere",
           named="shop", with_rehome=True),
]  # fmt: skip
