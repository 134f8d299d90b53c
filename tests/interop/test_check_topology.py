"""
``kstate check --topology`` says what a start of another topology does; then the real release starts it, and does it.

As ``test_check.py``, whose table in docs/check.md goes on with these cases. Where the check names a line of ``kstate
rehome`` that line is run, and then the same check says that all is well, and the start restores nothing.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from .check_cases import STARTED
from .check_table import DOCS, Answer, cells, recorded_cells, render
from .checking import ANY, PARTS, Base, Directory, Kind, Predicted, agrees, make, predict, start
from .harness import Harness, Run
from .releases import PROVING, like, tried
from .support import ALL, good, kstate, restored_records, wipes_task
from .topology_cases import CHANGES, Change, Started, keep_a_single_partition

pytestmark = pytest.mark.interop

PAIRS = [
    (case, release)
    for case in CHANGES
    if ALL or PROVING or case.quick
    for release in tried(case.releases)
    if like(release, STARTED) in case.releases
]
IN_MEMORY = {"in-memory", "new-in-memory", "global-memory"}
"""Restored at every start, and nothing that a directory shows."""
_results: list[Answer] = []


@pytest.fixture(scope="module")
def base(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Base]:
    """One application for all cases that begin alike."""
    bases: dict[Kind, Base] = {}

    def of(kind: Kind) -> Base:
        if kind not in bases:
            bases[kind] = make(harness, kind, tmp_path_factory.mktemp("base"))
        return bases[kind]

    return of


def describe(harness: Harness, release: str, parts: str, text: str | None, base: Base, into: Path) -> Path:
    """The text of a topology, as the application has it."""
    app = base.app
    options = {"named": text} if text else {}
    reply = harness.command(release, do="describe", app=f"{app.name}-described", topology=parts, prefix=app.input,
                            into=str(into), **{"state-dir": str(into.parent)}, **options)  # fmt: skip
    good(reply)
    return into


def tasks(text: str, names: str | None) -> Mapping[str, str]:
    """Store -> what the names of its tasks begin with; ``global`` of a global store."""
    results: dict[str, str] = {}
    for part in re.split(r"Sub-topology: ", text)[1:]:
        number, is_global = part.split()[0], "for global store" in part.partition("\n")[0]
        for stores in re.findall(r"\(stores: \[(.*)\]\)", part):
            home = f"__{names}__/{number}_" if names else f"{number}_"
            results |= dict.fromkeys(filter(None, stores.split(", ")), "global" if is_global else home)
    return results


def both_sides(predicted: Predicted, text: str, fates: Mapping[tuple[str, str], str]) -> str:
    """Both sides, for whoever reads why they do not agree."""
    lines = json.dumps([[*key, fate] for key, fate in sorted(fates.items())])
    return f"{predicted.command.report}\n{lines}\n{text[:3000]}"


@pytest.mark.rotating(2)
@pytest.mark.sample(2)
@pytest.mark.parametrize(("case", "release"), PAIRS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_new_topology_confirms_the_prediction(
    harness: Harness, tmp_path: Path, base: Callable[[Kind], Base], case: Change, release: str
) -> None:
    outputs = base(Kind(release, case.guarantee, PARTS + case.before, case.killed, named=case.named))
    new = describe(harness, release, PARTS + case.after, case.named, outputs, tmp_path / "new.txt")
    old = describe(harness, release, PARTS + case.before, case.named, outputs, tmp_path / "old.txt")
    words: tuple[object, ...] = ("--topology", new, *(("--from", old) if case.with_old else ()))
    if case.spec:
        (tmp_path / "kstate.toml").write_text(f"format = 1\n{case.spec}", encoding="utf-8")
        words = (*words, "--spec", tmp_path / "kstate.toml")
    if case.guarantee == "alos":
        rehome: tuple[object, ...] = (*words, "--guarantee", "at_least_once")
    else:
        rehome = words
    directory = outputs.copy(tmp_path / "state")
    case.prepare(Started(harness, directory, release, case.after, rehome))
    directory.options = [*map(str, words)]
    predicted = predict(release, directory)
    names = _lines_of_rehome(predicted)
    copy = copy_directory(directory, tmp_path / "rehomed") if case.with_rehome else None

    homes = tasks(new.read_text(encoding="utf-8"), case.named)

    def task_of(store: str, partition: int) -> str | None:
        home = homes.get(store)
        return home if home in (None, "global") else f"{home}{partition}"

    real = start(harness, release, directory, tmp_path / "real", topology=PARTS + case.after, task_of=task_of)
    both = both_sides(predicted, real.text, real.fates)
    assert predicted.failed == real.failed, both
    if real.failed:
        assert any(all(part in real.text for part in messages) for messages in predicted.failures), both
    else:
        expected = {key: fates for key, fates in predicted.fates.items() if fates != {"ignored"}}
        for key, fate in real.fates.items():
            if key not in expected and _nothing_is_here(case, key[0]):
                continue
            if key[1] not in IN_MEMORY:
                assert key in expected, f"{key}: {both}"
                assert _is_among(fate, expected[key]), f"{key}: {both}"
        missing = {key for key in expected.keys() - real.fates.keys() if key[1] not in IN_MEMORY}
        assert not missing, f"{missing} {both}"
    assert case.code is None or case.code in predicted.codes, both
    assert case.code is not None or case.varies or not predicted.codes, both
    assert predicted.command.status == (3 if predicted.codes else 0)
    _results.append(Answer(case, release, predicted, real))
    if os.environ.get("KSTATE_WRITE_DOCS"):
        DOCS.write_text(render(recorded_cells() | cells(_results)), encoding="utf-8")
    if copy is not None:
        (line,) = names
        _assert_fixed(harness, copy, release, line.replace(str(directory.path), str(copy.path)), case)


def _nothing_is_here(case: Change, task: str) -> bool:
    """A directory does not tell of partitions that nothing is here of: another host has them, or a kill came amid a wipe."""
    return case.varies or (case.prepare is keep_a_single_partition and task.endswith("_1"))


def _is_among(fate: str, names: set[str]) -> bool:
    """Where nobody knows the log any number is right; 0 is told as "opens" where the task is not wiped."""
    wiped_too, _, count = fate.rpartition(", ")
    if agrees(fate, names):
        return True
    anyhow = f"{wiped_too}, {ANY}" if wiped_too else ANY
    return anyhow in names and (count.isdigit() or count == "opens")


def _lines_of_rehome(predicted: Predicted) -> set[str]:
    return {row["hint"] for row in predicted.of("finding") if row["hint"].startswith("kstate rehome ")}


def copy_directory(directory: Directory, state: Path) -> Directory:
    """A copy of a directory as it was prepared."""
    import shutil

    shutil.copytree(directory.path.parent, state, symlinks=True)
    return replace(directory, path=state / directory.path.name)


def _assert_fixed(harness: Harness, directory: Directory, release: str, line: str, case: Change) -> None:
    """What the check has printed for pasting is run; then all is well, and nothing on disk is restored but what is new."""
    result = kstate(*shlex.split(line)[1:], "--warnings-ok")
    assert result.status == 0, result.report
    predicted = predict(release, directory)
    assert not predicted.codes, predicted.command.report
    app = replace(directory.base.app, topology=PARTS + case.after)
    run = Run(read=False, options=directory.base.kind.run_options)
    reply = good(harness.run(release, app, directory.path.parent, run))
    assert not wipes_task(reply), reply.report()
    in_memory = {key[1] for key, fates in predicted.fates.items() if fates != {"opens"}} | IN_MEMORY
    assert set(restored_records(reply)) <= in_memory, reply.report()


@pytest.mark.skipif(not ALL, reason="KSTATE_INTEROP=all: the table is made by all cases together")
def test_the_table_in_the_docs() -> None:
    """What was found is what docs/check.md says."""
    now, before = cells(_results), recorded_cells()
    assert {key: before[key] for key in now if key in before} == {
        key: cell for key, cell in now.items() if key in before
    }
    if len(_results) == len(PAIRS) and ALL:
        assert DOCS.read_text(encoding="utf-8") == render(before | now)
