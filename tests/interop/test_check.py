"""
``kstate check`` says what the next start does; then the real release starts, and does it.

Compared are, for every store of every task, the records that are restored, whether the task is wiped, whether rows are missing
without a word; where the start fails, the text of its exceptions. A part of the cases runs always, KSTATE_INTEROP=all runs all
and docs/check.md has to say what was found; KSTATE_WRITE_DOCS=1 writes it there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.explain.catalogue import explanations, match

from .check_cases import CASES, OF_GLOBAL_OFFSETS, STARTED, Case
from .check_table import DOCS, Answer, cells, recorded_cells, render
from .checking import Base, Directory, Kind, agrees, make, predict, start
from .harness import App, Harness, Run
from .releases import PROVING, forgets_global_tables, like, tried
from .support import ALL, good, kstate, restored_records

pytestmark = pytest.mark.interop

PAIRS = [
    (case, release)
    for case in CASES
    if ALL or PROVING or case.quick
    for release in tried(case.releases)
    if like(release, STARTED) in case.releases
    and (case.made_by is None or PROVING is None)
    and not (case.name in OF_GLOBAL_OFFSETS and forgets_global_tables(release))
]
_results: list[Answer] = []


@pytest.fixture(scope="module")
def base(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Base]:
    """One application for all cases that begin alike: no start changes its topics."""
    bases: dict[Kind, Base] = {}

    def make_base(kind: Kind) -> Base:
        if kind not in bases:
            bases[kind] = make(harness, kind, tmp_path_factory.mktemp("base"))
        return bases[kind]

    return make_base


def prepare(case: Case, release: str, base: Callable[[Kind], Base], folder: Path) -> Directory:
    """The directory of a case."""
    kind = Kind(case.made_by or release, case.guarantee, case.topology, case.killed, case.cut)
    directory = base(kind).copy(folder / "state")
    case.edit(directory)
    return directory


@pytest.mark.rotating(2)
@pytest.mark.sample(3)
@pytest.mark.parametrize(("case", "release"), PAIRS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_kafka_streams_confirms_the_prediction(
    harness: Harness, tmp_path: Path, base: Callable[[Kind], Base], case: Case, release: str
) -> None:
    directory = prepare(case, release, base, tmp_path)
    predicted = predict(release, directory)
    real = start(harness, release, directory, tmp_path / "real", topology=case.started)
    text = f"{predicted.command.report}\n{json.dumps([[*key, fate] for key, fate in real.fates.items()])}\n{real.text[:3000]}"

    assert predicted.failed == real.failed, text
    if real.failed:
        assert any(all(part in real.text for part in messages) for messages in predicted.failures), text
        failing = {row["code"] for row in predicted.of("prediction") if row["outcome"] == "start-fails"}
        fitting = {entry.explanation.code for entry in match(real.text, tuple(explanations()))}
        assert failing & fitting, f"`kstate explain` does not know the log: {text}"
    else:
        in_memory = {row["message"].partition(":")[0] for row in predicted.of("finding")
                     if row["code"] == "changelog-without-store"}  # fmt: skip
        expected = {key: fates for key, fates in predicted.fates.items() if not key[0].startswith("7_")}
        for key, fate in real.fates.items():
            if key[1] not in in_memory and key in expected:
                assert agrees(fate, expected[key]), f"{key}: {text}"
            elif key[1] not in in_memory:
                assert case.topology == "kinds" or case.name == "only-foreign", f"{key}: {text}"
        missing = {key for key in expected.keys() - real.fates.keys() if case.topology != "kinds"}
        assert not missing, f"{missing} {text}"
    assert case.code is None or case.code in predicted.codes, text
    assert predicted.command.status == (3 if predicted.codes else 0)
    _results.append(Answer(case, release, predicted, real))
    if os.environ.get("KSTATE_WRITE_DOCS"):
        DOCS.write_text(render(recorded_cells() | cells(_results)), encoding="utf-8")


def test_after_the_command_that_check_names_the_global_store_is_good(
    harness: Harness, tmp_path: Path, base: Callable[[Kind], Base]
) -> None:
    """Real 4.3.1 never starts from a global store whose status is open: it fails again, and again; after the command it does."""
    case = next(case_ for case_ in CASES if case_.name == "global-status-open")
    directory = prepare(case, "4.3.1", base, tmp_path)
    for attempt in ("first", "second"):
        assert start(harness, "4.3.1", directory, tmp_path / attempt).failed
    predicted = predict("4.3.1", directory)
    (finding,) = [row for row in predicted.of("finding") if row["code"] == "global-status-open"]
    assert finding["hint"] == f"kstate wipe {directory.path} --global"
    result = kstate(*finding["hint"].split()[1:])
    assert result.status == 0, result.report
    assert not predict("4.3.1", directory).failed
    reply = good(harness.run("4.3.1", directory.base.app, directory.path.parent, Run(read=False)))
    assert restored_records(reply).keys() == {"customers"}


def topic_ids(harness: Harness, app: App) -> dict[str, str]:
    """Changelog -> the id of the topic (KIP-516)."""
    topics = harness.command("4.3.1", do="topics", prefix=app.name).of("topic")
    return {event["topic"]: event["id"] for event in topics if event["topic"].endswith("-changelog")}


@pytest.mark.skipif(not ALL, reason="KSTATE_INTEROP=all")
@pytest.mark.parametrize("release", STARTED)
def test_a_changelog_that_was_made_anew(harness: Harness, tmp_path: Path, release: str) -> None:
    """With as many records as before Streams sees nothing, and goes on with a store of another log; the topic's id tells."""
    outputs = make(harness, Kind(release, "alos"), tmp_path / "made")
    before = topic_ids(harness, outputs.app)
    harness.delete(release, outputs.app)
    good(harness.run(release, outputs.app, tmp_path / "again", Run(read=False)))
    after = topic_ids(harness, outputs.app)
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())

    content = json.loads((outputs.dump / "_manifest.json").read_text(encoding="utf-8"))
    logs: dict[str, dict[str, object]] = {}
    for partition in content["partitions"]:
        partition["topic_id"] = before.get(partition["topic"])
        facts = {"start": partition["log_start"], "end": partition["log_end"], "id": after.get(partition["topic"])}
        logs.setdefault(partition["topic"], {})[str(partition["partition"])] = facts
    (outputs.dump / "_manifest.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "offsets.json").write_text(json.dumps(logs), encoding="utf-8")
    directory = outputs.copy(tmp_path / "state")
    assert not predict(release, directory).codes
    directory.options = ["--offsets", str(tmp_path / "offsets.json")]
    predicted = predict(release, directory)
    assert predicted.codes == {"topic-recreated"}
    real = start(harness, release, directory, tmp_path / "real")
    assert not real.failed, real.text
    assert set(real.fates.values()) == {"opens"}
    assert all(fates == {"opens"} for fates in predicted.fates.values())


@pytest.mark.skipif(not ALL, reason="KSTATE_INTEROP=all: the table is made by all cases together")
def test_the_table_in_the_docs() -> None:
    """What was found is what docs/check.md says."""
    now, messages = cells(_results), recorded_cells()
    assert {key: messages[key] for key in now if key in messages} == {
        key: cell for key, cell in now.items() if key in messages
    }
    if len(_results) == len(PAIRS) and ALL:
        assert DOCS.read_text(encoding="utf-8") == render(messages | now)
