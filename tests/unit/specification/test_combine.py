"""The file over the topology's text over the directory, and what they may not say differently."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstate_cli.errors import Refused
from kstate_cli.formats.keys import WindowKey
from kstate_cli.specification.combine import resolve_spec
from kstate_cli.specification.draft import Spec, SpecDraft, StoreSpec
from kstate_cli.specification.toml_file import parse_draft
from kstate_cli.specification.topology import TopologyText, parse_topology
from kstate_cli.statedir.model import Application

from .small import application, database, store, task

STARTS = (600_000, 1_200_000)
SEGMENTS = [database([(WindowKey(b"k", start + 500_000).to_bytes(), b"v")], start=start) for start in STARTS]
LINES = {"app-plain-changelog-1": 3, "app-win-changelog-1": 4, "users-1": 5}


@pytest.fixture
def app() -> Application:
    stores = [store("plain"), store("table", built_from="users"), store("nolog", built_from="x")]
    stores += [store("win", *SEGMENTS, kind="window"), store("empty", kind="key-value", certain=False)]
    lines = {**LINES, "app-empty-changelog-1": -4}
    return application(
        task("0_1", *stores, lines=lines),
        task("global", store("g"), lines={"t-0": 1, "t-1": 1}),
    )


def toml(text: str) -> SpecDraft:
    return parse_draft(f"format = 1\n{text}")


ANSWERS = '[stores.empty]\nkind = "list-value"\n[stores.g]\nsource = "table"\n'


def test_the_directory_alone(app: Application) -> None:
    with pytest.raises(Refused) as refusal:
        resolve_spec(app, file_name="my.toml")
    assert refusal.value.hint == (
        "write these lines to my.toml and pass it with --spec. In each line with #, choose or add the value, and remove "
        "the #:"
    )
    assert refusal.value.hint_details == (
        "format = 1", "[stores.empty]", 'kind = "key-value"', "[stores.g]", '# source = "table" or "processor"',
    )  # fmt: skip
    spec = resolve_spec(app, only={"plain", "win"})
    assert [s.name for s in spec.stores] == ["plain", "table", "nolog", "win"]


ADDED = 'application = "app"\n'
"""A file without a table."""


@pytest.mark.parametrize("in_file", [None, ADDED, f"{ADDED}[stores.g]\n", f"{ADDED}[stores.plain]\npartitions = 8\n"])
@pytest.mark.parametrize("topics", [None, [], ["app-many-17-changelog"]])
def test_the_missing_lines_are_toml_that_completes_the_file(
    app: Application, in_file: str | None, topics: list[str] | None
) -> None:
    """All of them, however many: each table once, and nothing is proposed between several possible values."""
    many = [store(f"many-{number}", kind="key-value", certain=False) for number in range(30)]
    nowhere = [store("nowhere"), store("no.dots"), *many]
    app = replace(app, tasks=(*app.tasks, task("1_1", *nowhere)))
    spec = None if in_file is None else toml(in_file)
    with pytest.raises(Refused) as refusal:
        resolve_spec(app, spec, topics=topics)
    lines = refusal.value.hint_details
    tables = [line for line in lines if line.startswith("[")]
    assert len(set(tables)) == len(tables) == 34 and '[stores."no.dots"]' in tables
    assert len(refusal.value.details) < 9
    for name, value in (("nowhere", "false"), ("many-17", "true")):
        expected = f"logged = {value}" if topics else "# logged = true or false"
        assert expected in lines[lines.index(f"[stores.{name}]") :][:3]
    # Only what no source shows is left out.
    assert [line for line in lines if line.startswith("#") and "logged" not in line] == [
        '# source = "table" or "processor"'
    ]
    chosen = "\n".join(line.removeprefix("# ").partition(" or ")[0] for line in lines)
    if in_file is None:
        assert lines[0] == "format = 1"
        answers = parse_draft(chosen)
    else:
        assert "If one of these tables already exists" in str(refusal.value.hint) or "[stores.g]" not in in_file
        answers = toml(f"{ADDED}{chosen}")
    resolve_spec(app, answers, topics=topics)


def test_the_file_fills_in(app: Application) -> None:
    spec = resolve_spec(app, toml(ANSWERS))
    assert spec.application == "app"
    assert spec.store("empty") == StoreSpec(
        name="empty", kind="list-value", changelog="app-empty-changelog", subtopology=0, partitions=2
    )
    assert spec.store("g").source == "table" and spec.store("g").partitions == 2
    assert "source" not in spec.store("g").inferred and "kind" in spec.store("g").inferred
    assert spec.store("table").source_topic == "users"
    assert not spec.store("nolog").logged
    assert spec.store("win").retention_ms == 1_200_000


def test_the_file_may_say_more_than_the_directory(app: Application) -> None:
    more = '[stores.win]\nretention_ms = 1200001\n[stores.plain]\npartitions = 8\n[stores.new]\nkind = "key-value"\n'
    spec = resolve_spec(app, toml(ANSWERS + more))
    assert (spec.store("win").retention_ms, spec.store("win").segment_interval_ms) == (1_200_001, 600_000)
    assert spec.store("plain").partitions == 8
    assert spec.store("new").changelog == "app-new-changelog"
    logged = resolve_spec(app, toml(ANSWERS + "[stores.nolog]\nlogged = true"))
    assert logged.store("nolog").changelog == "app-nolog-changelog" and logged.store("nolog").partitions == 2


def test_naming_the_inferred_topic_keeps_the_source_topic(app: Application) -> None:
    spec = resolve_spec(app, toml(f'{ANSWERS}[stores.table]\nchangelog = "users"'))
    assert spec.store("table").source_topic == "users"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('application = "other"', "describes application other, but the directory belongs to app"),
        ('[stores.plain]\nkind = "versioned"', 'kind = "versioned", but the directory has kind = "key-value"'),
        ('[stores.plain]\nkind = "in-memory"', 'the directory has kind = "key-value"'),
        ('[stores.empty]\nkind = "window"', 'kind = "window", but the directory allows only'),
        ('[stores.empty]\nkind = "in-memory"', 'kind = "in-memory", but the directory allows only'),
        ('[stores.plain]\nchangelog = "x"', 'the directory has changelog = "app-plain-changelog"'),
        ("[stores.plain]\nlogged = false", 'logged = false, but the directory has changelog = "app-plain-changelog"'),
        ("[stores.plain]\nsubtopology = 1", "subtopology = 1, but the directory has subtopology = 0"),
        ("[stores.plain]\npartitions = 1", "partitions = 1, but the directory has 2"),
        ("[stores.plain]\nglobal = true", "the store is global, but in the directory it is in sub-topology 0"),
        ("[stores.g]\nglobal = false", "global = false, but the directory has global = true"),
        ("[stores.g]\nsubtopology = 0", "the store is in sub-topology 0, but in the directory it is global"),
        (
            "[stores.win]\nretention_ms = 2400000",
            "segments of 1200000 ms (retention_ms = 2400000), but the directory's segments",
        ),
        (
            "[stores.win]\nsegment_interval_ms = 300000",
            "specifies segments of 300000 ms, but the directory's segments",
        ),
    ],
)
def test_contradictions_are_refused_by_name(app: Application, text: str, message: str) -> None:
    with pytest.raises(Refused) as refusal:
        resolve_spec(app, toml(text), file_name="my.toml")
    assert message in refusal.value.message and "my.toml" in refusal.value.message
    assert refusal.value.exit_code == 4


def topology_text(number: int, stores: str) -> TopologyText:
    return parse_topology(f"Topologies:\n Sub-topology: {number}\n Processor: p (stores: [{stores}])\n")


def test_topology_against_the_others(app: Application) -> None:
    with pytest.raises(Refused, match="Topology#describe has subtopology = 3, but the directory has subtopology = 0"):
        resolve_spec(app, toml(ANSWERS), topology_text(3, "plain"))
    with pytest.raises(Refused, match=r"kstate.toml has subtopology = 2, but Topology#describe has subtopology = 3"):
        resolve_spec(None, toml("[stores.new]\nsubtopology = 2"), topology_text(3, "new"))
    alone = toml('application = "app"\n[stores.new]\nkind = "key-value"')
    assert resolve_spec(None, alone, topology_text(3, "new")).store("new").subtopology == 3


def test_complete_spec_overrides_only_its_settings(app: Application) -> None:
    spec = resolve_spec(app, toml(ANSWERS))
    assert {s.name: s for s in resolve_spec(app, spec).stores} == {s.name: s for s in spec.stores}
    # What was inferred gives way to what the directory says now; what is stated does not.
    plain = spec.store("plain")
    moves = Spec("app", tuple(replace(s, subtopology=9) if s is plain else s for s in spec.stores))
    assert resolve_spec(app, moves).store("plain").subtopology == 0
    statement = Spec(
        "app", (StoreSpec(name="plain", kind="key-value", changelog="app-plain-changelog", subtopology=9),)
    )
    with pytest.raises(Refused):
        resolve_spec(app, statement)


def test_names_are_unique() -> None:
    spec = StoreSpec(name="a", kind="key-value")
    with pytest.raises(ValueError, match="the same name"):
        Spec("app", (spec, spec))
    assert resolve_spec(None).stores == ()


UNEVEN = (
    '[stores.one]\nkind = "key-value"\nsubtopology = 0\npartitions = 1\n'
    '[stores.many]\nkind = "key-value"\nsubtopology = 0\npartitions = 200\n'
)


def test_numbers_of_partitions_within_a_subtopology() -> None:
    """Every task has each of its stores: what a directory would contradict is refused before there is one."""
    with pytest.raises(Refused, match="partitions = 1 for store one, but partitions = 200 for store many"):
        resolve_spec(None, toml(f'application = "app"\n{UNEVEN}'))
    for right in (UNEVEN.replace("200", "1"), UNEVEN.replace("subtopology = 0", "subtopology = 1", 1)):
        assert len(resolve_spec(None, toml(f'application = "app"\n{right}')).stores) == 2
    assert resolve_spec(None, toml(f'application = "app"\n{UNEVEN}logged = false\n'.replace("partitions = 200\n", "")))
