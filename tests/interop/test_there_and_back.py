"""
A migrated directory that real Kafka Streams has run on since: `undo` would lose what was done, and says what to do instead.

The first release writes a directory, kstate migrates it, the second release runs on it, first without any input (opening the
stores is enough), then with a batch. Undo is refused and names a migration back; that one loses nothing.
"""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import pytest

from tests.directories.support import tree_hash

from . import dumps
from .harness import Harness, Run, Step
from .releases import number
from .support import (
    ALL,
    BATCH,
    REFUSAL,
    application,
    good,
    kstate,
    migrate,
    records_with_value,
    sum_of,
    told_positions,
    wipes_task,
)

pytestmark = pytest.mark.interop

DEFAULT = [(("4.2.1", "4.3.1"), "eos")]
PAIRS = [("4.3.1", "4.2.1"), ("4.2.1", "4.3.1"), ("4.3.1", "3.9.2"), ("3.9.2", "4.3.1")]
CASES = list(itertools.product(PAIRS, ["alos", "eos"])) if ALL else DEFAULT


def command_instead_of_undo(directory: Path) -> list[str]:
    """Undo is refused, changes nothing and names files that are not what kstate left; the command that it names."""
    before = tree_hash(directory.parent)
    result = kstate("undo", directory)
    assert result.status == REFUSAL, result.report
    assert tree_hash(directory.parent) == before
    message = re.search(r"has changed since run (\S+): (.+?)(?: and \d+ more)?$", result.err, re.MULTILINE)
    assert message, result.report
    st_mtime_ns = (directory.parent / ".kstate" / directory.name / message[1] / "journal.jsonl").stat().st_mtime_ns
    for name in message[2].split(", "):
        path = directory / name
        assert path.name.startswith(("CURRENT", "MANIFEST-", ".checkpoint")), result.report
        assert not path.exists() or path.stat().st_mtime_ns > st_mtime_ns, result.report
    command = re.search(r"kstate (migrate \S+ --to \d+\.\d+)", result.err)
    assert command, result.report
    return command[1].split()


@pytest.mark.in_full("tests/interop/test_matrix.py::test_migrated_directory_serves_the_same")
@pytest.mark.parametrize(
    ("pair", "guarantee"), CASES, ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
def test_undo_is_refused_and_the_migration_it_names_goes_back(
    harness: Harness, tmp_path: Path, pair: tuple[str, str], guarantee: str
) -> None:
    first, second = pair
    oldest = "{}.{}".format(*min(map(number, pair)))
    app = application("kinds", guarantee)
    directory = tmp_path / "state" / app.name
    harness.produce(first, app, BATCH)
    good(harness.run(first, app, tmp_path / "state", Run(as_of=oldest, read=False)))
    result = migrate(directory, second, "--warnings-ok")
    assert result.status == 0, result.report

    unread = Run(as_of=oldest, read=False, expect_no_restore=True, may_restore=["kv-memory"])
    good(harness.run(second, app, tmp_path / "state", unread))
    command_instead_of_undo(directory)
    unread.steps = [Step(BATCH.next())]
    good(harness.run(second, app, tmp_path / "state", unread))
    command = command_instead_of_undo(directory)
    assert command == ["migrate", str(directory), "--to", "{}.{}".format(*number(first))]

    shutil.copytree(tmp_path / "state", tmp_path / "unmigrated")
    reference, served = tmp_path / "reference.jsonl", tmp_path / "served.jsonl"
    there = Run(dump=reference, as_of=oldest, expect_no_restore=True)
    before = good(harness.run(second, app, tmp_path / "unmigrated", there))
    result = kstate(*command, "--warnings-ok")
    assert result.status == 0, result.report
    back = Run(dump=served, as_of=oldest, expect_no_restore=True)
    after = good(harness.run(first, app, tmp_path / "state", back))
    assert not wipes_task(after), after.report()
    assert not [str(difference) for difference in dumps.differences(reference, served)]
    assert told_positions(after) == told_positions(before)
    assert sum_of(served, "count") == records_with_value(harness, f"{app.input}-events", tmp_path)
    harness.delete(first, app)
