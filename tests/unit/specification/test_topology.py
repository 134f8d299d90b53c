"""Texts of Topology#describe that real releases printed, and texts that they would not print."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.errors import UsageError
from kstate_cli.specification.topology import TopologyText, parse_topology, read_topology

FOLDER = Path(__file__).parent / "topologies"


def text(name: str) -> TopologyText:
    return read_topology(FOLDER / f"{name}.txt")


@pytest.mark.parametrize("release", ["3.4.1", "3.9.2", "4.3.1"])
def test_kinds(release: str) -> None:
    results = text(f"{release}-kinds")
    assert results.of("count").number == 0 and results.of("count").topics == ("in-events",)
    assert results.of("kv-memory").number == 0
    assert results.of("source-table").number == 1
    assert results.of("join-left-shared-join-store").number == 3
    assert results.of("join-this-join-store").topics == ("in-left", "in-right")
    assert results.of("fk-subscription-store").number == 5
    assert results.global_stores == {"global-table": "in-global"}
    assert results.of("nothing") is None
    assert ("versioned" in results.stores) == (release != "3.4.1")


@pytest.mark.parametrize("name", ["4.3.1-dsl", "4.3.1-dsl-optimized"])
def test_names_joins_and_globals(name: str) -> None:
    results = text(name)
    # addGlobalStore ("custom-global") and globalTable look the same: nothing is said about the source.
    assert results.global_stores == {
        "countries-store": "countries",
        "currencies-store": "currencies",
        "nameless-STATE-STORE-0000000004": "nameless",
        "custom-global": "custom",
    }
    assert all(store.source is None for store in results.draft().stores)
    assert results.of("users-store").number == results.of("per-minute").number == 4
    assert results.of("users-store").topics == ("orders-us", "orders-eu", "payments", "users")
    assert results.of("KSTREAM-OUTERSHARED-0000000022-store").number == 4
    assert results.of("counts").number == 5


def test_names_of_processors_cannot_be_mistaken() -> None:
    """A processor is called "P (stores: [no])", another "none", a source "all of (topics: [x])"."""
    results = text("4.3.1-processors")
    assert results.stores == ("store.with-dots_1", "memory", "global-one")
    first = results.subtopologies[0]
    assert first.topics == ("alpha", "beta.x") and first.pattern
    assert results.subtopologies[2].stores == ()


def test_empty_and_named() -> None:
    assert text("4.3.1-empty").subtopologies == ()
    results = text("3.9.2-named")
    assert {(p.topology, p.number) for p in results.subtopologies} == {("orders", 0), ("visits", 0), ("visits", 1)}


def test_output_of_kafka_streams_groups_of_4_4() -> None:
    """``kafka-streams-groups.sh --describe --topology``: the same topology, whatever its order, prefixes and numbers."""
    described, printed = text("4.4.0-kinds"), text("4.4.0-kinds-groups")
    (last,) = [part for part in printed.subtopologies if part.is_global]
    assert last.number in {part.number for part in printed.subtopologies if not part.is_global}
    assert printed.inner_topics != described.inner_topics
    results, usual = printed.undecorated("kip-kinds"), described.undecorated("kip-kinds")
    assert usual == described
    assert results.inner_topics == described.inner_topics
    assert results.global_stores == described.global_stores
    assert set(results.stores) == set(described.stores)
    for store in results.stores:
        part, same = results.of(store), described.of(store)
        assert part is not None and same is not None
        assert (part.number, part.is_global) == (same.number, same.is_global) or part.is_global
        assert results.origin(store) == described.origin(store)
        assert set(part.read_directly(store)) == set(same.read_directly(store))
    of_store = {store.name: store for store in described.draft().stores}
    assert {store.name: store for store in results.draft().stores} == of_store


def test_a_log_line_before_and_carriage_returns() -> None:
    body = (FOLDER / "4.3.1-kinds.txt").read_text()
    logged = "2024-01-01 INFO starting\n2024-01-01 INFO Main - " + body.replace("\n", "\r\n")
    assert parse_topology(logged) == parse_topology(body)


HEAD = "Topologies:\n   Sub-topology: 0\n"
GLOBAL = "   Sub-topology: 1 for global store (will not generate tasks)\n    Source: s (topics: [t])\n"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "no line 'Topologies:'"),
        ("Sub-topology: 0\n", "no line 'Topologies:'"),
        ("Topologies:\n  Processor: a (stores: [b])\n", "line 2: a node comes before"),
        (f"{HEAD}    Processor: a (stores: [../b])\n", "not a legal store name"),
        (f"{HEAD}    Processor: a (stores: [..])\n", "not a legal store name"),
        (f"{HEAD}    Processor: a\n", "cannot parse"),
        (f"{HEAD}    rm -rf /\n", "line 3: kstate cannot parse 'rm -rf /'"),
        (f"{HEAD}   Sub-topology: 0\n", "line 3: sub-topology 0 is already on line 2"),
        (f"{HEAD}   Sub-topology: 99999999999\n", "cannot parse"),
        (f"{HEAD}   Sub-topology: 9999999999\n", "not the number of a sub-topology"),
        (f"{HEAD}    Processor: a (stores: [b])\n{GLOBAL}    Processor: c (stores: [b])\n", "already in"),
        ("Topologies:\n   Sub-topology: 0 for global store (will not generate tasks)\n", "one store and one topic"),
        ("Topology: ../x:\n", "not the name of a topology"),
    ],
)
def test_refusals(body: str, text: str) -> None:
    with pytest.raises(UsageError, match=r"^t") as refusal:
        parse_topology(body, "t")
    assert text in refusal.value.message


def test_a_store_of_which_two_subtopologies_have_a_copy() -> None:
    """As 4.2.1 prints one StoreBuilder of two suppliers."""
    text = parse_topology(
        f"{HEAD}    Processor: a (stores: [b])\n   Sub-topology: 1\n    Processor: c (stores: [b, d])\n"
    )
    assert text.shared == {"b"} and text.stores == ("b", "d")
    drafts = {store.name: store.subtopology for store in text.draft().stores}
    assert drafts == {"b": None, "d": 1}


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(body: str) -> None:
    for candidate in (body, HEAD + body):
        try:
            text = parse_topology(candidate)
        except UsageError:
            continue
        assert isinstance(text, TopologyText)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_topology(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8 at byte 0"):
        read_topology(tmp_path / "bytes")
