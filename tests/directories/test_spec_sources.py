"""``kstate ls --spec`` with a topology's text and a dump, of directories of real releases: exactly what is left to fill in.

The dumps here have no record: only what a manifest says of topics matters. With a real broker it is
tests/interop/test_spec_evidence.py.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.dump_reader.growing import name_of, render
from kstate_cli.dump_reader.model import Full, Grown, Round
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.specification.draft import Spec, complete
from kstate_cli.specification.toml_file import parse_draft
from kstate_cli.specification.topic_settings import DAY_MS
from tests.command_result import CommandResult
from tests.golden import index, unpack
from tests.unit.specification import truth

from .support import kstate, tree_hash

pytestmark = pytest.mark.rotating(6)

TOPOLOGIES = Path(truth.__file__).parent / "topologies"
UNKNOWABLE = {("join-left-shared-join-store", "kind"), ("global-table", "source")}
Changes = dict[str, dict[str, int | None]]


def expected_spec(app: Path, name: str) -> Spec:
    return truth.kinds(app.name, f"{app.name}-in", index()[name]["runs"][0]["release"])


def a_dump(folder: Path, spec: Spec, changes: Changes | None = None) -> Path:
    """A dump whose topics have the settings that Streams gives them; ``changes``: what an operator made of a store's."""
    topics: dict[str, Full] = {}
    for store in spec.stores:
        if store.changelog is not None and store.source is None:
            setting = "min_compaction_lag_ms" if store.kind == "versioned" else "retention_ms"
            settings = {} if store.retention_ms is None else {setting: store.retention_ms + DAY_MS}
            full = Full(
                TopicPartition(store.changelog, 0), 1, 0, 0, 5, (Round(0, 0, 5, 5),), (), cleanup_policy="compact"
            )
            topics[store.name] = replace(full, **settings | (changes or {}).get(store.name, {}))  # type: ignore[arg-type]
    full_dumps = [
        replace(topic, key=TopicPartition(topic.key.topic, number))
        for topic in topics.values()
        for number in range(truth.PARTITIONS)
    ]
    memory = f"{spec.application}-kv-memory-changelog"
    full_dumps += [
        replace(full_dumps[0], key=TopicPartition(memory, number), log_end=4, ranges=(Round(0, 4, 5, 5),))
        for number in range(truth.PARTITIONS)
    ]
    folder.mkdir()
    (folder / name_of(1)).write_bytes(render(Grown(1, "read_committed", tuple(full_dumps))))
    return folder


def write_description(app: Path, name: str, path: Path) -> Path:
    text = (TOPOLOGIES / f"{'4.3.1' if name.startswith('4') else '3.9.2'}-kinds.txt").read_text(encoding="utf-8")
    path.write_text(re.sub(r"(?<=[\[ ])in-", f"{app.name}-in-", text), encoding="utf-8")
    return path


def open_questions(result: CommandResult) -> set[tuple[str, str]]:
    results, table = set(), ""
    for line in result.out.splitlines():
        header = re.fullmatch(r"\[stores\.([^\]]+)\]", line)
        table = header[1] if header else table
        if "# to fill in" in line:
            results.add((table, line.removeprefix("# ").partition(" ")[0]))
    return results


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", ["4.3.1-kinds-eos", "4.2.1-kinds-eos", "3.9.2-kinds-eos"])
def test_only_unknowable_settings_stay_open(tmp_path: Path, name: str) -> None:
    app = unpack(name, tmp_path)
    spec = expected_spec(app, name)
    sources = (
        "--topology",
        write_description(app, name, tmp_path / "t"),
        "--from-changelog",
        a_dump(tmp_path / "dump", spec),
    )
    before = tree_hash(app)
    result = kstate("ls", app, "--spec", *sources, status=1)
    assert tree_hash(app) == before
    assert open_questions(result) == UNKNOWABLE
    text = re.sub(r"^# (source|kind) = (\"[a-z-]+\")  # to fill in: .*$", r"\1 = \2", result.out, flags=re.MULTILINE)
    specs = truth.by_name(complete(parse_draft(text), file_name="kstate.toml"))
    memory = specs.pop("kv-memory")
    assert (memory.kind, memory.subtopology, memory.partitions) == ("in-memory", 0, truth.PARTITIONS)
    assert specs == truth.by_name(spec)
    # Their segments have an interval of their own: the settings alone tell their history, and that is said.
    looked_at = {line.partition(":")[0] for line in result.err.splitlines() if "a custom segment interval" in line}
    assert looked_at == {f"{store.name}" for store in spec.stores if store.kind == "versioned"}
    # Every value says what it was taken from.
    messages = {line.partition(" = ")[0] for line in text.splitlines() if " # " in line}
    assert {"kind", "partitions", "retention_ms", "changelog"} <= messages
    assert "min.compaction.lag.ms = 87600000 of its changelog in the dump" in text


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("store", "setting", "value", "answer"),
    [
        ("window-plain", "retention_ms", 100_000_000, "1200000"),
        ("session-count", "retention_ms", 1_200_000, "1200000"),
        ("versioned", "min_compaction_lag_ms", 1, "..."),
        ("versioned", "min_compaction_lag_ms", DAY_MS, "..."),
        ("versioned", "min_compaction_lag_ms", DAY_MS + 3 * 60_000, "..."),
    ],
)
def test_edited_topic_is_an_open_question(tmp_path: Path, store: str, setting: str, value: int, answer: str) -> None:
    name = "4.3.1-kinds-eos"
    app = unpack(name, tmp_path)
    dump = a_dump(tmp_path / "dump", expected_spec(app, name), {store: {setting: value}})
    topology = write_description(app, name, tmp_path / "t")
    result = kstate("ls", app, "--spec", "--from-changelog", dump, "--topology", topology, status=1)
    assert open_questions(result) == {*UNKNOWABLE, (store, "retention_ms")}
    (line,) = [line for line in result.out.splitlines() if line.startswith("# retention_ms")]
    assert line.startswith(f"# retention_ms = {answer}  # to fill in:") and f"= {value} of its changelog" in line


def test_an_old_manifest_is_read_and_says_nothing_of_retentions(tmp_path: Path) -> None:
    name = "4.3.1-kinds-eos"
    app = unpack(name, tmp_path)
    nothing: Changes = {
        store.name: {"retention_ms": None, "min_compaction_lag_ms": None} for store in expected_spec(app, name).stores
    }
    dump = a_dump(tmp_path / "dump", expected_spec(app, name), nothing)
    assert b"retention_ms" not in (dump / name_of(1)).read_bytes()
    result = kstate("ls", app, "--spec", "--from-changelog", dump, status=1)
    assert open_questions(result) == {*UNKNOWABLE, ("versioned", "retention_ms"), ("grace-table", "retention_ms")}
    # Without the topology's text nobody says what has a changelog and no directory.
    assert (
        "this directory has no stores for these changelogs" in result.err
        and f"{app.name}-kv-memory-changelog" in result.err
    )


def test_option_needs_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    for option in ("--from-changelog", "--bootstrap-server", "--kafka-settings"):
        result = kstate("ls", app, option, "x", status=2)
        assert f"{option} needs --spec" in result.err
    # A variable is set for every call: a listing without --spec has no use for it.
    monkeypatch.setenv("KSTATE_LS_BOOTSTRAP_SERVER", "127.0.0.1:1")
    kstate("ls", app, status=0)
    monkeypatch.delenv("KSTATE_LS_BOOTSTRAP_SERVER")
    assert (
        "--kafka-settings works only with --bootstrap-server"
        in kstate("ls", app, "--spec", "--kafka-settings", "x", status=2).err
    )
    assert "cannot read" in kstate("ls", app, "--spec", "--topology", tmp_path / "none", status=2).err
    (tmp_path / "t").write_text("Topologies:\n   Sub-topology: 0\n    Processor: p (stores: [../x])\n")
    assert "not a legal store name" in kstate("ls", app, "--spec", "--topology", tmp_path / "t", status=2).err
    kstate("ls", app, "--spec", "--from-changelog", tmp_path / "none", status=2)


def test_a_topology_of_another_application_is_refused(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    result = kstate("ls", app, "--spec", "--topology", TOPOLOGIES / "4.3.1-kinds.txt", status=None)
    assert result.status != 0 and 'Topology#describe has changelog = "in-global"' in result.err and not result.out


def test_a_lag_by_a_file_and_by_a_dump(tmp_path: Path) -> None:
    """Both say where logs ended when they were made; a store that is beyond has no lag that anybody knows."""
    app = unpack("4.3.1-kinds-eos", tmp_path)
    result = kstate("inspect-position", app, "--store", "count", "-o", "json")
    rows = [row for row in result.rows if row["type"] == "store"]
    assert {(row["lag"], row["lag_exact"], row["lag_seconds"]) for row in rows} == {(None, None, None)}
    offsets = {row["task"]: next(iter(next(iter(row["changelog"].values())).values())) for row in rows}
    assert len(offsets) == truth.PARTITIONS
    topic = f"{app.name}-count-changelog"
    bounds = ", ".join(
        f'"{task[-1]}": {{"start": 0, "end": {offset + 1 + 7 * int(task[-1])}}}' for task, offset in offsets.items()
    )
    file = tmp_path / "offsets.json"
    file.write_text(f'{{"{topic}": {{{bounds}}}}}', encoding="utf-8")
    only = ("--store", "count", "--offsets", file)
    messages = [row for row in kstate("inspect-position", app, *only, "-o", "json").rows if row["type"] == "store"]
    assert [(row["lag"], row["lag_exact"], row["lag_seconds"]) for row in messages] == [(0, True, 0), (7, False, None)]
    output = kstate("inspect-position", app, *only).out
    assert " lag" in output.splitlines()[0] and "at most 7" in output
    beyond = ("--store", "count", "--from-changelog", a_dump(tmp_path / "dump", expected_spec(app, "4.3.1-kinds-eos")))
    rows = kstate("inspect-position", app, *beyond, "-o", "json").rows
    assert [row["lag"] for row in rows if row["type"] == "store"] == [None, None]
