"""Hints about stores that cannot be read, carried out: they name the cause, and with it solved every row is read again."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rocksdict import Options, Rdict

from kstate_cli.formats.offsets import decode_rows, encode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from tests import json_lines
from tests.dumps.support import rows as records
from tests.dumps.support import write
from tests.faults import tiny_dump
from tests.golden import unpack
from tests.growing import GrowingDump
from tests.hints import follows_hint
from tests.restore.support import APP, SPEC, TOPIC

from .test_hints_followed import flip, printed_commands
from .test_runs import immutable
from .warm import Ended, Warm

pytestmark = pytest.mark.rotating(4)

OPENED_AGAIN = bytes.fromhex(
    "000000000000001e000000000000000f000000000000001400000001000000000000000a00000001000000000000000f000000046c6174656162"
)
"""The row of versions at 10, 20 and 30 to which real 3.9.2 and 4.3.1, started again, added one at 15."""
READERS = ("query raw-scan APP STORE", "export APP STORE --out OUT --overwrite", "diff APP COPY --store STORE")
"""Commands that read every row of a store."""


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process


def kstate(warm: Warm, line: str, app: Path, store: str, *more: object) -> Ended:
    """Run a command of READERS."""
    folder = app.parent.parent
    words = {"APP": app, "STORE": store, "OUT": folder / "out", "COPY": folder / "copy"}
    return warm(*(words.get(word, word) for word in line.split()), *more)


def write_rows(path: Path, rows: dict[bytes, bytes]) -> None:
    """Make a database."""
    path.parent.mkdir(parents=True, exist_ok=True)
    database = Rdict(str(path), Options(raw_mode=True))
    for key, value in rows.items():
        database[key] = value
    database.flush()
    database.close()


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
@pytest.mark.parametrize("line", READERS)
def test_a_store_of_several_kinds(line: str, tmp_path: Path, warm: Warm) -> None:
    """The written specification lists the kinds, and with one of them each command reads the store."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    for start in (0, 60_000):
        # The row of a window as well as that of a session.
        write_rows(app / "0_1" / "either" / f"either.{start}", {bytes(8) + 2 * start.to_bytes(8, "big"): b"v"})
    shutil.copytree(app, tmp_path / "copy")
    refusal = kstate(warm, line, app, "either")
    assert refusal.status == 6 and "either may be of several kinds" in refusal.err, refusal.report
    assert "specify the store's kind in a kstate.toml and pass this file with --spec" in refusal.err
    (words,) = printed_commands(refusal)
    draft = warm(*words[1:]).out
    table, kind = re.findall(r'^(\[stores\.either\])\n# (kind = "window")', draft, flags=re.MULTILINE)[0]
    spec = tmp_path / "kstate.toml"
    spec.write_text(f"format = 1\n{table}\n{kind}\nlogged = false\nretention_ms = 120000\n")
    followed = kstate(warm, line, app, "either", "--spec", spec)
    assert followed.status in (0, 1), followed.report


def rows_of(warm: Warm, app: Path, store: str) -> dict[str, int]:
    """How many rows of a store `verify` reads in each task."""
    lines = json_lines.results(warm("verify", app, "-o", "json").out)
    return {row["task"]: row["rows"] for row in lines if row["type"] == "store" and row["store"] == store}


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_store_of_another_kind_in_another_task(tmp_path: Path, warm: Warm) -> None:
    """The printed command gives every row of both."""
    app = unpack("4.3.1-kinds-eos", tmp_path / "state")
    shutil.rmtree(app / "0_1" / "window-plain")
    for segment in (app / "0_1" / "session-plain").iterdir():
        start = segment.name.rpartition(".")[2]
        shutil.copytree(segment, app / "0_1" / "window-plain" / f"window-plain.{start}")
    refusal = kstate(warm, "export APP STORE --out OUT", app, "window-plain")
    assert refusal.status == 4 and "window-plain has different kinds" in refusal.err, refusal.report
    ((_, *words),) = printed_commands(refusal)
    followed = warm(*words)
    assert followed.status == 0, followed.report
    partitions = [row["partition"] for row in json_lines.results(followed.out) if row["type"] == "row"]
    rows = rows_of(warm, app, "window-plain")
    assert {f"0_{partition}": partitions.count(partition) for partition in (0, 1)} == rows and all(rows.values())


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
@pytest.mark.parametrize("line", READERS)
def test_a_database_of_another_store(line: str, tmp_path: Path, warm: Warm) -> None:
    """Moved out with the printed command, or with the right one in its place, nothing keeps the rest from being read."""
    whole = unpack("4.3.1-headers-eos", tmp_path / "state")
    app = tmp_path / "other" / whole.name
    shutil.copytree(whole, tmp_path / "copy")
    segment = min((whole / "0_1" / "session-headers").iterdir())
    last = max((whole / "0_1" / "window-headers").iterdir())
    for store, place in (("kv-headers", Path("0_1", "rocksdb", "kv-headers")),
                         ("window-headers", last.relative_to(whole))):  # fmt: skip
        shutil.rmtree(app.parent, ignore_errors=True)
        shutil.copytree(whole, app)
        shutil.rmtree(app / place)
        shutil.copytree(segment, app / place)
        refusal = kstate(warm, line, app, store)
        assert refusal.status == 6 and "does not belong to a headers-" in refusal.err, refusal.report
        assert "Or move it out with a command that you can undo" in refusal.err
        ((_, *wipe),) = printed_commands(refusal)
        assert warm(*wipe).status in (0, 1)
        followed = kstate(warm, line, app, store)
        assert followed.status in (0, 1, 3), followed.report
        assert warm("undo", app).status == 0
        assert kstate(warm, line, app, store).status == 6
        shutil.rmtree(app / place)
        shutil.copytree(whole / place, app / place)
        assert kstate(warm, line, app, store).status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_store_that_is_not_segmented_where_others_are(tmp_path: Path, warm: Warm) -> None:
    app = unpack("4.3.1-headers-eos", tmp_path / "state")
    segment = min((app / "0_1" / "session-headers").iterdir())
    shutil.rmtree(app / "0_1" / "window-headers")
    shutil.copytree(segment, app / "0_1" / "rocksdb" / "window-headers")
    rows = rows_of(warm, app, "window-headers")
    for line in READERS[:2]:
        refusal = kstate(warm, line, app, "window-headers")
        assert (
            refusal.status == 6 and "0_1/window-headers is not segmented, so it is not a headers-window" in refusal.err
        )
        ((_, *wipe),) = printed_commands(refusal)
        assert warm(*wipe).status in (0, 1)
        followed = kstate(warm, line, app, "window-headers")
        assert followed.status in (0, 1), followed.report
        assert warm("undo", app).status == 0
    assert rows_of(warm, app, "window-headers") == rows


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_segments_that_begin_elsewhere(tmp_path: Path, warm: Warm) -> None:
    """The printed command reads the rows of every segment."""
    app = unpack("4.3.1-kinds-eos", tmp_path / "state")
    first = min((app / "0_1" / "window-plain").iterdir())
    start = int(first.name.rpartition(".")[2])
    shutil.copytree(first, first.with_name(f"window-plain.{start + 60_000}"))
    refusal = warm("query", "window-range", app, "window-plain")
    assert refusal.status == 6 and "the segments do not all have the same segment interval" in refusal.err, (
        refusal.report
    )
    ((_, *scan),) = printed_commands(refusal)
    followed = warm(*scan, "-o", "json")
    assert followed.status == 0, followed.report
    partitions = [row["partition"] for row in json_lines.results(followed.out) if row["type"] == "row"]
    rows = rows_of(warm, app, "window-plain")
    assert {f"0_{partition}": partitions.count(partition) for partition in (0, 1)} == rows and all(rows.values())


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_purge_that_ends_halfway(tmp_path: Path, warm: Warm) -> None:
    """With its cause fixed the printed command deletes the rest, and what is in use stays."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    name = Path("0_0", "rocksdb", "latest-order", "CURRENT")
    immutable(app / name, on=True)
    parent = app.parent / ".kstate" / app.name / "0001-wipe" / "tree" / name
    try:
        refusal = warm("wipe", app, "--store", "latest-order", "--purge", "--yes")
        assert refusal.status == 7 and "could not delete the removed files" in refusal.err, refusal.report
        ((_, *clean),) = printed_commands(refusal)
        assert warm(*clean).status == 7
    finally:
        immutable(parent, on=False)
    before = warm("verify", app).out
    assert warm(*clean).status == 0
    assert not (app.parent / ".kstate").exists() and warm("verify", app).out == before


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_versions_that_a_started_store_has_filed_wrongly(tmp_path: Path, warm: Warm) -> None:
    """The dry run refuses them too; rebuilt from the whole changelog, the store has every version."""
    half = tiny_dump.make(tmp_path / "half", (tiny_dump.VERSIONED,), part=0.5)
    whole = tiny_dump.make(tmp_path / "whole", (tiny_dump.VERSIONED,))
    app = tmp_path / "state" / tiny_dump.APP
    app.parent.mkdir()
    words = ("--for", "4.3", "--engine", "local", "--warnings-ok")
    assert warm("restore", app, *half.options, *words).status == 0
    write_rows(app / "0_0" / "rocksdb" / tiny_dump.VERSIONED, {bytes(8) + b"k": OPENED_AGAIN})
    refusal = warm("restore", app, *whole.options, *words)
    assert refusal.status == 4 and "the store has a row with versions in the wrong order" in refusal.err, refusal.report
    (hint,) = re.findall(r"rebuild it from the whole changelog: (.*)", refusal.err)
    assert warm("restore", app, *whole.options, *words, *shlex.split(hint)).status == 0
    expected = tmp_path / "expected" / tiny_dump.APP
    expected.parent.mkdir()
    assert warm("restore", expected, *whole.options, *words).status == 0
    digests = [
        [row["digest"] for row in json_lines.results(warm("verify", path, "-o", "json").out) if row["type"] == "store"]
        for path in (app, expected)
    ]
    assert digests[0] == digests[1] and len(digests[0]) == 1


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_rows_that_do_not_fit_and_are_in_no_order(tmp_path: Path, warm: Warm) -> None:
    """With more memory this host sorts them; without `--engine local` Spark does."""
    count = 8_000
    table = records(TOPIC, 0, count)
    keys = pa.array([b"%08d" % number * 250 for number in range(count)], table.schema.field("key").type)
    table = table.set_column(table.schema.get_field_index("key"), "key", keys)
    write(tmp_path / "dump", table, shuffle=7, rows_per_file=count // 20)
    (tmp_path / "kstate.toml").write_text(SPEC.replace("partitions = 2", "partitions = 1"))
    app = tmp_path / "state" / APP
    app.parent.mkdir()
    words = ("restore", app, "--from-changelog", tmp_path / "dump", "--spec", tmp_path / "kstate.toml", "--for", "4.3",
             "--warnings-ok")  # fmt: skip
    refusal = warm(*words, "--engine", "local", "--memory", "200M")
    assert refusal.status == 4 and "only Spark can sort them" in refusal.err, refusal.report
    assert "omit --engine local or pass a larger --memory" in refusal.err
    counts = []
    for followed in (("--engine", "local", "--memory", "2G"), ("--engine", "spark")):
        result = warm(*words, *followed)
        assert result.status == 0, result.report
        counts.append(rows_of(warm, app, "bulk"))
        assert warm("undo", app).status == 0
    values = count - table.column("value").null_count
    assert counts == [{"0_0": values}] * 2


COMMANDS = ("ls APP", "inspect-position APP", "check APP --for 4.3", "verify APP", "query raw-scan APP STORE",
            "export APP STORE --out OUT --overwrite", "diff APP COPY --store STORE", "migrate APP --to 4.2 --dry-run")  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("line", COMMANDS)
def test_a_store_in_both_of_its_places(line: str, tmp_path: Path, warm: Warm) -> None:
    """A store that became a windowed one leaves its database behind. Nothing is known of it until one is moved away."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    shutil.copytree(app, tmp_path / "copy")
    before = kstate(warm, line, app, "visits")
    place = app / "0_0" / "rocksdb" / "visits"
    place.mkdir()
    without_database = kstate(warm, line, app, "visits")
    assert (without_database.status, without_database.out) == (before.status, before.out)
    place.rmdir()
    shutil.copytree(app / "0_0" / "rocksdb" / "latest-order", place)
    refusal = kstate(warm, line, app, "visits")
    assert (
        refusal.status in (3, 4, 6) and "this is one of two stores with the same name in the task" in refusal.report
    ), refusal.report
    assert "move it out" not in refusal.report, "neither is advised to be thrown away"
    shutil.rmtree(place)
    assert kstate(warm, line, app, "visits").status == before.status


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_ls_of_a_store_without_current(tmp_path: Path, warm: Warm) -> None:
    """The printed `check` names the store, and with its file put back `ls` succeeds."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    current = app / "0_0" / "rocksdb" / "latest-order" / "CURRENT"
    current.rename(tmp_path / "CURRENT")
    refusal = warm("ls", app)
    assert refusal.status == 3 and "to predict the next start" in refusal.err, refusal.report
    ((_, *check),) = printed_commands(refusal)
    checked = warm(*("4.3" if word == "RELEASE" else word for word in check))
    assert checked.status == 3 and "0_0/latest-order" in checked.report
    (tmp_path / "CURRENT").rename(current)
    assert warm("ls", app).status == 0


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_directory_that_cannot_be_migrated(tmp_path: Path, warm: Warm) -> None:
    """The printed `check` says what to do about each problem; the other command leaves the task out."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    current = app / "0_0" / "rocksdb" / "latest-order" / "CURRENT"
    current.rename(tmp_path / "CURRENT")
    refusal = warm("migrate", app, "--to", "4.2")
    assert refusal.status == 4, refusal.report
    (check,) = re.findall(r"to see what to do about each problem, run kstate (.*)$", refusal.err, flags=re.MULTILINE)
    checked = warm(*shlex.split(check))
    assert checked.status == 3 and "latest-order" in checked.report
    (leave_out,) = re.findall(r"so that Streams restores them: kstate (.*)$", refusal.err, flags=re.MULTILINE)
    assert warm(*shlex.split(leave_out)).status in (0, 1)
    assert warm("undo", app).status == 0
    (tmp_path / "CURRENT").rename(current)
    assert warm("migrate", app, "--to", "4.2").status == 0


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_offsets_that_streams_never_writes(tmp_path: Path, warm: Warm) -> None:
    """With the task moved out the others are migrated, and `undo` brings it back."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    path = app / "0_0" / "rocksdb" / "latest-order"
    with Shadow(path) as shadow:
        record = decode_rows(shadow.rows(OFFSETS_CF))
    with WritableStore(path) as store:
        store.set_offsets(encode_rows(replace(record, offsets=dict.fromkeys(record.offsets, -7))))
    refusal = warm("migrate", app, "--to", "4.2")
    assert refusal.status == 4 and "remove the task so that Streams restores it from its changelogs" in refusal.err, (
        refusal.report
    )
    (wipe,) = re.findall(r"Streams restores it from its changelogs: kstate (.*)$", refusal.err, flags=re.MULTILINE)
    assert warm(*shlex.split(wipe)).status in (0, 1)
    followed = warm("migrate", app, "--to", "4.2")
    assert followed.status in (0, 1), followed.report
    assert warm("undo", app).status == 0 and warm("undo", app).status == 0
    assert path.is_dir()


def test_damage_and_the_dump(tmp_path: Path, warm: Warm) -> None:
    """`verify` names the file; `restore` builds the store again, with the same rows."""
    dump = GrowingDump(tmp_path / "dump")
    dump.add({TopicPartition(TOPIC, number): [(b"k%05d" % n, b"v%d" % n * 20, 1_700_000_000_000 + n) for n in range(4_000)]
              for number in (0, 1)})  # fmt: skip
    (tmp_path / "kstate.toml").write_text(SPEC)
    app = tmp_path / "state" / APP
    app.parent.mkdir()
    more = ("--spec", tmp_path / "kstate.toml", "--engine", "local")
    assert warm("restore", app, "--from-changelog", dump.path, "--for", "4.3", *more).status == 0
    rows = rows_of(warm, app, "bulk")
    file = max((app / "0_0" / "rocksdb" / "bulk").glob("*.sst"), key=lambda path: path.stat().st_size)
    flip(file, file.stat().st_size // 2)
    refusal = warm("export", app, "bulk", "--out", tmp_path / "out")
    assert refusal.status == 6 and "to rebuild the store from a dump" in refusal.err, refusal.report
    (_, *verify), (_, *restore) = printed_commands(refusal)
    assert warm(*verify).status == 3
    arguments = {"DUMP": dump.path, "RELEASE": "4.3"}
    followed = warm(*(arguments.get(word, word) for word in restore), *more, "--rebuild")
    assert followed.status in (0, 1), followed.report
    assert rows_of(warm, app, "bulk") == rows
    assert warm("export", app, "bulk", "--out", tmp_path / "out").status == 0


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_serde_that_does_not_exist(tmp_path: Path, warm: Warm) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    words = ("export", app, "latest-order", "--out", tmp_path / "out", "--key-serde")
    refusal = warm(*words, "strin")
    assert refusal.status == 2 and "to see how to use a custom one" in refusal.err, refusal.report
    ((_, *help_words),) = printed_commands(refusal)
    output = warm(*help_words)
    assert output.status == 0 and "string" in output.out
    assert warm(*words, "string").status == 0


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
@follows_hint("wipe.py", "wipe all of these stores")
def test_a_line_that_may_be_of_several_stores(tmp_path: Path, warm: Warm) -> None:
    """All stores of the task are moved out with the printed command, and `undo` brings them back."""
    app = unpack("4.2.1-kinds-eos", tmp_path / "state")
    file = app / "0_0" / ".checkpoint"
    lines = [line for line in file.read_text().splitlines() if not re.search("kv-plain|kv-timestamped", line)]
    topic = "golden-421-kinds-eos-in-events"
    lines = [lines[0], str(len(lines) - 1), *lines[2:], f"{topic} 0 5"]
    file.write_text("\n".join([*lines, ""]))
    refusal = warm("wipe", app, "--task", "0_0", "--store", "kv-plain")
    assert refusal.status == 4 and f"the offset for {topic}:0 in .checkpoint may belong to" in refusal.err, (
        refusal.report
    )
    _, _, hint = refusal.err.partition("to wipe all of these stores, run kstate ")
    assert warm(*shlex.split(hint.splitlines()[0])).status in (0, 1)
    assert not (app / "0_0").exists()
    assert warm("undo", app).status == 0
    assert file.read_text().endswith("in-events 0 5\n")


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_records_that_only_the_store_has(tmp_path: Path, warm: Warm) -> None:
    """They are exported with the printed command; `--rebuild` replaces the store then."""
    half = tiny_dump.make(tmp_path / "half", (tiny_dump.KV,), part=0.5)
    whole = tiny_dump.make(tmp_path / "whole", (tiny_dump.KV,))
    app = tmp_path / "state" / tiny_dump.APP
    app.parent.mkdir()
    words = ("--for", "4.3", "--engine", "local", "--warnings-ok")
    assert warm("restore", app, *whole.options, *words).status == 0
    rows = rows_of(warm, app, tiny_dump.KV)
    manifest = json.loads((tmp_path / "half" / "dump" / "_manifest.json").read_text())
    (partition,) = manifest["partitions"]
    ends = {partition["topic"]: {"0": {"start": 0, "end": partition["log_end"]}}}
    (tmp_path / "offsets.json").write_text(json.dumps(ends))
    restore = ("restore", app, *half.options, *words, "--offsets", tmp_path / "offsets.json")
    for option in ((), ("--dry-run",)):
        refusal = warm(*restore, *option)
        assert refusal.status == 4 and "--rebuild then replaces it with the dump's contents" in refusal.err, (
            refusal.report
        )
    ((_, *export),) = printed_commands(refusal)
    out = tmp_path / "export"
    assert warm(*(str(out) if word == "DIR" else word for word in export)).status == 0
    assert pq.read_table(out).num_rows == sum(rows.values())
    followed = warm(*restore, "--rebuild")
    assert followed.status in (0, 1), followed.report


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_text_that_kstate_does_not_know(tmp_path: Path, warm: Warm) -> None:
    """More of the log has the cause; the other command is about the directory itself."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    refusal = warm("explain", "Failed", "to", "commit")
    assert refusal.status == 2 and "pass more of the log, with the causes of the exception" in refusal.err, (
        refusal.report
    )
    (tmp_path / "FILE").write_text("Failed to commit\nCaused by: Corruption: block checksum mismatch: stored = 7\n")
    (line,) = re.findall(r"for example: kstate (.*) < FILE", refusal.err)
    followed = warm(*line.split(), stdin=str(tmp_path / "FILE"))
    assert followed.status == 0 and "verify:corrupt" in followed.out, followed.report
    ((_, *check),) = [words for words in printed_commands(refusal) if words[1] == "check"]
    arguments = {"APP": app, "RELEASE": "4.3"}
    assert warm(*(arguments.get(word, word) for word in check)).status == 0
