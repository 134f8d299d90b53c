"""kstate fleet: three hosts of real directories, streams of them, the page, and names that are hostile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.golden import unpack
from tests.unit.fleet.made_up import host_line, listing, store, summary, text

from .listings import three_hosts, write_listing
from .support import kstate
from .test_screen import on_a_terminal

pytestmark = pytest.mark.rotating(4)


class Page(HTMLParser):
    """What a browser is given: every element with its attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tasks of a real directory on three hosts: 0_0 on two, 3_0 on none."""
    return three_hosts(tmp_path_factory.mktemp("fleet"))


def test_three_real_hosts(hosts: dict[str, Path], tmp_path: Path) -> None:
    result = kstate("fleet", *hosts.values(), "-o", "json", "--metrics-file", tmp_path / "fleet.prom", status=3)
    rows = result.rows
    assert {row["host"] for row in rows if row["type"] == "host" and row["complete"]} == set(hosts)
    assert len({row["process_id"] for row in rows if row["type"] == "host"}) == 3
    findings = [(row["code"], row["task"], row["hosts"]) for row in rows if row["type"] == "finding"]
    assert findings == [("task-missing", "3_0", []), ("task-doubled", "0_0", ["web-1", "web-2"])]
    copies = [row for row in rows if row["type"] == "copy"]
    listings = [json.loads(line) for host in hosts.values() for line in host.read_text().splitlines()]
    stores = [line for line in listings if line["type"] == "store"]
    assert sorted((row["task"], row["store"], row["bytes"], str(row["changelog"])) for row in copies) == sorted(
        (line["task"], line["store"], line["bytes"], str(line["changelog"])) for line in stores
    )
    assert result.error["code"] == "condition-not-met"
    metrics = (tmp_path / "fleet.prom").read_text()
    assert 'code="task-missing",command="fleet",level="error"} 1.0' in metrics


def test_a_single_host_with_all_tasks_is_healthy(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path / "web-1")
    result = kstate("fleet", write_listing(app))
    assert "1 host, 2 of 2 tasks" in result.out and result.err == ""


def test_lag_by_offsets_of_a_file(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path / "web-1")
    messages = write_listing(app)
    (tmp_path / "logs.json").write_text(json.dumps({
        "orders-latest-order-changelog": {str(number): {"start": 0, "end": 50} for number in range(3)},
        "shop-global": {"0": {"start": 0, "end": 32}, "1": {"start": 0, "end": 50}},
    }))  # fmt: skip
    result = kstate("fleet", messages, "--offsets", tmp_path / "logs.json", "-o", "json", status=3)
    lags = {(row["task"], row["store"]): row["lag"] for row in result.rows if row["type"] == "copy"}
    assert lags["0_0", "latest-order"] == 50 - 28 and lags["0_1", "latest-order"] == 50 - 47
    assert lags["global", "customers"] == 2, "a global store keeps the next offset"
    assert lags["0_0", "visits"] is None, "nobody says where its log ends"
    assert [row["task"] for row in result.rows if row["type"] == "finding"] == ["0_2"]


def stream(text: bytes, *more: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(Path(sys.executable).with_name("kstate")), "fleet", "-", *more]
    return subprocess.run(command, input=text, capture_output=True, check=False, timeout=300)


def test_a_stream_of_several_hosts() -> None:
    text = listing("0_0", host="a") + listing("0_1", host="b") + host_line("c") + listing("0_2", host="x")
    result = stream(text.encode(), "-o", "json")
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["host"] for line in lines if line["type"] == "host"] == ["a", "b", "c"]
    cut = stream(text.encode()[:-30])
    assert cut.returncode == 3 and b"host-unread" in cut.stdout


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A hundred hosts, each with three tasks of its own."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(100):
        tasks = [f"{sub}_{number}" for sub in range(3)]
        (folder / f"orders-web-{number}.json").write_text(listing(*tasks, host=f"h{number}", stores=("count", "sum")))
    return sorted(folder.iterdir())


@pytest.mark.parametrize("by", ["host", "task", "store"])
def test_on_a_narrow_terminal(by: str, many: list[Path]) -> None:
    output = on_a_terminal("fleet", *many, "--by", by, rows=24, columns=80, NO_COLOR="1")
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > {"host": 100, "task": 300, "store": 600}[by]


HOSTILE = "<script>alert(1)</script>\"'&\x1b[2J\u202e\n"


def test_the_page_has_everything_and_needs_nothing(hosts: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    (tmp_path / "cut.json").write_text("")
    kstate("fleet", *hosts.values(), tmp_path / "cut.json", "--html", page, status=3)
    text = page.read_text(encoding="utf-8")
    names = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base", "a"} & set(names.tags)
    assert not {"src", "href", "action", "srcset", "background"} & {name for name, _ in names.attributes}
    assert not any(name.startswith("on") for name, _ in names.attributes)
    assert "url(" not in text and "@import" not in text and "://" not in text
    assert "default-src 'none'" in text and names.open == []
    messages = kstate("fleet", *hosts.values(), tmp_path / "cut.json", "-o", "json", status=3)
    titles = "\n".join(value for name, value in names.attributes if name == "title")
    for row in messages.rows:
        if row["type"] == "host":
            assert row["host"] in names.text
        if row["type"] == "task":
            assert row["task"] in names.text
        if row["type"] == "copy":
            assert f"{row['host']} {row['task']}" in titles and row["store"] in titles
        if row["type"] == "finding":
            assert row["message"] in names.text and ("id", row["code"]) in names.attributes
            assert kstate("explain", f"fleet:{row['code']}", "-o", "json").rows[0]["message"] in names.text


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path) -> None:
    stores = [store("0_0", HOSTILE), {**store("0_1", HOSTILE), "kind": HOSTILE}]
    (tmp_path / "x.json").write_text(host_line(HOSTILE) + text([*stores, summary(stores, HOSTILE)]))
    page = tmp_path / "fleet.html"
    for by in ("host", "task", "store"):
        result = kstate("fleet", tmp_path / "x.json", "--by", by, "--html", page, status=None)
        assert "\x1b" not in result.out + result.err and "\u202e" not in result.out + result.err
        assert result.status in (0, 3)
    message = page.read_text(encoding="utf-8")
    assert "<script" not in message and "\x1b" not in message and "\u202e" not in message
    assert r"<script>alert(1)</script>" in Page(message).text


def test_where_the_page_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "web-1.json").write_text(listing("0_0"))
    os.mkfifo(tmp_path / "fifo")
    for place in (tmp_path, tmp_path / "fifo", tmp_path / "none" / "x.html"):
        result = kstate("fleet", tmp_path / "web-1.json", "--html", place, status=2)
        assert str(place) in result.err
    page = tmp_path / "x.html"
    page.write_text("before")
    kstate("fleet", tmp_path / "web-1.json", "--html", page)
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".x")]
