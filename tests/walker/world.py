"""The directory on disk beside its model: runs a command, and holds what is there against what should be."""

from __future__ import annotations

import re
import shutil
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.faults.forked import Ended

from . import content as contents
from .commands import Commands, Trouble
from .content import Content, meaning_differences
from .dumps import Dump
from .model import Effect, Expected, Pending, Run, Version, migration, misfits
from .snapshot import Entry, Tree, differences, snapshot
from .streams import Streams

MARKS = frozenset({".kstate-staged", ".kstate-undoing"})
IGNORED = MARKS | {".lock"}
"""At the top of an application directory: the lock, which is one file for all, and the marks of kstate."""
AGES = "ages.json"
"""What kstate knows of the age of data that it has made; it stays when runs are cleaned away."""
_RUN = re.compile(r"(\d{4,})-(migrate|wipe|restore|rehome)")
Command = tuple[str, ...]


def taken_over(runs: list[Run]) -> list[Run]:
    """Runs that died, brought to an end. Only ``clean`` goes on with what it was deleting."""
    ends = {Pending.STAGED: "failed", Pending.SWITCHED: "kept", Pending.UNDOING: "kept", Pending.UNDONE: "undone"}
    return [replace(run, state=ends[run.pending], pending=None) if run.pending in ends else run for run in runs]


class Wrong(AssertionError):
    """The directory, or what a command said, is not what the model has."""


@dataclass
class World:
    """One application directory."""

    app: Path
    commands: Commands
    streams: Streams
    version: Version | None
    runs: list[Run] = field(default_factory=list)
    report: list[str] = field(default_factory=list)
    """What has happened, for whoever reads of a failure."""
    count: int = 0
    """Commands so far."""
    dump: Dump | None = None
    """The last one that was taken."""
    dumps: int = 0
    troubled: bool = False
    """The last command was killed, or met a disk that failed."""
    scarred: bool = False
    """A command died or failed: it may have left an empty folder, or a mark, that nobody minds."""

    @property
    def runs_folder(self) -> Path:
        """Where kstate keeps its runs."""
        return self.app.parent / ".kstate" / self.app.name

    # What is there.

    def tree(self) -> Tree | None:
        """The application directory; None where it is lost."""
        return snapshot(self.app, IGNORED) if self.app.exists() else None

    def look(self, unclean: frozenset[str]) -> Version:
        """The application directory, read whole."""
        return Version(snapshot(self.app, IGNORED), contents.read(self.app), unclean)

    def folders(self) -> list[str]:
        """The names of the runs on disk, in the order of their numbers."""
        if not self.runs_folder.is_dir():
            return []
        names = [path.name for path in self.runs_folder.iterdir() if path.name != AGES]
        return sorted(names, key=lambda name: (int(name.split("-")[0]) if _RUN.fullmatch(name) else -1, name))

    def backup_of(self, run: Run) -> Tree | None:
        """The tree of a run."""
        tree = self.runs_folder / run.name / "tree"
        return snapshot(tree, IGNORED) if tree.exists() else None

    def named(self, name: str) -> Run:
        """A run that the model knows."""
        return next(run for run in self.runs if run.name == name)

    # Running.

    def run(self, argv: Command, expected: Expected, trouble: Trouble | None = None) -> Ended:
        """Run a command and hold what it did against the model, which then is as the command has left the directory."""
        before = self.version
        ended = self.commands(self.app, argv, trouble)
        self.count += 1
        self.troubled = trouble is not None
        self.scarred |= self.troubled
        line = f"{' '.join(argv)}{f' [{trouble}]' if trouble else ''} -> {ended.status}"
        self.report.append(line)
        if "Traceback" in ended.output or "a defect of kstate" in ended.output:
            raise Wrong(f"{line}: {ended.output[-3000:]}")
        failed = trouble is not None and trouble.kind == "fail" and ended.status not in expected.statuses - {4, 5}
        if failed or (trouble is not None and ended.status == -signal.SIGKILL):
            self._broken_off(line, ended, expected, before)
        else:
            self._ended(line, ended, expected, before)
        self.audit(line)
        return ended

    def _ended(self, line: str, ended: Ended, expected: Expected, before: Version | None) -> None:
        if ended.status not in expected.statuses:
            raise Wrong(f"{line}, not {sorted(expected.statuses)}: {ended.output[-2000:]}")
        for text in expected.texts:
            if text not in ended.output:
                raise Wrong(f"{line} does not say {text!r}: {ended.output[-2000:]}")
        if expected.takes_over:
            self.take_over()
        if expected.effect is Effect.CHANGE:
            self._changed(line, expected, before)
            self._unmarked(line)
        elif expected.effect is Effect.UNDO:
            self._undone(line, self.named(expected.runs[0]))
            self._unmarked(line)
        elif expected.effect is Effect.CLEAN:
            self.runs = [run for run in self.runs if run.name not in expected.runs]

    def _unmarked(self, line: str) -> None:
        marks = [name for name in sorted(MARKS) if (self.app / name).exists()]
        if marks and not self.troubled:
            raise Wrong(f"{line}: {marks} are left")

    def take_over(self) -> None:
        """What the model makes of runs that died, once a command has taken them over."""
        there = self.folders()
        # A folder without a journal goes at once, unless that fails.
        stay = [run for run in self.runs if self.scarred and not run.announced and run.name in there]
        ended = [run for run in taken_over(self.runs) if run.name in there or run.state != "failed"]
        self.runs = [next((entry for entry in stay if entry.name == run.name), run) for run in ended]

    def _changed(self, line: str, expected: Expected, before: Version | None) -> None:
        after = self.look(expected.unclean)
        self._holds(line, expected, after)
        if not expected.purge:
            name = self._new_run(line)
            self.runs.append(Run(name, "kept", before or self._nothing(), after.tree, precious=expected.precious))
        self.version = after

    def _holds(self, line: str, expected: Expected, after: Version) -> None:
        wrong = meaning_differences(expected.meaning, after.content.meaning)
        if expected.release is not None:
            wrong += misfits(after.content, expected.release)
        if wrong:
            raise Wrong(f"{line}: the new directory: {'; '.join(wrong[:6])}")

    def _nothing(self) -> Version:
        """What is kept where the directory was lost: the empty one that was made to hold the lock."""
        mode = self.app.lstat().st_mode
        return Version({".": Entry("folder", mode, 0, 0, "")}, Content(), frozenset())

    def _new_run(self, line: str) -> str:
        new = [name for name in self.folders() if name not in {run.name for run in self.runs}]
        if len(new) != 1:
            raise Wrong(f"{line}: new runs {new}")
        return new[0]

    def _undone(self, line: str, run: Run) -> None:
        back, away = run.version, self.version
        assert back is not None
        wrong = differences(back.tree, self.tree() or {})
        if wrong:
            raise Wrong(f"{line}: what came back is not what was kept: {'; '.join(wrong[:6])}")
        self.version = Version(self.tree() or {}, contents.read(self.app), back.unclean)
        run.state, run.version, run.pending, run.old = "undone", away, None, False

    def migrate(self, release: str) -> None:
        """A migration without trouble."""
        self.run(("migrate", "--to", release, "-q"), migration(self.version, {"to": release}))

    # After a kill or an error.

    def _broken_off(self, line: str, ended: Ended, expected: Expected, before: Version | None) -> None:
        now = self.tree()
        same = now == (before.tree if before else None)
        if before is None and now is not None and now.keys() == {"."}:
            # Made to hold the lock, and its maker died.
            self.version, same = Version(now, Content(), frozenset()), True
        if "nothing has changed" in ended.output and not same:
            raise Wrong(
                f"{line} says that nothing has changed, and {differences(before.tree if before else {}, now or {})[:4]}"
            )
        if ended.status in (4, 6) and not same:
            raise Wrong(f"{line}: the directory has changed: {ended.output[-1500:]}")
        new = [name for name in self.folders() if name not in {run.name for run in self.runs}]
        if expected.effect is Effect.CHANGE and not same:
            after = self.look(expected.unclean)
            self._holds(line, expected, after)
            if len(new) > 1 or (not new and not expected.purge):
                raise Wrong(f"{line}: new runs {new}")
            for name in new:
                old = before or self._nothing()
                whole = self._whole(name, old)
                if not whole and not expected.purge:
                    raise Wrong(f"{line}: {name} has not kept what was there")
                pending = Pending.SWITCHED if whole else Pending.CLEANING
                self.runs.append(
                    Run(name, "interrupted", old if whole else None, after.tree, pending, precious=expected.precious)
                )
            self.version = after
        elif expected.effect is Effect.UNDO:
            run = self.named(expected.runs[0])
            if same:
                run.pending = Pending.UNDOING if run.pending is None else run.pending
            else:
                self._undone(line, run)
                run.pending = Pending.UNDONE
        elif expected.effect is Effect.CLEAN:
            self._partly_cleaned(expected)
        if same and expected.effect is Effect.CHANGE:
            self.runs += [
                Run(name, "interrupted", pending=Pending.STAGED, announced=self._announced(name)) for name in new
            ]
        self._ask(line, ended)

    def _announced(self, name: str) -> bool:
        journal = self.runs_folder / name / "journal.jsonl"
        return journal.exists() and b"\n" in journal.read_bytes()

    def _whole(self, name: str, version: Version) -> bool:
        return self.backup_of(Run(name, "")) == version.tree

    def _partly_cleaned(self, expected: Expected) -> None:
        there = self.folders()
        self.runs = [run for run in self.runs if run.name in there or run.name not in expected.runs]
        for run in self.runs:
            if run.name in expected.runs and run.version is not None and not self._whole(run.name, run.version):
                run.version, run.pending, run.old = None, Pending.CLEANING, False

    def _ask(self, line: str, ended: Ended) -> None:
        """
        Where a process has died what its journal says decides what comes next: ask `kstate status`.

        It only decides between states that what is on disk allows.
        """
        there = self.folders()
        for run in [run for run in self.runs if run.name not in there]:
            if run.pending not in (Pending.STAGED, Pending.CLEANING):
                raise Wrong(f"{line}: run {run.name} is gone")
            self.runs.remove(run)
        rows = {row["run"]: row for row in self.commands.json(self.app, ("status",))} if there else {}
        if sorted(rows) != sorted(run.name for run in self.runs):
            raise Wrong(
                f"{line}: status knows {sorted(rows)}, the model {[run.name for run in self.runs]}: {ended.output[-2500:]}"
            )
        permissions = {
            Pending.STAGED: {"interrupted", "failed"},
            Pending.SWITCHED: {"interrupted", "kept"},
            Pending.UNDOING: {"interrupted", "kept"},
            Pending.UNDONE: {"interrupted", "undone"},
            Pending.CLEANING: {"interrupted", "cleaning"},
        }
        for run in self.runs:
            state = rows[run.name]["state"]
            if run.pending is None and state in ("interrupted", "cleaning") and line.startswith(("clean", "wipe")):
                run.pending, run.version, run.old = (
                    Pending.CLEANING,
                    None,
                    False,
                )  # announced, and nothing of it is deleted yet
                continue
            good = permissions[run.pending] if run.pending else {run.state}
            if state not in good:
                raise Wrong(f"{line}: status says {state} of {run.name}, which died {run.pending}, {run.state}")
            if state not in ("interrupted", "cleaning"):
                run.state, run.pending = state, None

    # Always.

    def audit(self, line: str) -> None:
        """Whatever happened: everything that somebody may need again is there, as it was put aside; nothing else is."""
        now = self.tree()
        if (now is None) != (self.version is None):
            raise Wrong(f"{line}: the directory is {'gone' if now is None else 'there'}")
        if now is not None and self.version is not None and now != self.version.tree:
            raise Wrong(f"{line}: the directory has changed: {'; '.join(differences(self.version.tree, now)[:6])}")
        there = self.folders()
        self.runs = [run for run in self.runs if run.name in there or not self._may_vanish(run)]
        if there != [run.name for run in self.runs]:
            raise Wrong(f"{line}: there are the runs {there}, not {[run.name for run in self.runs]}")
        for run in self.runs:
            tree = self.backup_of(run)
            if run.version is not None:
                wrong = ["all of it"] if tree is None else differences(run.version.tree, tree)
                if wrong:
                    raise Wrong(f"{line}: {run.name} ({run.state}) has lost: {'; '.join(wrong[:6])}")
            elif run.pending is None and tree is not None:
                raise Wrong(f"{line}: {run.name} ({run.state}) still has a tree")
        empty = not there and not (self.runs_folder / AGES).exists()
        if empty and not self.scarred and (self.app.parent / ".kstate").exists():
            raise Wrong(f"{line}: an empty .kstate is left")

    def _may_vanish(self, run: Run) -> bool:
        return run.pending in (Pending.STAGED, Pending.CLEANING)

    # What people do.

    def stuck(self, run: Run) -> bool:
        """The directory that would tell how a run that died has ended is lost, or another one: a human has to look."""
        if run.pending is Pending.STAGED:
            tree = self.backup_of(run)
            return self.version is None and run.announced and tree is not None and len(tree) > 1
        if run.pending is Pending.SWITCHED:
            return not (self.app / ".kstate-staged").exists()
        return run.pending is Pending.UNDONE and not (self.app / ".kstate-undoing").exists()

    def move_away(self, run: Run) -> None:
        """Somebody has looked, and keeps it elsewhere."""
        shutil.move(self.runs_folder / run.name, self.app.parent.parent / f"looked-at-{self.count}")
        self.runs.remove(run)
        self.report.append(f"{run.name} is moved away")
        if not self.runs:
            self.scarred = True

    def lose(self) -> None:
        """The disk, or somebody, has removed the application directory."""
        shutil.rmtree(self.app, ignore_errors=True)
        self.version = None

    def content(self) -> Content:
        """Of the application directory; empty where it is lost."""
        return self.version.content if self.version else Content()
