"""``kstate ls --spec`` by a topology's text, a broker and a dump: what is left to fill in, and what a restore makes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstate_cli.spec.completion import complete
from kstate_cli.spec.toml_file import parse_draft
from tests.unit.spec import truth

from .dumping import dump
from .harness import App, Harness, Run
from .restoring import alter, changelog, changelogs, line, restore
from .support import ALL, BATCH, application, good, kstate, restored, wiped

pytestmark = pytest.mark.interop

TOPOLOGIES = Path(truth.__file__).parent / "topologies"
CANNOT_BE_KNOWN = {("join-left-shared-join-store", "kind"), ("global-table", "source")}
"""A store without rows, whose kind only its name suggests; and what only the code of the application says."""
IN_MEMORY = "kv-memory"


def described(app: App, release: str, path: Path) -> Path:
    """The text of the topology that the harness runs; the releases that have all its stores describe it alike."""
    text = (TOPOLOGIES / f"{'3.9.2' if release < '4' else '4.3.1'}-kinds.txt").read_text(encoding="utf-8")
    path.write_text(re.sub(r"(?<=[\[ ])in-", f"{app.input}-", text), encoding="utf-8")
    return path


def left_open(text: str) -> set[tuple[str, str]]:
    """The lines of a printed file that are to be filled in: store and key."""
    found, table = set(), ""
    for one in text.splitlines():
        header = re.fullmatch(r'\[stores\."?([^"\]]+)"?\]', one)
        table = header[1] if header else table
        if "# to fill in" in one:
            found.add((table, one.removeprefix("# ").partition(" ")[0]))
    return found


def filled_in(text: str) -> str:
    """With what it suggests for them."""
    return re.sub(r"^# (source|kind) = (\"[a-z-]+\")  # to fill in: .*$", r"\1 = \2", text, flags=re.MULTILINE)


@pytest.mark.parametrize("release", ["4.3.1", "4.2.1", "3.9.2"] if ALL else ["4.3.1"])
def test_nothing_is_left_but_what_cannot_be_known(harness: Harness, tmp_path: Path, release: str) -> None:
    """The file that is printed is the truth, a restore takes it, and what a check foretells is what Streams restores."""
    app, state = application("kinds", "eos"), tmp_path / "state"
    harness.produce(release, app, BATCH)
    topics = changelogs(good(harness.run(release, app, state, Run(read=False))))
    directory, out = state / app.name, tmp_path / "dump"
    named = [word for topic in topics if not topic.endswith("-changelog") for word in ("--topic", topic)]
    dump(harness, out, "--app", app.name, *named)
    topology = described(app, release, tmp_path / "topology.txt")
    broker = ("--bootstrap-server", harness.bootstrap)

    expected = truth.by_name(truth.kinds(app.name, app.input, release))
    for sources in (broker, ("--from-changelog", out), (*broker, "--from-changelog", out)):
        done = kstate("ls", directory, "--spec", "--topology", topology, *sources)
        assert left_open(done.out) == CANNOT_BE_KNOWN, done.told
        known = truth.by_name(complete(parse_draft(filled_in(done.out)), named="kstate.toml"))
        memory = known.pop(IN_MEMORY)
        assert (memory.kind, memory.partitions) == ("in-memory", truth.PARTITIONS)
        assert known == expected
        # Only the broker shows that a store without an offset has no changelog.
        assert ("kv-nolog" in done.err) is (sources[0] != "--bootstrap-server"), done.told
    spec = tmp_path / "kstate.toml"
    spec.write_text(filled_in(done.out), encoding="utf-8")

    # An operator changes a topic: it contradicts the segments, and is asked about.
    alter(harness, release, [changelog(app, "window-plain")], ["retention.ms=100000000"])
    asked = kstate("ls", directory, "--spec", "--topology", topology, *broker)
    assert left_open(asked.out) == {*CANNOT_BE_KNOWN, ("window-plain", "retention_ms")}, asked.told
    assert "# retention_ms = 1200000  # to fill in" in asked.out

    # The dump is older than the log: the check says by how much, store by store, and Streams restores just that.
    harness.produce(release, app, BATCH.then())
    good(harness.run(release, app, state, Run(read=False)))
    state.rename(tmp_path / "lost")
    state.mkdir()
    restore(directory, out, line(release), spec)
    check = kstate("check", directory, "--for", line(release), *broker, "-o", "json")
    behind = kstate("inspect-position", directory, *broker, "-o", "json")
    foretold = _by_store(check.rows, "prediction", "records")
    lags = _by_store(behind.rows, "store", "lag")
    assert all(row["records_exact"] for row in check.rows if row["type"] == "prediction" and row["store"] != "kv-nolog")
    started = good(harness.run(release, app, state, Run(read=False)))
    assert not wiped(started), started.told()
    real = {store: count for store, count in restored(started).items() if store != IN_MEMORY}
    assert sum(real.values()) > 0
    assert {store: count for store, count in foretold.items() if count} == real
    assert {store: count for store, count in lags.items() if count} == real
    summary = check.summary
    assert summary["restores"] == sum(real.values())

    # From a dump of everything it restores nothing.
    dump(harness, out, "--app", app.name, *named)
    state.rename(tmp_path / "lost-again")
    state.mkdir()
    restore(directory, out, line(release), spec)
    nothing = kstate("check", directory, "--for", line(release), *broker, "-o", "json")
    assert nothing.summary["restores"] == 0, nothing.told
    run = Run(expect_no_restore=True, read=False, may_restore=[IN_MEMORY])
    assert not wiped(good(harness.run(release, app, state, run)))
    harness.delete(release, app)


def _by_store(rows: list[dict[str, object]], kind: str, member: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        if row["type"] == kind:
            counts[str(row["store"])] = counts.get(str(row["store"]), 0) + int(str(row[member] or 0))
    return counts
