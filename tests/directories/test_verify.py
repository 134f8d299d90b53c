"""``kstate verify``: names what is damaged, tells damage from what cannot be judged, and changes nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kstate_cli.rocks.whole_database import WholeDatabase
from kstate_cli.verify.application import in_subset
from tests.golden import names, unpack

from .support import kstate, tree_hash

pytestmark = pytest.mark.rotating(6)

STORE = "0_0/rocksdb/latest-order"


def _verify(app: Path, *more: object, status: int = 0) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary, and the rows of stores and tasks, with what was found in each."""
    result = kstate("verify", app, "-o", "json", *more, status=status)
    rows = [row for row in result.rows if row["type"] in ("store", "task")]
    results = [row for row in result.rows if row["type"] == "finding"]
    for row in rows:
        row["findings"] = [
            entry for entry in results if (entry["task"], entry["store"]) == (row["task"], row.get("store"))
        ]
    assert sum(len(row["findings"]) for row in rows) == len(results)
    return result.summary, rows


def _digests(app: Path) -> dict[str, str]:
    return {f"{row['task']}/{row['store']}": row["digest"] for row in _verify(app)[1]}


def _sst(app: Path) -> Path:
    return max((app / STORE).glob("*.sst"), key=lambda path: path.stat().st_size)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", names())
def test_directory_of_kafka_streams_is_healthy_and_unchanged(tmp_path: Path, name: str) -> None:
    app = unpack(name, tmp_path)
    before = tree_hash(tmp_path)
    summary, rows = _verify(app, "--each-sst")
    assert tree_hash(tmp_path) == before
    assert summary["ok"]
    assert summary["rows"] == sum(row["rows"] for row in rows) > 0
    assert summary["databases"] == sum(row["databases"] for row in rows) > 0
    assert all(row["ok"] and len(row["digest"]) == 32 and row["as_of"] == "closed" for row in rows)


# --- damage -----------------------------------------------------------------------------------------------------------


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x01
    path.write_bytes(data)


def _flip_byte(app: Path) -> str:
    _flip(_sst(app), 10)
    return _sst(app).name


def _truncate(app: Path) -> str:
    os.truncate(_sst(app), _sst(app).stat().st_size // 2)
    return max((app / STORE).glob("*.sst"), key=lambda path: path.stat().st_mtime).name


def _missing(app: Path) -> str:
    name = _sst(app).name
    _sst(app).unlink()
    return name


def _too_new(app: Path) -> str:
    data = bytearray(_sst(app).read_bytes())
    data[-12] = 7
    _sst(app).write_bytes(data)
    return _sst(app).name


def _wrong_current(app: Path) -> str:
    (app / STORE / "CURRENT").write_text("MANIFEST-000001\n")
    return "CURRENT"


def _current_of_bytes(app: Path) -> str:
    (app / STORE / "CURRENT").write_bytes(b"\x1b[31m\xff\n")
    return "CURRENT"


def _no_current(app: Path) -> str:
    (app / STORE / "CURRENT").unlink()
    return "CURRENT"


def _cut_current(app: Path) -> str:
    os.truncate(app / STORE / "CURRENT", 8)
    return "CURRENT"


def _manifest(app: Path) -> Path:
    return next((app / STORE).glob("MANIFEST-*"))


def _no_manifest(app: Path) -> str:
    name = _manifest(app).name
    _manifest(app).unlink()
    return name


def _flipped_manifest(app: Path) -> str:
    _flip(_manifest(app), 30)
    return _manifest(app).name


def _cut_manifest(app: Path) -> str:
    os.truncate(_manifest(app), _manifest(app).stat().st_size - 3)
    return _manifest(app).name


def _cut_options(app: Path) -> str:
    newest = max((app / STORE).glob("OPTIONS-*"))
    os.truncate(newest, 100)
    return newest.name


def _link(app: Path) -> str:
    (app / STORE / "000999.sst").symlink_to("/etc/hostname")
    return "000999.sst"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("damage", "code", "status"),
    [
        (_flip_byte, "corrupt", 3),
        (_truncate, "truncated", 3),
        (_missing, "no-ssts", 4),
        (_wrong_current, "corrupt", 3),
        (_current_of_bytes, "corrupt", 3),
        (_no_current, "missing", 3),
        (_cut_current, "truncated", 3),
        (_no_manifest, "missing", 3),
        (_flipped_manifest, "corrupt", 3),
        (_cut_manifest, "truncated", 3),
        (_cut_options, "undecodable", 3),
        (_too_new, "too-new", 4),
        (_link, "not-understood", 4),
    ],
)
def test_damage_is_named_down_to_the_file(
    tmp_path: Path, damage: Callable[[Path], str], code: str, status: int
) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    file = f"{STORE}/{damage(app)}"
    before = tree_hash(tmp_path)
    summary, rows = _verify(app, status=status)
    assert tree_hash(tmp_path) == before
    (bad,) = [row for row in rows if not row["ok"]]
    assert [(finding["code"], finding["path"]) for finding in bad["findings"]] == [(code, file)]
    assert f"{bad['task']}/rocksdb/{bad['store']}" == STORE
    assert bad["digest"] is None
    assert summary["findings"] == {code: 1}
    output = kstate("verify", app, status=status)
    assert file in output.out
    assert "\x1b" not in output.out + output.err
    kstate("verify", app, "--store", "visits")


def test_a_flipped_byte_in_a_segment(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    sst = max(app.glob("0_0/visits/*/*.sst"), key=lambda path: path.stat().st_size)
    _flip(sst, 12)
    _, rows = _verify(app, status=3)
    (bad,) = [row for row in rows if not row["ok"]]
    assert bad["findings"][0]["path"] == str(sst.relative_to(app))


def test_offset_files_that_do_not_decode(tmp_path: Path) -> None:
    app = unpack("4.2.1-kinds-eos", tmp_path)
    (app / "0_0/.checkpoint").write_text("0\n7\n")
    (app / "0_1/count.position").write_text("nonsense\n")
    _, rows = _verify(app, status=3)
    bad = {(row["type"], row["task"], row.get("store")): row["findings"] for row in rows if not row["ok"]}
    assert bad.keys() == {("task", "0_0", None), ("store", "0_1", "count")}
    assert [entry["path"] for results in bad.values() for entry in results] == ["0_1/count.position", "0_0/.checkpoint"]
    assert {entry["code"] for results in bad.values() for entry in results} == {"undecodable"}
    _verify(app, "--store", "kv-plain")


def _samples(file: Path, name: str) -> list[Any]:
    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    return [sample for family in families for sample in family.samples if sample.name == name]


def test_metrics(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    file = tmp_path / "kstate.prom"
    summary, _ = _verify(app, "--metrics-file", file)
    assert [sample.value for sample in _samples(file, "kstate_records")] == [summary["rows"]]
    _flip_byte(app)
    _verify(app, "--metrics-file", file, status=3)
    messages = {sample.labels["code"]: sample.value for sample in _samples(file, "kstate_findings")}
    assert messages == {"corrupt": 1}
    assert [sample.value for sample in _samples(file, "kstate_last_run_exit_code")] == [3]


def test_a_store_of_which_nothing_is_left_but_ssts(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    for name in ("CURRENT", _manifest(app).name):
        (app / STORE / name).unlink()
    _, rows = _verify(app, status=3)
    (bad,) = [row for row in rows if not row["ok"]]
    assert bad["findings"][0]["code"] == "missing"
    assert bad["store"] == "latest-order"


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything")
def test_a_file_that_may_not_be_read_is_no_damage(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    _sst(app).chmod(0)
    command = [sys.executable, "-m", "kstate_cli", "verify", str(app), "-o", "json"]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", *command]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 4, result.stdout + result.stderr
    assert f'"code": "unreadable", "level": "unknown", "path": "{_sst(app).relative_to(app)}"' in result.stdout


# --- digests ----------------------------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "target", "options"),
    [
        ("4.3.1-kinds-eos", "4.2", ()),
        ("4.3.1-kinds-eos", "3.9", ()),
        ("4.3.1-sparse-eos", "4.2", ()),
        ("4.3.1-headers-eos", "4.2", ("--drop-headers",)),
        ("4.2.1-kinds-eos", "4.3", ()),
        ("4.2.1-sparse-eos", "4.3", ()),
        ("3.9.2-kinds-eos", "4.3", ()),
    ],
)
def test_the_digest_is_the_same_before_and_after_a_migration(
    tmp_path: Path, name: str, target: str, options: tuple[str, ...]
) -> None:
    app = unpack(name, tmp_path)
    before = _digests(app)
    assert len(before) > 2
    kstate("migrate", app, "--to", target, "--warnings-ok", *options)
    after = _digests(app)
    assert before.keys() == after.keys()
    if options:
        assert before != after
    else:
        assert before == after


def test_digests_of_the_same_rows_are_equal_wherever_they_are(tmp_path: Path) -> None:
    first = unpack("4.3.1-kinds-eos", tmp_path / "a")
    second = unpack("4.3.1-kinds-eos", tmp_path / "b")
    rename = second.rename(second.with_name("another-application"))
    digests = _digests(first)
    assert digests == _digests(rename)
    # Plain stores of the same input, one logged and one not.
    assert digests["0_0/kv-plain"] == digests["0_0/kv-nolog"] != digests["0_1/kv-plain"]


# --- selection --------------------------------------------------------------------------------------------------------


def test_subsets_cover_everything_once(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    every = set(_digests(app))
    lines: list[str] = []
    for number in range(1, 4):
        summary, rows = _verify(app, "--subset", f"{number}/3")
        assert summary["left_out"] == len(every) - len(rows)
        lines += [f"{row['task']}/{row['store']}" for row in rows]
    assert sorted(lines) == sorted(every)
    assert all(in_subset("0_0", f"s{n}", (1, 1)) for n in range(20))
    for wrong in ("0/3", "4/3", "1", "1/0", "a/b", "-1/2"):
        kstate("verify", app, f"--subset={wrong}", status=2)


def test_a_share_without_a_store_is_nothing_to_do(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    empty = next(n for n in range(1, 100) if not in_subset("0_0", "visits", (n, 100)))
    summary, rows = _verify(app, "--task", "0_0", "--store", "visits", "--subset", f"{empty}/100")
    assert (rows, summary["left_out"], summary["ok"]) == ([], 1, True)


def test_tasks_and_stores_are_chosen(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    _, rows = _verify(app, "--task", "0_0", "--store", "count", "--store", "kv-plain")
    assert [(row["task"], row["store"]) for row in rows] == [("0_0", "count"), ("0_0", "kv-plain")]
    kstate("verify", app, "--store", "nowhere", status=2)
    kstate("verify", app, "--workers", "-1", status=2)
    assert "no damage" in kstate("verify", app, "--workers", "0").out, "one for each processor"
    assert kstate("verify", app, "--quiet").err == ""
    assert "kstate does not check filter blocks" in kstate("verify", app).err


# --- beside a running application -------------------------------------------------------------------------------------


@contextmanager
def _running(code: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_locked_application_is_reported_as_running(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    hold = f"import fcntl,time;f=open({str(app / '.lock')!r},'r+b');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);time.sleep(3600)"
    with _running(hold) as process:
        summary, rows = _verify(app)
        assert summary["running"] is True
        assert {row["as_of"] for row in rows} == {"last-flush"}
        assert f"the application is running (pid {process.pid})" in kstate("verify", app).err
        _flip_byte(app)
        assert _verify(app, status=3)[0]["findings"] == {"corrupt": 1}
    with open(app / ".lock", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


CHURN = """
import os
from rocksdict import Options, Rdict, Env
path = {path!r}
options, families = Options.load_latest(path, Env(), True)
options.set_level_zero_file_num_compaction_trigger(2)
db = Rdict(path, options, column_families=families)
rows = db.get_column_family("keyValueWithTimestamp")
print(1, flush=True)
while True:
    for number in range(2000):
        rows[b"key-%d" % number] = bytes(8) + os.urandom(200)
    rows.flush()
    rows.compact_range(None, None)
"""


def test_a_store_that_is_flushed_and_compacted_all_the_time(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    with _running(CHURN.format(path=str(app / STORE))):
        for _ in range(5):
            summary, rows = _verify(app)
            assert summary["ok"]
            (busy,) = [row for row in rows if f"{row['task']}/rocksdb/{row['store']}" == STORE]
            assert busy["rows"] > 0


def test_an_sst_that_was_not_linked_is_no_fault_of_the_folder_for_temporary_files(tmp_path: Path) -> None:
    """Made after the others were linked: whoever verifies reads again on FileNotFoundError."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    with WholeDatabase(app / STORE) as database:
        table = database.tables("keyValueWithTimestamp")[0]
        assert database._private is not None
        (database._private / table.name).unlink()
        with pytest.raises(FileNotFoundError):
            database.alone(table)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_mount_is_enough(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    mount = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
    command = f"{mount} && {sys.executable} -m kstate_cli verify {app} -o json && ! touch {app}/x 2>/dev/null"
    result = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_ended_by_a_signal_it_leaves_nothing(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path / "app")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    ended = False
    # The later delays are for a busy machine, on which Python has not started after the first ones.
    for delay in (0.5, 0.8, 1.0, 1.2, 1.4, 2, 3, 5, 8, 12, 20):
        if ended and delay > 1.4:
            break
        command = [sys.executable, "-m", "kstate_cli", "verify", str(app), "--workers", "1"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(delay)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=300)
        assert b"Traceback" not in err
        ended = ended or process.returncode == 128 + signal.SIGTERM
        assert list(temporary.iterdir()) == []
    assert ended


def test_hint_promises_no_changelog_to_a_store_without_changelog(tmp_path: Path) -> None:
    app = unpack("3.9.2-kinds-eos", tmp_path)
    (sst,) = (app / "0_0" / "rocksdb" / "kv-nolog").glob("*.sst")
    _flip(sst, 10)
    text = " ".join(kstate("verify", app, "--store", "kv-nolog", status=3).err.split())
    assert "it restores the stores that have a changelog):" in text
