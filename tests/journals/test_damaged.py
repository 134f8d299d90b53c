"""
Every state of a run × every damage of its journal and of what lies beside it × every command.

Whatever is damaged: no tree that held data is deleted but by a ``clean`` that understands its run whole, nothing ends in a
traceback, what is refused has touched nothing, and a healthy directory is never exchanged for a broken one.

By default a part of them, chosen by a fixed seed; KSTATE_JOURNALS=all takes every damage, each with two commands in turn
(what is not about one member of one line with all of them).
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kstate_cli.change.marks import MARKS
from tests.faults.forked import Kstate

from .damages import Damage, damages
from .states import MIGRATE, STATES, Origin, content, copy_state, make, trees

ALL = os.environ.get("KSTATE_JOURNALS") == "all"
COMMANDS = (
    ("undo",),
    ("undo", "--discard-newer"),
    MIGRATE,
    ("wipe", "--store", "kv-timestamped", "--quiet", "--workers", "1"),
    ("rehome", "--map", "0=9", "--warnings-ok", "--quiet", "--workers", "1"),
    ("clean",),
    ("clean", "--older-than", "7d"),
    ("clean", "--run", "0001-migrate"),
    ("status",),
    ("check", "--for", "4.3"),
)
READS = ("status", "check")
MAY_END = {0, 1, 2, 3, 4, 6, 7}
A_FEW = 10
"""So many damages of each state in the usual run."""
ALWAYS = {("a foreign file", ("clean", "--run", "0001-migrate"))}
"""What once went wrong."""


def everything(state: Path) -> dict[str, tuple[int, int, int]]:
    """Every file and folder, the folders of the runs among them."""
    results = {}
    for folder, folders, files in os.walk(state):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            # A lock that is taken where there was none leaves a file, whatever is decided afterwards.
            if name != ".lock":
                size = 0 if name in folders else stat.st_size
                results[os.path.relpath(path, state)] = (stat.st_ino, size, stat.st_mode)
    return results


def differences(state: Path, files: dict[str, tuple[int, int, int]], text: str) -> list[str]:
    """What is not as it was, but for what ends an interrupted run: a mark that goes, a line in a journal that is told."""
    now = everything(state)
    differ = [path for path in sorted(files.keys() | now.keys()) if files.get(path) != now.get(path)]
    messages = "was interrupted" in text
    return [
        path
        for path in differ
        if not (os.path.basename(path) in MARKS and path not in now)
        and not (os.path.basename(path) == "journal.jsonl" and path in now and messages)
    ]


def wrong_after(kstate: Kstate, app: Path, damage: Damage, command: tuple[str, ...]) -> list[str]:
    """What is wrong with what a command makes of this directory."""
    state = app.parent
    before = {content(path): path for path in trees(state)}
    files = everything(state)
    ended = kstate(app, command)
    wrong = []
    if ended.status not in MAY_END or "Traceback" in ended.output or "defect" in ended.output:
        wrong.append(f"exit {ended.status}: {ended.output[-1500:]}")
    if (ended.status in (4, 2, 5) or command[0] in READS) and (differ := differences(state, files, ended.output)):
        wrong.append(f"exit {ended.status}, and files have changed: {differ[:3]}: {ended.output[-500:]}")
    after = {content(path) for path in trees(state)}
    lost = [path for entry, path in before.items() if entry not in after]
    # What undo has put back is taken out of its run; what it replaces has got nothing new. Only clean deletes.
    if lost and not (command[0] == "clean" and ended.status in (0, 7) and all(".kstate" in str(path) for path in lost)):
        wrong.append(f"exit {ended.status}: lost {lost}: {ended.output[-500:]}")
    damaged = app.parent / ".kstate" / app.name / "0001-migrate" / "tree"
    # A run that came after it may be undone.
    if command[0] == "undo" and damage.name == "tree without an SST" and before.get(content(app)) == damaged:
        wrong.append("a damaged directory was put in place of a healthy one")
    return wrong


@pytest.mark.sample(5)
@pytest.mark.parametrize("outputs", STATES, ids=lambda outputs: outputs.state)
def test_nothing_that_holds_data_is_deleted(
    kstate: Kstate, tmp_path_factory: pytest.TempPathFactory, outputs: Origin
) -> None:
    folder = tmp_path_factory.mktemp(outputs.state)
    app = make(outputs, folder)
    template = folder / "template"
    app.parent.rename(template)
    run = template / ".kstate" / app.name / "0001-migrate"
    if not run.exists():
        pytest.fail(f"{outputs.state}: there is no run")
    results = list(damages(run))
    choice = [
        (damage, COMMANDS[(number + turn) % len(COMMANDS)])
        for number, damage in enumerate(results)
        for turn in range(2 if damage.of_a_member else len(COMMANDS))
    ]
    if not ALL:
        always = [element for element in choice if (element[0].name, element[1]) in ALWAYS]
        choice = always + random.Random(outputs.state).sample(choice, A_FEW)
    wrong = []
    for damage, command in choice:
        app = copy_state(template, folder / "state")
        damage.do(app.parent / ".kstate" / app.name / "0001-migrate")
        # One that is damaged, and then a second command on what the first one left.
        for entry in (command, ("undo",)):
            wrong += [
                f"{outputs.state}, {damage.name}, {' '.join(entry)}: {text}"
                for text in wrong_after(kstate, app, damage, entry)
            ]
    print(f"{outputs.state}: {len(results)} damages, {2 * len(choice)} commands, {len(wrong)} wrong")
    assert not wrong, f"{len(wrong)} of {len(choice)}:\n" + "\n\n".join(wrong[:12])
