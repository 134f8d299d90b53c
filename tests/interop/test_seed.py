"""``kstate seed``: an application continues under another application.id, as the real release would have continued."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from . import dumps
from .dumping import dump
from .harness import Harness, Run
from .jvm import Reply
from .restoring import changelogs
from .support import BATCH, application, good, kstate, restored, told_positions, wiped

pytestmark = pytest.mark.interop

CASES = [("4.3.1", "eos"), ("4.2.1", "alos"), ("4.3.1", "alos"), ("4.2.1", "eos")]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("release", "guarantee"), CASES)
def test_another_application_id_continues(harness: Harness, tmp_path: Path, release: str, guarantee: str) -> None:
    """The new application restores its stores from the seeded changelogs, and continues behind the old one's offsets."""
    old = application("kinds", guarantee)
    new = replace(old, name=f"{old.name}-new", prefix=old.input)
    harness.produce(release, old, BATCH)
    first = good(harness.run(release, old, tmp_path / "old", Run(read=False)))
    topics = changelogs(first)
    others = [word for topic in topics if not topic.endswith("-changelog") for word in ("--topic", topic)]
    dump(harness, tmp_path / "dump", "--app", old.name, *others)
    words = ["seed", "--from", tmp_path / "dump", "--app", new.name, "--bootstrap-server", harness.bootstrap]
    words += ["--journal", tmp_path / "journal.jsonl", "-o", "json"]

    planned = kstate(*words, "--dry-run")
    assert planned.status == 0, planned.report
    assert not (tmp_path / "journal.jsonl").exists()
    seeded = kstate(*words)
    assert seeded.status == 0, seeded.report
    assert seeded.summary["written"] == seeded.summary["records"] > 0
    again = kstate(*words)
    assert again.status == 0, again.report
    assert again.summary["written"] == 0

    # Both continue behind the same offsets, with the same input.
    harness.produce(release, old, BATCH.then())
    outcomes = {}
    for app, folder in ((old, "old"), (new, "new")):
        run = Run(dump=tmp_path / f"{folder}.jsonl")
        outcomes[folder] = good(harness.run(release, app, tmp_path / folder, run))
        assert not wiped(outcomes[folder])
    assert restored(outcomes["new"])
    differences = dumps.differences(tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    assert not [str(difference) for difference in differences]
    # Without headers in its changelog, a restored store has the Position of the records that came later.
    before, after = (input_positions(outcomes[folder], old.input) for folder in ("old", "new"))
    assert after["count"] == before["count"]
    assert not {store for store, position in after.items() if position != before[store] and any(position.values())}


def input_positions(reply: Reply, prefix: str) -> dict[str, dict[str, object]]:
    """The Position of every store in the input topics: each application has internal topics of its own."""
    return {
        store: {
            partition: {topic: offsets for topic, offsets in topics.items() if topic.startswith(prefix)}
            for partition, topics in position.items()
        }
        for store, position in told_positions(reply).items()
    }
