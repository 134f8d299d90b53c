"""``kstate query``: what it prints of directories that real releases wrote, what it says of failures, how it ends."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from tests import json_lines
from tests.command_result import CommandResult
from tests.golden import expected, names, unpack
from tests.terminal import shown_on

from .big import make_big
from .support import kstate, kstate_here, meaning, tree_hash
from .test_locks import locked
from .test_verify import _flip

pytestmark = pytest.mark.rotating(6)

KINDS = "4.3.1-kinds-eos"
TEXT = ("--key-serde", "string", "--value-serde", "string")
COUNTS = ("--key-serde", "string", "--value-serde", "long")
KEYS = [f"k{number:04}" for number in range(8)]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(KINDS, tmp_path_factory.mktemp("kinds"))


@pytest.fixture(autouse=True)
def _unchanged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whatever a query does, the directory stays as it is, to the times of its files."""
    monkeypatch.setenv("COLUMNS", "200")
    getfixturevalue = request.getfixturevalue("app") if "app" in request.fixturenames else None
    before = tree_hash(getfixturevalue.parent) if getfixturevalue else None
    yield
    assert not getfixturevalue or tree_hash(getfixturevalue.parent) == before


def run_query(*arguments: object, status: int = 0) -> CommandResult:
    """``kstate query`` as its console script runs, without the start of a process."""
    return kstate_here("query", *arguments, status=status)


def _rows(*arguments: object, status: int = 0) -> list[dict[str, Any]]:
    results = run_query(*arguments, "-o", "json", status=status).rows
    rows = [row for row in results if row["type"] == "row"]
    return [{name: entry for name, entry in row.items() if name not in json_lines.HEAD} for row in rows]


def _make_store(folder: Path, rows: dict[bytes, bytes], store: str = "made", task: str = "0_0") -> Path:
    """An application with one timestamped store."""
    path = folder / "app" / task / "rocksdb" / store
    path.mkdir(parents=True)
    (folder / "app" / ".lock").touch()
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    families = {"default": Options(raw_mode=True), "keyValueWithTimestamp": Options(raw_mode=True)}
    db = Rdict(str(path), options, column_families=families)
    family = db.get_column_family("keyValueWithTimestamp")
    for key, value in rows.items():
        family[key] = (1714564800005).to_bytes(8, "big") + value
    family.flush()
    family.close()
    db.close()
    return folder / "app"


# --- subcommands ------------------------------------------------------------------------------------------------------


def test_key(app: Path) -> None:
    (row,) = _rows("key", app, "count", "k0005", *COUNTS)
    assert row == {"partition": 0, "key": "k0005", "value": 6}
    (row,) = _rows("key", app, "count", "k0005", *COUNTS, "--timestamps")
    assert row == {"partition": 0, "key": "k0005", "value": 6, "timestamp": 1704068596903, "headers": []}
    none = run_query("key", app, "count", "nobody", *COUNTS, "-o", "json")
    assert (none.rows, none.summary["rows"], none.err) == ([], 0, "count has no matching row\n")
    assert run_query("key", app, "count", "nobody", *COUNTS, "--quiet") == CommandResult(0, "", "")


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [name for name in names() if "kinds" in name and "killed" not in name])
def test_range_has_the_rows_that_streams_counted(tmp_path: Path, name: str) -> None:
    stores = expected(name)["stores"]
    path = unpack(name, tmp_path)
    for store in ("count", "kv-plain", "reduce", "fk-left"):
        if store in stores:
            rows = _rows("range", path, store, *TEXT[:2])
            assert len(rows) == stores[store]["entries"], store


def test_range(app: Path) -> None:
    rows = _rows("range", app, "count", *COUNTS)
    assert [row["partition"] for row in rows] == sorted(row["partition"] for row in rows)
    assert {row["key"] for row in rows} == set(KEYS)
    assert sum(row["value"] for row in rows) == 60
    some = _rows("range", app, "count", "--from", "k0002", "--to", "k0005", *COUNTS, "--collate")
    assert [row["key"] for row in some] == KEYS[2:6]
    some = _rows("range", app, "count", "--from=k0002", "--to=k0005", *COUNTS, "--collate", "--desc", "--timestamps")
    assert [row["key"] for row in some] == KEYS[5:1:-1]
    assert {row["key"]: row["partition"] for row in some} == {"k0005": 0, "k0004": 1, "k0003": 1, "k0002": 1}
    assert _rows("range", app, "count", "--from", "k0004x", "--to", "k0005", *COUNTS) == [
        {"partition": 0, "key": "k0005", "value": 6}
    ]


def test_global_store(app: Path) -> None:
    rows = _rows("range", app, "global-table", *TEXT)
    assert len(rows) == 6
    assert {row["partition"] for row in rows} == {None}
    assert run_query("range", app, "global-table", "-o", "csv").out.splitlines()[1].startswith(",k0000,")


def test_raw(app: Path) -> None:
    rows = meaning(app)["0_0/rocksdb/count"]["keyValueWithTimestamp"]
    (row,) = _rows("raw-key", app, "count", "k0005", "--value-serde", "hex")
    assert bytes.fromhex(row["value"]) == dict(rows)[b"k0005"]
    scanned = _rows("raw-scan", app, "window-count", "--partition", 1)
    whole = [
        row
        for path, families in sorted(meaning(app).items())
        if path.startswith("0_1/") and "window-count/" in path
        for row in families["keyValueWithTimestamp"]
    ]
    assert [(_bytes(entry["key"]), _bytes(entry["value"])) for entry in scanned] == whole
    key = next(entry["key"] for entry in scanned)
    (row,) = _rows("raw-key", app, "window-count", key["base64"], "--key-serde", "base64")
    assert row["key"] == key["base64"]


def _bytes(output: dict[str, str]) -> bytes:
    return base64.b64decode(output["base64"])


def test_windows(app: Path) -> None:
    everything = _rows("window-range", app, "window-count", *COUNTS)
    assert sum(row["value"] for row in everything) == 60
    for key in KEYS[:3]:
        mine = _rows("window-key", app, "window-count", key, *COUNTS)
        assert mine == [row for row in everything if row["key"] == key]
        assert [row["window_start"] for row in mine] == sorted(row["window_start"] for row in mine)
    first, last = "2024-01-01T00:10:00Z", "1704068400000"
    some = [row for row in everything if 1704067800000 <= row["window_start"] <= 1704068400000]
    assert 0 < len(some) < len(everything)
    assert _rows("window-range", app, "window-count", "--from", first, "--to", last, *COUNTS) == some
    assert _rows("window-key", app, "window-count", KEYS[0], "--from", first, "--to", last, *COUNTS) == [
        row for row in some if row["key"] == KEYS[0]
    ]
    collated = _rows("window-range", app, "window-count", "--collate", *COUNTS)
    assert Counter(map(str, collated)) == Counter(map(str, everything))
    final = _rows("window-range", app, "window-final", *COUNTS)
    assert {(row["key"], row["window_start"], row["value"]) for row in final} == {
        (row["key"], row["window_start"], row["value"]) for row in everything
    }
    assert "timestamp" not in _rows("window-key", app, "window-plain", "k0005")[0]


def test_sessions(app: Path) -> None:
    rows = [row for key in KEYS for row in _rows("session", app, "session-count", key, *COUNTS)]
    assert sum(row["value"] for row in rows) == 60
    assert all(row["window_start"] <= row["window_end"] for row in rows)


def test_versions(app: Path) -> None:
    versions = _rows("multi-versioned", app, "versioned", "k0005", *TEXT)
    assert [row["value"] for row in versions] == [
        "vnj3apiw",
        "0mwz9aeo",
        "v58v14d8",
        "6sly5nsl",
        "fnrbg0jz",
        "ik4i40ff",
    ]
    assert _rows("multi-versioned", app, "versioned", "k0005", *TEXT, "--asc") == versions[::-1]
    assert _rows("versioned", app, "versioned", "k0005", *TEXT) == []  # it was deleted
    for row in versions:
        assert _rows("versioned", app, "versioned", "k0005", *TEXT, "--as-of", row["valid_from"]) == [row]
        assert _rows("versioned", app, "versioned", "k0005", *TEXT, "--as-of", row["valid_to"] - 1) == [row]
    assert _rows("versioned", app, "versioned", "k0005", *TEXT, "--as-of", "2024-01-01T00:14:00Z") == []
    within = (versions[4]["valid_from"], versions[2]["valid_from"])
    some = _rows("multi-versioned", app, "versioned", "k0005", *TEXT, "--from", within[0], "--to", within[1])
    assert some == versions[2:5]
    (latest,) = _rows("versioned", app, "versioned", "k0001", *TEXT)
    assert latest["valid_to"] is None


def test_headers(tmp_path: Path) -> None:
    path = unpack("4.3.1-headers-eos", tmp_path)
    (row,) = _rows("key", path, "kv-headers", "k0005", *TEXT, "--timestamps")
    assert row["headers"] == [
        {"key": "trace", "value": {"base64": "dC01Mw=="}},
        {"key": "trace", "value": {"base64": "YWdhaW4="}},
        {"key": "empty", "value": {"base64": ""}},
        {"key": "null", "value": None},
    ]
    output = run_query("key", path, "kv-headers", "k0005", "--timestamps").out
    assert "trace=t-53 trace=again empty= null=null" in output
    (line,) = csv.DictReader(
        io.StringIO(run_query("key", path, "kv-headers", "k0005", "--timestamps", "-o", "csv").out)
    )
    assert json.loads(line["headers"]) == row["headers"]


def test_windowed_keys_of_a_key_value_store(tmp_path: Path) -> None:
    at = (1714564800000).to_bytes(8, "big")
    path = _make_store(tmp_path, {b"alice" + at: b"1", b"bob" + at: b"2"})
    serde = ("--key-serde", "time-windowed:string:60000")
    rows = _rows("range", path, "made", *serde)
    assert rows[0]["key"] == {"key": "alice", "start": 1714564800000, "end": 1714564860000}
    assert _rows("key", path, "made", "alice@2024-05-01T12:00:00Z", *serde) == rows[:1]
    assert "alice@1714564800000/1714564860000" in run_query("range", path, "made", *serde).out


def test_own_serde(app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_serde.py").write_text(
        "class Count:\n"
        "    def serialize(self, value): return value.to_bytes(8, 'big')\n"
        "    def deserialize(self, data): return {'count': int.from_bytes(data, 'big')}\n"
    )
    own = ("--value-serde", "my_own_serde:Count")
    assert "no such module exists" in kstate("query", "key", app, "count", "k0005", *own, status=2).err
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (row,) = kstate("query", "key", app, "count", "k0005", *own, "-o", "json").rows
    assert row["value"] == {"count": 6}
    assert '{"count":6}' in kstate("query", "key", app, "count", "k0005", *own).out


# --- output -----------------------------------------------------------------------------------------------------------


def test_table_and_csv(app: Path) -> None:
    output = run_query("key", app, "count", "k0005", *COUNTS, "--timestamps")
    lines = output.out.split("\n")
    assert lines[0].split("  ")[0].strip() == "partition"
    assert "key (string)" in lines[0] and "value (long)" in lines[0]
    assert "headers" not in lines[0]  # there are none
    assert lines[2].split() == ["0", "k0005", "6", "2024-01-01T00:23:16.903Z"]
    assert "k0005" in lines[2] and output.err == ""
    results = run_query("range", app, "count", "-o", "csv", "--collate").out
    rows = list(csv.reader(io.StringIO(results)))
    assert rows[0] == ["partition", "key", "value"]
    assert rows[6] == ["0", "k0005", r"\x00\x00\x00\x00\x00\x00\x00\x06"]


def test_limit(app: Path) -> None:
    cut = run_query("range", app, "count", "--limit", 4, *COUNTS, "-o", "json")
    assert len(cut.rows) == 4
    assert "kstate prints only the first 4 rows" in cut.err
    for limit in (3, 8):  # 3 is all of partition 0: there are more all the same
        cut = run_query("range", app, "count", "--limit", limit, *COUNTS, "-o", "json")
        assert len(cut.rows) == limit
        assert ("prints only the first" in cut.err) is (limit == 3)
    entry = run_query("range", app, "count", "--limit", 5, "--collate", *COUNTS, "-o", "json")
    assert [row["key"] for row in entry.rows] == KEYS[:5]
    assert "kstate prints only the first 5 rows" in entry.err


def test_a_table_is_cut_and_says_so(tmp_path: Path) -> None:
    path = _make_store(tmp_path, {b"%05d" % number: b"v" for number in range(2500)})
    cut = run_query("range", path, "made")
    assert cut.out.count("0000") > 0 and "00999" in cut.out and "01000" not in cut.out
    assert "kstate prints only the first 1,000 rows. To print N rows, pass --limit N" in cut.err
    # Nobody asked for fewer rows: then --quiet does not hide that there are more.
    assert run_query("range", path, "made", "--quiet").err == cut.err
    assert run_query("range", path, "made", "--quiet", "--limit", 5).err == ""
    whole = run_query("range", path, "made", "--limit", 2500)
    assert whole.out.count("value (bytes)") == 3  # printed as they come, 1000 at a time
    assert "02499" in whole.out and whole.err == ""
    assert len(_rows("range", path, "made")) == 2500


def test_more_partitions_than_files_may_be_open_by_default(tmp_path: Path) -> None:
    path = make_big(tmp_path / "app", tasks=50, rows=1)
    command = f"ulimit -Sn 40; {sys.executable} -m kstate_cli query range {path} count -o json"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.count('"row"')) == (0, 50), result.stderr


EVIL = b"\x1b[31mred\x07\r\n\xe2\x80\xae\xff"


def test_escapes(tmp_path: Path) -> None:
    """Nothing of a store acts on a terminal: neither as bytes nor as text; also where it is JSON or CSV."""
    path = _make_store(tmp_path, {b"k" + EVIL: EVIL, b"l": EVIL[:-1]})
    page = run_query("range", path, "made").out
    assert r"k\x1b[31mred\x07\x0d\x0a\xe2\x80\xae\xff" in page
    assert len(page.splitlines()) == 4  # two lines of titles, two rows
    text = ("--value-serde", "string", "--from", "l")
    for output in ("table", "json", "csv"):
        page = _on_a_terminal("query", "range", str(path), "made", *text, "-o", output)
        assert "\x1b[31m" not in page and "\x07" not in page and "\u202e" not in page, output
        assert "[31mred" in page
    (row,) = csv.DictReader(io.StringIO(run_query("range", path, "made", *text, "-o", "csv").out, newline=""))
    assert row["value"].replace("\r", "").replace("\n", "") == EVIL[:-1].decode().replace("\r\n", "")
    (row,) = _rows("range", path, "made", *text)
    assert row["value"].encode() == EVIL[:-1]
    bad = run_query("range", path, "made", *TEXT, status=4).err
    assert "\x1b" not in bad


def _on_a_terminal(*arguments: str) -> str:
    mine, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kstate_cli", *arguments],
        stdout=theirs,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"},
    ) as run:
        os.close(theirs)
        content = shown_on(mine)
    assert run.returncode == 0
    return content.decode()


def test_the_reader_may_go(tmp_path: Path) -> None:
    path = _make_store(tmp_path, {b"%05d" % number: bytes(200) for number in range(5000)})
    command = f"{sys.executable} -m kstate_cli query range {path} made -o json | head -1"
    result = subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=True
    )
    assert result.stderr == ""
    row, status = result.stdout.splitlines()
    assert json.loads(row)["key"] == {"base64": "MDAwMDA="}
    assert status == "141"


# --- failures ---------------------------------------------------------------------------------------------------------


def _failures(result: CommandResult) -> dict[int | None, str]:
    return {row["partition"]: row["code"] for row in result.rows if row["type"] == "failure"}


def test_bounds(app: Path) -> None:
    topic = "golden-431-kinds-eos-in-events"
    texts = ("range", app, "count", *COUNTS, "-o", "json")
    assert len(run_query(*texts, "--at", f"{topic}:0=18", "--at", f"{topic}:1=40").rows) == 8
    behind = run_query(*texts, "--at", f"{topic}:0=19", status=3)
    assert _failures(behind) == {0: "NOT_UP_TO_BOUND"}
    assert sum(row["type"] == "row" for row in behind.rows) == 5
    assert "partition 0 failed with NOT_UP_TO_BOUND: For store partition 0, the current position" in behind.err
    assert "so the answer is incomplete and contains 5 rows" in behind.err
    quiet = run_query(*texts, "--at", f"{topic}:0=19", "--quiet", status=3)
    assert "NOT_UP_TO_BOUND" in quiet.err
    run_query(*texts, "--at", "nonsense", status=2)


def test_partitions(app: Path, tmp_path: Path) -> None:
    texts = ("range", app, "count", *COUNTS, "-o", "json", "--partition", 1, "--partition")
    assert len(run_query(*texts, 0).rows) == 8
    result = run_query(*texts, 2, status=3)
    assert _failures(result) == {2: "NOT_PRESENT"}
    assert len(result.rows) == 6
    spec = tmp_path / "kstate.toml"
    spec.write_text('format = 1\n[stores.count]\nkind = "timestamped-key-value"\npartitions = 3\n')
    assert _failures(run_query(*texts, 2, "--spec", spec, status=3)) == {2: "NOT_PRESENT"}
    assert _failures(run_query(*texts, 3, "--spec", spec, status=3)) == {3: "DOES_NOT_EXIST"}
    run_query("range", app, "count", "--partition", "x", status=2)
    run_query("range", app, "count", "--partition", "-1", status=2)


def test_require_active(app: Path) -> None:
    result = run_query("range", app, "count", "--require-active", "-o", "json", status=3)
    assert _failures(result) == {0: "NOT_ACTIVE", 1: "NOT_ACTIVE"}
    assert len(_rows("range", app, "count", "--require-active", "--assume-active")) == 8


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("store", "requests", "answers"),
    [
        ("count", ("window-key", "k0000"), "key, range, raw-key, raw-scan"),
        ("kv-plain", ("key", "k0000", "--timestamps"), "key, range, raw-key, raw-scan"),
        ("window-count", ("key", "k0000"), "window-key, window-range, raw-key, raw-scan"),
        ("session-count", ("window-range",), "session, raw-key, raw-scan"),
        ("window-count", ("session", "k0000"), "window-key, window-range, raw-key, raw-scan"),
        ("versioned", ("range",), "versioned, multi-versioned, raw-key, raw-scan"),
        ("grace-join-Buffer", ("range",), "raw-key, raw-scan"),
    ],
)
def test_a_question_for_another_kind_of_store(app: Path, store: str, requests: tuple[str, ...], answers: str) -> None:
    query, *key = requests
    result = run_query(query, app, store, *key, "-o", "json", status=3)
    assert set(_failures(result).values()) == {"UNKNOWN_QUERY_TYPE"}
    assert result.err.count(f"Use one of these subcommands: {answers}.\n") == 1, "once for all partitions"
    match = re.search(r"^    kstate query (.*)$", result.err, re.MULTILINE)
    assert match and kstate("query", *(key[0] if word == "KEY" else word for word in shlex.split(match[1]))).status == 0


def test_usage(app: Path) -> None:
    for arguments, text in (
        (("range", "nothing"), "has a store nothing"),
        (("range", "count", "--key-serde", "nothing"), "--key-serde: 'nothing' is not a serde"),
        (("range", "count", "--value-serde", "no.such:thing"), "--value-serde"),
        (("key", "count", "x", "--key-serde", "long"), "the serde long cannot read KEY 'x'"),
        (("range", "count", "--from", "\\q"), "the serde bytes cannot read --from '\\\\q'"),
        (("window-range", "window-count", "--from", "noon"), "--from 'noon' is not a time"),
        (("versioned", "versioned", "k", "--as-of", "1e3"), "--as-of '1e3' is not a time"),
        (("range", "count", "--limit", "0"), "--limit"),
        (("range", "count", "-o", "xml"), "xml"),
        (("range", "count", "--spec", "/nothing.toml"), "cannot read /nothing.toml"),
        (("key", "count"), "KEY"),
        (("key",), "STORE"),
    ):
        query, *more = arguments
        assert text in run_query(query, app, *more, status=2).err, arguments
    assert "APP" in run_query("key", status=2).err
    assert "'nothing'" in run_query("nothing", app, "count", status=2).err
    run_query("range", app / "nothing", "count", status=2)
    assert run_query("key", app, "count", "--key-serde", "long", "--", "-5").out == ""


def test_a_value_that_its_serde_does_not_read(tmp_path: Path) -> None:
    path = _make_store(tmp_path, {b"a": b"5", b"b": b"x", b"c": b"7"})
    result = run_query("range", path, "made", "--value-serde", "json", "-o", "json", status=4)
    assert [row["value"] for row in result.rows] == [5, None, 7]
    (bad,) = [row["unreadable"] for row in result.rows if "unreadable" in row]
    assert bad["value"]["data"] == {"base64": "eA=="}
    assert "the serde cannot decode 1 " in result.err
    for output, cell in (("csv", "(unreadable) x"), ("table", "(unreadable) x")):
        result = run_query("range", path, "made", "--value-serde", "json", "-o", output, status=4)
        assert cell in result.out
        assert "7" in result.out
    assert "0_0/made: kstate cannot read the value of key b'b' as json" in result.err
    result = run_query("key", path, "made", "b", "--value-serde", "json", status=4)
    assert "0_0/made: kstate cannot read the value of key b'b' as json" in result.err
    result = run_query("range", path, "made", "--key-serde", "long", status=4)
    assert "0_0/made: kstate cannot read key b'a' as long: it has 1 bytes instead of 8" in result.err
    result = run_query("raw-scan", path, "made", "--value-serde", "string", "-o", "csv", status=4)
    assert "one that accepts all bytes: bytes, hex or base64" in result.err


def test_every_query_shows_its_rows_beside_an_unreadable_value(app: Path) -> None:
    """As many rows as with a serde that fits, and each of them marked: one value never ends an answer."""
    for store, query, *key in (
        ("count", "range"),
        ("count", "key", "k0005"),
        ("count", "raw-scan"),
        ("window-count", "window-range"),
        ("window-count", "window-key", "k0005"),
        ("window-final", "window-range"),
        ("session-count", "session", "k0005"),
        ("session-final", "session", "k0005"),
        ("versioned", "multi-versioned", "k0001"),
        ("versioned", "versioned", "k0001"),
    ):
        rows = _rows(query, app, store, *key)
        assert rows, (store, query)
        marked = _rows(query, app, store, *key, "--value-serde", "boolean", status=4)
        assert [row.pop("unreadable")["value"]["data"] for row in marked] == [row.pop("value") for row in rows]
        assert {row.pop("value") for row in marked} == {None}
        assert marked == rows


def test_a_value_that_is_none_of_its_store(tmp_path: Path) -> None:
    """Shorter than a timestamp: what stands in the row is shown, and what comes after it too."""
    path = _make_store(tmp_path, {b"a": b"1", b"c": b"3"})
    _put_row(path, b"b", b"short")
    rows = _rows("range", path, "made", "--timestamps", status=4)
    assert [row["key"] for row in rows] == [{"base64": key} for key in ("YQ==", "Yg==", "Yw==")]
    (mark,) = [row["unreadable"]["value"] for row in rows if "unreadable" in row]
    assert mark["data"] == {"base64": "c2hvcnQ="}
    assert "does not belong to a timestamped-key-value store" in mark["message"]


def _put_row(app: Path, key: bytes, value: bytes, store: str = "made") -> None:
    path = str(app / "0_0/rocksdb" / store)
    names = Rdict.list_cf(path, Options(raw_mode=True))
    db = Rdict(path, Options(raw_mode=True), column_families={name: Options(raw_mode=True) for name in names})
    family = db.get_column_family("keyValueWithTimestamp")
    family[key] = value
    family.flush()
    del family
    db.close()
    (Path(path) / "rocksdict-config.json").unlink(missing_ok=True)


def test_windowed_values_name_their_key(app: Path) -> None:
    result = run_query("window-range", app, "window-count", "--value-serde", "int", status=4)
    assert "0_0/window-count: kstate cannot read the value of key b'k000" in result.err
    result = run_query("versioned", app, "versioned", "k0001", "--value-serde", "int", status=4)
    assert "6_1/versioned: kstate cannot read the value of key b'k0001' as int" in result.err


def test_damage(tmp_path: Path) -> None:
    """A flipped byte: the rows before it, and never a short answer that looks whole."""
    results = _make_store(tmp_path, {b"%05d" % number: os.urandom(100) for number in range(5000)})
    sst = max((results / "0_0").rglob("*.sst"), key=lambda path: path.stat().st_size)
    _flip(sst, sst.stat().st_size // 2)
    before = tree_hash(results)
    for more in ((), ("--collate",)):
        result = run_query("range", results, "made", "-o", "json", *more, status=6)
        *rows, failure = result.rows
        assert 0 < len(rows) < 5000
        assert [base64.b64decode(row["key"]["base64"]) for row in rows] == [
            b"%05d" % number for number in range(len(rows))
        ]
        assert (failure["type"], failure["code"]) == ("failure", "STORE_EXCEPTION")
        assert (result.summary["rows"], result.summary["failures"]) == (len(rows), 1)
        assert sst.name in failure["message"] and sst.name in result.err
        assert "the query failed (1 STORE_EXCEPTION), so the answer is incomplete" in result.err
    for output in ("csv", "table"):
        result = run_query("range", results, "made", "-o", output, "--limit", 4999, status=6)
        assert f"{len(rows) - 1:05}" in result.out and "STORE_EXCEPTION" in result.err
    assert len(_rows("range", results, "made", "--limit", 10)) == 10
    backwards = run_query("range", results, "made", "--desc", "-o", "json", status=6).rows
    assert 0 < len(backwards) < 5000 - len(rows) + 1
    assert tree_hash(results) == before


def test_a_key_is_no_word_of_the_system(tmp_path: Path) -> None:
    """Failures name the query, and so its key: what is to be done about a damaged store is not read from that."""
    path = unpack("4.3.1-demo-eos", tmp_path)
    store = path / "0_0/rocksdb/latest-order"
    for sst in store.glob("*.sst"):
        sst.write_bytes(sst.read_bytes()[:-9])
    result = run_query("key", path, "latest-order", ": Input/output error.", "--key-serde", "string", status=6)
    assert "see which files are damaged" in result.err and "leave the stores unchanged" not in result.err


def test_damage_in_a_partition_fails_that_partition_alone(tmp_path: Path) -> None:
    results = unpack(KINDS, tmp_path)
    sst = max((results / "0_0/rocksdb/count").glob("*.sst"), key=lambda path: path.stat().st_size)
    _flip(sst, 10)
    result = run_query("range", results, "count", "-o", "json", status=6)
    assert _failures(result) == {0: "STORE_EXCEPTION"}
    assert sum(row["type"] == "row" for row in result.rows) == 5
    assert sst.name in result.err
    result = run_query("key", results, "count", "k0005", status=6)
    assert "so the answer is incomplete and contains no rows" in result.err
    (results / "0_1/rocksdb/count/CURRENT").unlink()
    result = run_query("range", results, "count", "-o", "json", status=6)
    assert _failures(result) == {0: "STORE_EXCEPTION", 1: "STORE_EXCEPTION"}


def test_beside_a_running_application(app: Path) -> None:
    with locked(app, "application") as pid:
        result = run_query("range", app, "count", "-o", "json", status=5)
        assert _failures(result) == {0: "STORE_EXCEPTION", 1: "STORE_EXCEPTION"}
        assert f"process {pid} has opened" in result.err and "--last-flush" in result.err
        flushed = run_query("range", app, "count", "--last-flush", "-o", "json")
        assert len(flushed.rows) == 8
        assert "so the answer shows the state as of its last flush" in flushed.err


def test_expired(app: Path, tmp_path: Path) -> None:
    spec = tmp_path / "kstate.toml"
    spec.write_text(
        'format = 1\n[stores.window-plain]\nkind = "window"\nretention_ms = 600000\nsegment_interval_ms = 600000\n'
        '[stores.versioned]\nkind = "versioned"\nretention_ms = 60000\nsegment_interval_ms = 240000\n'
    )
    everything = _rows("window-range", app, "window-plain")
    rows = _rows("window-range", app, "window-plain", "--spec", spec)
    newest = {p: max(row["window_start"] for row in everything if row["partition"] == p) for p in (0, 1)}
    assert rows == [row for row in everything if row["window_start"] > newest[row["partition"]] - 600000]
    assert 0 < len(rows) < len(everything)
    assert _rows("window-range", app, "window-plain", "--spec", spec, "--include-expired") == everything
    as_of = ("versioned", app, "versioned", "k0005", "--as-of", 1704067271377, *TEXT)
    assert _rows(*as_of, "--spec", spec) == []
    assert _rows(*as_of, "--spec", spec, "--include-expired") == _rows(*as_of) != []


def test_a_specification_that_contradicts_the_directory(app: Path, tmp_path: Path) -> None:
    spec = tmp_path / "kstate.toml"
    spec.write_text('format = 1\n[stores.count]\nkind = "window"\nretention_ms = 5\n')
    assert "count" in run_query("range", app, "count", "--spec", spec, status=4).err
    assert "has a store nothing" in run_query("range", app, "nothing", "--spec", spec, status=2).err


def test_topology(tmp_path: Path) -> None:
    path = unpack("3.9.2-sparse-named-eos", tmp_path)
    rows = _rows("range", path, "kv-written", "--topology", "orders")
    assert rows == _rows("range", path, "kv-written")
    assert rows
    run_query("range", path, "kv-written", "--topology", "others", status=2)


def test_explain(app: Path) -> None:
    result = kstate(
        "query", "key", app, "count", "k0005", "--explain", "-o", "json", "--partition", 0, "--partition", 9, status=3
    )
    rows = [row for row in result.rows if row["type"] == "partition"]
    assert rows[0]["position"] == {"golden-431-kinds-eos-in-events": {"0": 18}}
    assert rows[0]["execution_info"][0].startswith("Handled in timestamped-key-value store count of task 0_0 in ")
    assert (rows[1]["partition"], rows[1]["position"], rows[1]["execution_info"]) == (9, None, [])
    messages = run_query("key", app, "count", "k0005", "--explain").err
    assert "partition 1: position golden-431-kinds-eos-in-events:1=40\npartition 1: Handled in" in messages


# --- help -------------------------------------------------------------------------------------------------------------

SUBCOMMANDS = (
    "key",
    "range",
    "raw-key",
    "raw-scan",
    "window-key",
    "window-range",
    "session",
    "versioned",
    "multi-versioned",
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help(name: str) -> None:
    output = run_query(name, "--help").out
    assert f"{name} [OPTIONS]" in " ".join(output.split())
    for option in ("--key-serde", "--partition", "--at", "--spec", "--last-flush", "--explain", "--output"):
        assert option in output
    assert run_query(name, "APP", "STORE", "-h").out == output
    assert run_query("range", "APP", name, "-h").out == run_query("range", "-h").out, (
        "a store may be called like a subcommand"
    )
    assert name in run_query("--help").out


def test_help_is_quick() -> None:
    """Nothing is imported for it that a query needs: neither RocksDB nor the library."""
    code = (
        "import sys; sys.argv = ['kstate', 'query', 'range', '--help']\n"
        "from kstate_cli.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('rocksdict', 'rich', 'pyarrow', 'numpy') or m.startswith(('kstate_cli.query', 'kstate_cli.rows'))]\n"
        "sys.exit(repr(bad) if bad else 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_manifest_that_is_cut_off_is_never_an_empty_store(tmp_path: Path) -> None:
    path = unpack(KINDS, tmp_path)
    (manifest,) = (path / "0_0/rocksdb/count").glob("MANIFEST-*")
    # Without the record that adds its SSTs, RocksDB opens the store, and it has no rows.
    manifest.write_bytes(manifest.read_bytes()[:250])
    rows = run_query("range", path, "count", *COUNTS, "-o", "json", status=6)
    (failure,) = (row for row in rows.rows if row["type"] == "failure")
    assert (failure["partition"], failure["code"]) == (0, "STORE_EXCEPTION")
    assert f"0_0/rocksdb/count/{manifest.name}: the file ends " in failure["message"]
    kstate("export", path, "count", "--out", tmp_path / "out", status=6)
    assert not (tmp_path / "out").exists()
    other = unpack(KINDS, tmp_path / "other")
    summary = kstate("diff", path, other, "--store", "count", "-o", "json", status=6).summary
    assert (summary["unread"], summary["equal"]) == (1, False)


def test_warns_of_ssts_that_no_manifest_names(tmp_path: Path) -> None:
    path = unpack(KINDS, tmp_path)
    store = path / "0_0/rocksdb/count"
    (store / "000099.sst").write_bytes(max(store.glob("*.sst")).read_bytes())
    text = "0_0/rocksdb/count: the MANIFEST does not list 000099.sst (a crash can leave such files behind. "
    assert text in run_query("range", path, "count", *COUNTS, status=1).err
    assert text not in run_query("range", path, "count", "--partition", "1", *COUNTS).err
    assert text in kstate("export", path, "count", "--out", tmp_path / "out", status=1).err
    other = unpack(KINDS, tmp_path / "other")
    assert f"B: {text}" in kstate("diff", other, path, "--store", "count", status=1).err
