"""What hosts said, read line by line: whatever is wrong is named with its line, and nothing is left out."""

from __future__ import annotations

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.errors import UsageError
from kstate_cli.fleet.judge import judge
from kstate_cli.fleet.listing import read_listings
from kstate_cli.fleet.model import Fleet, HostReport

from .made_up import host_line, listing, store, summary, text


def read(folder: Path, text: str | bytes, name: str = "web-1") -> list[HostReport]:
    path = folder / f"{name}.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_listings([str(path)])


def test_a_whole_listing(tmp_path: Path) -> None:
    (report,) = read(tmp_path, listing("0_0", "0_1"))
    assert report.whole and report.name == "web-1" and report.app_id == "orders"
    assert report.tasks == ("0_0", "0_1") and report.process_id == "id-of-vm"


STORES = [store("0_0"), store("0_1")]
WRONG: dict[str, tuple[str | bytes, int | None]] = {
    "cut off after a line": (text(STORES), None),
    "cut off amid a line": (text([*STORES, summary(STORES)])[:-40], 3),
    "not JSON": (text(STORES) + "ssh: connect to host web-1 port 22: refused\n", 3),
    "empty": ("", 1),
    "blank": ("\n\n", 1),
    "NUL": (b"\0" * 100, 1),
    "not UTF-8": (b'{"type": "\xff"}\n', 1),
    "an array": ("[]\n", 1),
    "older": (text([{**store, "schema_version": 1} for store in STORES]), 1),
    "newer": (text([{**store, "schema_version": 3} for store in STORES]), 1),
    "of another command": (text([{"schema_version": 2, "type": "prediction", "app": "/data/orders", "task": "0_0"}]), 1),
    "a store less": (text([STORES[0], summary(STORES)]), 2),
    "a store twice": (text([*STORES, STORES[0], summary(STORES)]), 3),
    "two directories": (text([STORES[0], {**STORES[1], "app": "/data/other"}, summary(STORES)]), 2),
    "two hosts mixed": (text([STORES[0], store("0_5"), STORES[1], summary(STORES), summary([store("0_5")])]), 4),
    "a task that is none": (text([store("0_0/../../etc"), summary([store("0_0")])]), 1),
    "a task with a zero before it": (text([store("0_01"), summary([store("0_0")])]), 1),
    "a task beyond all": (text([store("0_9999999999"), summary([store("0_0")])]), 1),
    "a task of thousands of digits": (text([store("0_" + "9" * 5000), summary([store("0_0")])]), 1),
    "an offset that is none": (text([store("0_0", changelog={"t": {"0": True}}), summary([store("0_0")])]), 1),
    "a size below zero": (text([store("0_0", bytes=-1), summary([store("0_0")])]), 1),
    "nested": ("[" * 5000 + "\n", 1),
    "a name twice": ('{"schema_version": 2, "type": "store", "type": "summary"}\n', 1),
    "ls failed": (text([{"schema_version": 2, "type": "error", "app": None, "code": "refused", "exit": 4, "message": "no"}]), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_gaps_name_their_line(name: str, tmp_path: Path) -> None:
    text, line = WRONG[name]
    reports = read(tmp_path, text)
    assert not reports[0].whole and line in [gap.line for gap in reports[0].gaps], reports[0].gaps
    findings = judge(Fleet(reports))
    texts = [finding.text for finding in findings if finding.code.name == "host-unread"]
    assert texts and all("web-1" in entry for entry in texts)
    assert not [finding for finding in findings if finding.code.name == "task-missing"], "not known is not missing"


@pytest.mark.parametrize("size", range(0, len(listing("0_0", "0_1")) - 1, 13))
def test_every_cut_is_seen(size: int, tmp_path: Path) -> None:
    reports = read(tmp_path, listing("0_0", "0_1")[:size])
    assert [gap for report in reports for gap in report.gaps]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("listings")


@given(at=st.integers(0, len(listing("0_0")) - 1), byte=st.integers(0, 255))
def test_any_byte_may_be_wrong(at: int, byte: int, folder: Path) -> None:
    data = bytearray(listing("0_0").encode())
    data[at] = byte
    reports = read(folder, bytes(data))
    assert reports and judge(Fleet(reports)) is not None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(name=st.sampled_from(sorted(store("0_0"))), value=JSON_VALUES)
def test_any_member_may_be_anything(name: str, value: Any, folder: Path) -> None:
    dumps = json.dumps({**store("0_0"), name: value}) + "\n" + json.dumps(summary(STORES[:1]))
    reports = read(folder, dumps)
    judge(Fleet(reports))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "web-1.json").write_text(listing("0_0"))
    for wrong in (tmp_path / "none.json", tmp_path):
        _, report = read_listings([str(tmp_path / "web-1.json"), str(wrong)])
        assert not report.whole and not report.copies
        with pytest.raises(UsageError, match="kstate cannot read any of the listings"):
            read_listings([str(wrong)])


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_summaries_or_host_lines_separate_hosts_of_a_stream(tmp_path: Path) -> None:
    text = listing("0_0", host="a") + host_line("b") + listing("0_1", host="x") + listing("0_2", host="c")
    path = tmp_path / "all.json"
    path.write_text(text)
    assert [(report.name, report.tasks) for report in read_listings([str(path)])] == [
        ("all", ("0_0",)), ("b", ("0_1",)), ("c", ("0_2",))
    ]  # fmt: skip


def test_a_listing_without_a_name_is_called_after_its_line(tmp_path: Path) -> None:
    message = listing("0_0") + text([store("0_1"), summary([store("0_1")], host=None)])
    assert [entry.name for entry in read(tmp_path, message)] == ["web-1", f"{tmp_path}/web-1.json:3"]


def test_a_host_that_failed_in_a_stream_does_not_become_part_of_its_neighbour(tmp_path: Path) -> None:
    failed = text([{"schema_version": 2, "type": "error", "app": None, "code": "refused", "exit": 4, "message": "no"}])
    first, second, third = read(tmp_path, listing("0_0") + failed + listing("0_1", host="c"))
    assert (first.whole, second.whole, third.whole) == (True, False, True)
    assert (first.tasks, second.tasks, third.tasks) == (("0_0",), (), ("0_1",))


def test_noise_between_listings_of_a_stream_is_of_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = "ssh: connect to host b port 22: Connection refused\n"
    text = listing("0_0", host="a") + noise + listing("0_2", host="c")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text.encode())))
    reports = read_listings(["-"])
    assert [(report.name, report.whole) for report in reports] == [("a", True), ("-:3", False), ("c", True)]
    assert ("task-not-known", "0_1") in [(entry.code.name, entry.task) for entry in judge(Fleet(reports))]


def test_the_answer_no_belongs_to_the_listing_before_it(tmp_path: Path) -> None:
    no = {
        "schema_version": 2,
        "type": "error",
        "app": "/data/orders",
        "code": "condition-not-met",
        "exit": 3,
        "message": "m",
    }
    (report,) = read(tmp_path, listing("0_0") + text([no]))
    assert report.whole and [problem.code for problem in report.problems] == ["condition-not-met"]


def test_names_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(listing("0_0"))
    assert read_listings([f"web-9={tmp_path}/x.json"])[0].name == "web-9"
    (tmp_path / "a=b.json").write_text(listing("0_0"))
    assert read_listings([f"{tmp_path}/a=b.json"])[0].name == "a=b"
    with pytest.raises(UsageError, match="two hosts have the name 'x'"):
        read_listings([f"{tmp_path}/x.json", f"{tmp_path}/x.json"])
    with pytest.raises(UsageError, match="is not HOST=FILE"):
        read_listings(["web-1="])
