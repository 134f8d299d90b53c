"""``kstate ls --spec`` by a topology's text, a broker and a dump: what is left to fill in, and what a restore makes of it."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from kstate_cli.specification.draft import complete
from kstate_cli.specification.toml_file import parse_draft
from tests.command_result import CommandResult
from tests.unit.specification import truth

from .dumping import dump
from .harness import App, Harness, Run, Step
from .restoring import alter, changelog, changelogs, line, restore
from .support import ALL, BATCH, application, good, kstate, restored_records, wipes_task

pytestmark = pytest.mark.interop

TOPOLOGIES = Path(truth.__file__).parent / "topologies"
UNKNOWABLE = {("join-left-shared-join-store", "kind"), ("global-table", "source")}
"""A store without rows, whose kind only its name suggests; and what only the code of the application says."""
IN_MEMORY = "kv-memory"


def write_description(app: App, release: str, path: Path) -> Path:
    """The text of the topology that the harness runs; the releases that have all its stores describe it alike."""
    text = (TOPOLOGIES / f"{'3.9.2' if release < '4' else '4.3.1'}-kinds.txt").read_text(encoding="utf-8")
    path.write_text(re.sub(r"(?<=[\[ ])in-", f"{app.input}-", text), encoding="utf-8")
    return path


def open_questions(text: str) -> set[tuple[str, str]]:
    """The lines of a printed file that are to be filled in: store and key."""
    results, table = set(), ""
    for text_line in text.splitlines():
        header = re.fullmatch(r'\[stores\."?([^"\]]+)"?\]', text_line)
        table = header[1] if header else table
        if "# to fill in" in text_line:
            results.add((table, text_line.removeprefix("# ").partition(" ")[0]))
    return results


def filled_in(text: str) -> str:
    """With what it suggests for them."""
    return re.sub(r"^# (source|kind) = (\"[a-z-]+\")  # to fill in: .*$", r"\1 = \2", text, flags=re.MULTILINE)


CASES = [("4.3.1", "eos"), ("4.3.1", "alos"), ("4.2.1", "eos"), ("3.9.2", "eos")]


@pytest.mark.in_full("tests/directories/test_spec_sources.py::test_only_unknowable_settings_stay_open")
@pytest.mark.parametrize(("release", "guarantee"), CASES)
def test_only_unknowable_settings_stay_open(harness: Harness, tmp_path: Path, release: str, guarantee: str) -> None:
    """The file that is printed is the truth, a restore takes it, and what a check foretells is what Streams restores."""
    app, state = application("kinds", guarantee), tmp_path / "state"
    harness.produce(release, app, BATCH)
    topics = changelogs(good(harness.run(release, app, state, Run(read=False))))
    directory, out = state / app.name, tmp_path / "dump"
    names = [word for topic in topics if not topic.endswith("-changelog") for word in ("--topic", topic)]
    dump(harness, out, "--app", app.name, *names)
    topology = write_description(app, release, tmp_path / "topology.txt")
    broker = ("--bootstrap-server", harness.bootstrap)
    started_as = () if guarantee == "eos" else ("--guarantee", "at_least_once")

    expected = truth.by_name(truth.kinds(app.name, app.input, release))
    by_both = (*broker, "--from-changelog", out)
    for sources in (("--from-changelog", out), broker, by_both) if ALL else (("--from-changelog", out), by_both):
        result = kstate("ls", directory, "--spec", "--topology", topology, *sources)
        assert open_questions(result.out) == UNKNOWABLE, result.report
        specs = truth.by_name(complete(parse_draft(filled_in(result.out)), file_name="kstate.toml"))
        memory = specs.pop(IN_MEMORY)
        assert (memory.kind, memory.partitions) == ("in-memory", truth.PARTITIONS)
        assert specs == expected
        # Only the broker shows that a store without an offset has no changelog.
        assert ("kv-nolog" in result.err) is (sources[0] != "--bootstrap-server"), result.report
    spec = tmp_path / "kstate.toml"
    spec.write_text(filled_in(result.out), encoding="utf-8")

    if ALL:  # else tests/directories/test_spec_sources.py: an operator changes a topic, and is asked about it
        alter(harness, release, [changelog(app, "window-plain")], ["retention.ms=100000000"])
        requests = kstate("ls", directory, "--spec", "--topology", topology, *broker)
        assert open_questions(requests.out) == {*UNKNOWABLE, ("window-plain", "retention_ms")}, requests.report
        assert "# retention_ms = 1200000  # to fill in" in requests.out

    # A restore takes that very file, and Streams what it made of it: nothing is foretold, and nothing is restored.
    state.rename(tmp_path / "lost")
    state.mkdir()
    restore(directory, out, line(release), spec)
    shutil.copytree(directory, tmp_path / "behind")
    nothing = kstate("check", directory, "--for", line(release), *started_as, *broker, "-o", "json")
    assert (nothing.summary["restores"], nothing.summary["seconds_to_running"]) == (0, 0), nothing.report
    run = Run(steps=[Step(BATCH.next(), None)], expect_no_restore=True, may_restore=[IN_MEMORY])
    assert not wipes_task(good(harness.run(release, app, state, run)))

    # The copy is older than the log: a check says by how much, store by store, and Streams restores just that.
    shutil.rmtree(directory)
    (tmp_path / "behind").rename(directory)
    check = kstate("check", directory, "--for", line(release), *started_as, *broker, "-o", "json")
    behind = kstate("inspect-position", directory, *broker, "-o", "json")
    assert all(row["records_exact"] for row in check.rows if row["type"] == "prediction")
    old = [row["lag_seconds"] for row in behind.rows if row["type"] == "store" and row["lag"]]
    assert old and None not in old
    started = good(harness.run(release, app, state, Run(read=False)))
    assert not wipes_task(started), started.report()
    real = {store: count for store, count in restored_records(started).items() if store != IN_MEMORY}
    assert sum(real.values()) > 0
    assert _by_store(check, "prediction", "records") == real
    assert _by_store(check, "prediction", "lag") == _by_store(behind, "store", "lag") == real
    assert (check.summary["restores"], check.summary["restores_exact"]) == (sum(real.values()), True)
    assert check.summary["rate_from"] == "0001-restore" and check.summary["seconds_to_running"] > 0
    harness.delete(release, app)


def _by_store(result: CommandResult, kind: str, member: str) -> dict[str, int]:
    """The sum over the tasks of a store, without what is none."""
    counts: Counter[str] = Counter()
    for row in result.rows:
        if row["type"] == kind and row[member]:
            counts[row["store"]] += row[member]
    return dict(counts)
