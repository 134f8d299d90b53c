"""kstate.toml: read strictly, written so that it reads back the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.store_kinds import has_retention, is_time_ordered
from kstate_cli.formats.topic_partition import legal_store_name
from kstate_cli.specification.draft import Question, Spec, SpecDraft, StoreDraft, StoreSpec, complete, spec_kinds
from kstate_cli.specification.toml_file import parse_draft, read_draft, read_spec, to_toml

EXAMPLE = Path(__file__).parents[3] / "examples" / "kstate.toml"


def spec_of(text: str) -> Spec:
    return complete(parse_draft("format = 1\n" + text), file_name="kstate.toml")


def only(text: str) -> StoreSpec:
    (store,) = spec_of(text).stores
    return store


def test_example() -> None:
    spec = read_spec(EXAMPLE)
    assert spec.application == "my-app"
    assert spec.store("count") == StoreSpec(
        name="count",
        kind="timestamped-key-value",
        changelog="my-app-count-changelog",
        subtopology=0,
        partitions=2,
    )
    assert spec.store("window-count").segment_interval_ms == 600_000
    assert not spec.store("kv-nolog").logged
    assert spec.store("users-table").source_topic == "users"
    assert spec.store("seen").in_memory
    assert spec.store("global-table").is_global and spec.store("global-table").changelog == "input-table"


def test_defaults() -> None:
    plain = only('application = "a"\n[stores.s]\nkind = "key-value"')
    assert plain.changelog == "a-s-changelog" and "changelog" in plain.inferred
    spec = only('application = "a"\n[stores.s]\nkind = "key-value"\ntopology = "t"')
    assert spec.changelog == "a-t-s-changelog"
    source = only('application = "a"\n[stores.s]\nkind = "key-value"\nchangelog = "input"')
    assert source.source_topic == "input"
    foreign = only('application = "a"\n[stores.s]\nkind = "key-value"\nchangelog = "b-s-changelog"')
    assert foreign.source is None
    nolog = only('application = "a"\n[stores.s]\nkind = "window"\nlogged = false')
    assert nolog.changelog is None
    for kind, indexed in (("time-ordered-session", True), ("headers-time-ordered-window", True), ("session", False)):
        assert only(f'application = "a"\n[stores.s]\nkind = "{kind}"\nretention_ms = 1').indexed is indexed
    short = only('application = "a"\n[stores.s]\nkind = "window"\nretention_ms = 100000')
    assert short.segment_interval_ms == 60_000
    history = only('application = "a"\n[stores.s]\nkind = "versioned"\nretention_ms = 1200000')
    assert history.segment_interval_ms == 100_000
    own = only(
        'application = "a"\n[stores.s]\nkind = "versioned"\nretention_ms = 1200000\nsegment_interval_ms = 240000'
    )
    assert own.segment_interval_ms == 240_000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('application = "a"\n[stores.s]', "[stores.s]\n    # kind = ..."),
        ('[stores.s]\nkind = "key-value"', "[stores.s]\n    # changelog = ..."),
        ('application = "a"\n[stores.s]\nkind = "window"', "[stores.s]\n    # retention_ms = ..."),
        (
            'application = "a"\n[stores.s]\nkind = "time-ordered-window"\nretention_ms = 1',
            "[stores.s]\n    # indexed = ...",
        ),
        ('[stores."a.b"]\nkind = "key-value"\nglobal = true\nchangelog = "t"', '[stores."a.b"]\n    # source = ...'),
        ('[stores.s]\nkind = "key-value"\nglobal = true\nsource = "table"', "[stores.s]\n    # changelog = ..."),
    ],
)
def test_missing_lines_are_named(text: str, line: str) -> None:
    with pytest.raises(Refused) as refusal:
        spec_of(text)
    assert line in refusal.value.advice


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[", "not a valid TOML file", ""),
        ("x" * 10_000, "not a valid TOML file", ""),
        ("x = " + "[" * 50_000, "not a valid TOML file", ""),
        ("", "has no format", "format = 1"),
        ("format = 2", "has format 2", "format = 1"),
        ("format = true", "has format True", "format = 1"),
        ("format = 1.0", "has format 1.0", "format = 1"),
        ("format = 1\nstore = 3", "the file has an unknown key 'store'", "did you mean 'stores'"),
        ('format = 1\napplication = "a b"', "not a valid application.id", "characters"),
        ("format = 1\nstores = 3", "stores is not a table", ""),
        ("format = 1\n[stores]\ncount = 3", "[stores.count] is not a table", ""),
        ('format = 1\n[stores."../x"]', "'../x' is not a legal store name", "characters"),
        ('format = 1\n[stores.".."]', "'..' is not a legal store name", "characters"),
        ("format = 1\n[stores.a.b]\nkind = 'window'", "[stores.a] contains a table 'b'", '[stores."a.b"]'),
        ("format = 1\n[stores.a]\nretention = 3", "unknown key 'retention'", "did you mean 'retention_ms'"),
        ("format = 1\n[stores.a]\nkind = 'windows'", "kind = 'windows' is invalid", "did you mean 'window'"),
        ("format = 1\n[stores.a]\nkind = 'windowed'", "kind = 'windowed' is invalid", ""),
        ("format = 1\n[stores.a]\nretention_ms = '20m'", "retention_ms = '20m' is invalid", "milliseconds"),
        ("format = 1\n[stores.a]\nretention_ms = 0", "retention_ms = 0 is invalid", "milliseconds"),
        ("format = 1\n[stores.a]\nretention_ms = true", "retention_ms = True is invalid", "milliseconds"),
        ("format = 1\n[stores.a]\nretention_ms = 9223372036854775808", "is invalid", "milliseconds"),
        ("format = 1\n[stores.a]\npartitions = 0", "partitions = 0 is invalid", "of 1 or more"),
        ("format = 1\n[stores.a]\nsubtopology = -1", "subtopology = -1 is invalid", "of 0 or more"),
        ("format = 1\n[stores.a]\nlogged = 1", "logged = 1 is invalid", "true or false"),
        ("format = 1\n[stores.a]\nchangelog = 'a/b'", "changelog = 'a/b' is invalid", "a topic"),
        (
            "format = 1\n[stores.a]\nlogged = false\nchangelog = 'b'",
            "has logged = false, but also a changelog",
            "remove",
        ),
        ("format = 1\n[stores.a]\nglobal = true\nsubtopology = 0", "global, but has a subtopology", "remove"),
        ("format = 1\n[stores.a]\nglobal = true\nlogged = false", "global, but has 'logged'", ""),
        ("format = 1\n[stores.a]\nglobal = true\nsource = 'topic'", 'global with source = "topic"', ""),
        ("format = 1\n[stores.a]\nglobal = false\nsource = 'table'", "is not global", "remove"),
        ("format = 1\n[stores.a]\nsource = 'topic'", "but no topic", "changelog"),
        ("format = 1\n[stores.a]\nkind = 'key-value'\nretention_ms = 1", "has retention_ms", "remove"),
        ("format = 1\n[stores.a]\nkind = 'window'\nindexed = true", ", but has indexed = true", "time-ordered"),
    ],
)
def test_refuses_senseless_settings(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=r"^the-file") as refusal:
        parse_draft(text, "the-file")
    assert message in refusal.value.message
    assert hint in (refusal.value.hint or "")


def test_source_makes_a_store_global() -> None:
    store = only('application = "a"\n[stores.s]\nkind = "key-value"\nsource = "processor"\nchangelog = "t"')
    assert store.is_global and store.changelog == "t"


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_draft(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"format = 1 # \xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_draft(tmp_path / "bytes")
    (tmp_path / "large").write_bytes(b"#" * (5 << 20))
    with pytest.raises(UsageError, match="larger than"):
        read_draft(tmp_path / "large")


NAMES = st.text("abcXYZ019._-", min_size=1, max_size=12).filter(legal_store_name)
NUMBERS = st.integers(1, (1 << 63) - 1)


@st.composite
def stores(draw: st.DrawFn, name: str) -> StoreSpec:
    kind = draw(st.sampled_from(sorted(spec_kinds())))
    values: dict[str, Any] = {}
    if (logging := draw(st.sampled_from(["logged", "unlogged", "source", "global"]))) != "unlogged":
        values["partitions"] = draw(st.none() | st.integers(1, 100))
    match logging:
        case "logged":
            values["changelog"] = draw(st.just(f"app-{name}-changelog"))
        case "source":
            values |= {"changelog": draw(NAMES), "source": "topic"}
        case "global":
            values |= {
                "changelog": draw(NAMES),
                "is_global": True,
                "source": draw(st.sampled_from(["table", "processor"])),
            }
    if not values.get("is_global"):
        values |= {"subtopology": draw(st.none() | st.integers(0, 99)), "topology": draw(st.none() | NAMES)}
    if has_retention(kind):
        values |= {"retention_ms": draw(NUMBERS), "segment_interval_ms": draw(NUMBERS)}
    if is_time_ordered(kind):
        values["indexed"] = draw(st.booleans())
    comments = st.dictionaries(
        st.sampled_from(["kind", "changelog", "partitions", "retention_ms"]), st.text(max_size=20)
    )
    return StoreSpec(name=name, kind=kind, inferred=draw(comments), **values)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    return Spec("app", tuple(draw(stores(name)) for name in names))


@settings(max_examples=60, deadline=None)
@given(specs())
def test_round_trip(spec: Spec) -> None:
    text = to_toml(spec, notes=["a note\nof two lines\x1b"])
    assert text.isascii()
    back = complete(parse_draft(text), file_name="x")
    assert {s.name: s for s in back.stores} == {s.name: s for s in spec.stores}
    again = to_toml(back)
    assert parse_draft(again) == parse_draft(text)


def test_missing_settings_are_comments_to_uncomment() -> None:
    requests = StoreDraft(
        name="a.b",
        subtopology=1,
        inferred={"subtopology": "hostile\nkind = 'session'\x1b[2J"},
        questions={"kind": Question("hostile\n[stores.x]", ("window", "session"))},
    )
    text = to_toml(SpecDraft("app", (requests,)))
    (draft,) = parse_draft(text).stores
    assert draft.name == "a.b" and draft.kind is None and draft.subtopology == 1
    line = next(line for line in text.splitlines() if line.startswith('# kind = "window"'))
    assert line.isprintable()
    (filled,) = parse_draft(text.replace(line, line.removeprefix("# "))).stores
    assert filled.kind == "window"


def test_order_is_stable() -> None:
    drafts = [StoreDraft(name=n, kind="key-value", subtopology=i) for n, i in (("b", 0), ("a", 1), ("a2", 0))]
    drafts.append(StoreDraft(name="0", kind="key-value", is_global=True, source="table", changelog="t"))
    texts = {to_toml(SpecDraft("app", tuple(order))) for order in (drafts, drafts[::-1])}
    assert len(texts) == 1
    assert [s.name for s in parse_draft(texts.pop()).stores] == ["a2", "b", "a", "0"]
