"""``--metrics-file``: whole files, the time of the last success, and never two commands at once."""

from __future__ import annotations

import fcntl
import shutil
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kstate_cli.cli.metrics import Metrics
from tests.golden import unpack

from .support import kstate, tree_hash
from .test_cold import EXAMPLES

pytestmark = pytest.mark.rotating(4)


def read(path: Path, command: str = "migrate") -> dict[str, float]:
    results = {}
    for family in text_string_to_metric_families(path.read_text(encoding="utf-8")):
        for sample in family.samples:
            assert sample.labels["command"] == command
            results[sample.name] = sample.value
    return results


def test_metrics_of_a_migration(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    file = tmp_path / "kstate.prom"
    began = time.time()
    kstate("migrate", app, "--to", "4.2", "--metrics-file", file)
    good = read(file)
    assert began < good["kstate_last_success_timestamp_seconds"] == good["kstate_last_run_timestamp_seconds"]
    assert good["kstate_last_run_exit_code"] == 0
    assert good["kstate_bytes_pinned"] > 0
    assert 0 < good["kstate_last_run_duration_seconds"] < time.time() - began
    # 2.x is no release that kstate knows: the usage error comes before anything is measured.
    kstate("migrate", app, "--to", "2.1", "--metrics-file", file, status=2)
    assert read(file) == good

    (app / "0_0" / ".checkpoint").write_text("nonsense")
    kstate("migrate", app, "--to", "4.3", "--metrics-file", file, status=4)
    bad = read(file)
    assert bad["kstate_last_run_exit_code"] == 4
    assert bad["kstate_last_success_timestamp_seconds"] == good["kstate_last_success_timestamp_seconds"]
    assert bad["kstate_last_run_timestamp_seconds"] > good["kstate_last_run_timestamp_seconds"]
    assert sorted(path.name for path in tmp_path.glob("*kstate.prom*")) == [".kstate.prom.lock", "kstate.prom"]


@pytest.mark.parametrize(("command", "name"), [("verify-dump", "dump"), ("verify-snapshots", "repository")])
def test_metrics_of_a_verification(command: str, name: str, tmp_path: Path) -> None:
    """Of every command that reads files in full: the findings with their level, and no file within what is read."""
    place, file = tmp_path / name, tmp_path / "kstate.prom"
    if command == "verify-dump":
        shutil.copytree(EXAMPLES / "dump", place)
    else:
        kstate("snapshot", unpack("4.3.1-demo-eos", tmp_path / "state"), "--out", place)
    good = kstate(command, place, "--metrics-file", file, "--quiet")
    assert good.out == good.err == "" and read(file, command)["kstate_last_run_exit_code"] == 0
    files = (path for path in place.rglob("*") if path.is_file() and path.suffix != ".json")
    damaged = max(files, key=lambda path: path.stat().st_size)
    damaged.chmod(0o644)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])
    kstate(command, place, "--metrics-file", file, status=3)
    bad = read(file, command)
    assert bad["kstate_last_run_exit_code"] == 3 and bad["kstate_findings"] == 1
    assert bad["kstate_last_success_timestamp_seconds"] < bad["kstate_last_run_timestamp_seconds"]
    refusal = kstate(command, place, "--metrics-file", place / "kstate.prom", status=2)
    assert f"is inside the {name}" in refusal.err


def test_a_warning_is_no_success(tmp_path: Path) -> None:
    """Of a command, and of each round of one that continues: whoever looks at the success alone must hear of it."""
    file = tmp_path / "kstate.prom"
    with Metrics(file, "dump", None, application="a") as metrics:
        metrics.round_done(0)
        good = read(file, "dump")["kstate_last_success_timestamp_seconds"]
        metrics.round_done(1)
        assert read(file, "dump")["kstate_last_success_timestamp_seconds"] == good
        assert read(file, "dump")["kstate_last_run_exit_code"] == 1
        assert metrics.finish(1) == 1
    assert read(file, "dump")["kstate_last_success_timestamp_seconds"] == good


def test_metrics_that_cannot_be_written_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "collector"
    folder.mkdir()
    file = folder / "kstate.prom"
    with Metrics(file, "dump", None, application="a") as metrics:
        folder.rename(tmp_path / "moved")
        assert metrics.finish(0) == 1
    assert "warning: kstate could not write the metrics" in capsys.readouterr().err


def test_metrics_of_a_wipe(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    file = tmp_path / "kstate.prom"
    kstate("wipe", app, "--store", "nowhere", "--metrics-file", file, status=2)
    content = read(file, "wipe")
    assert content["kstate_last_run_exit_code"] == 2
    assert "kstate_last_success_timestamp_seconds" not in content
    kstate("wipe", app, "--task", "0_0", "--metrics-file", file)
    good = read(file, "wipe")
    assert good["kstate_last_success_timestamp_seconds"] == good["kstate_last_run_timestamp_seconds"]
    assert good["kstate_last_run_exit_code"] == 0
    assert good["kstate_bytes_pinned"] > 0
    kstate("clean", app)
    kstate("wipe", app, "--task", "0_1", "--purge", "--yes", "--metrics-file", file)
    assert read(file, "wipe")["kstate_bytes_pinned"] == 0


def test_never_two_at_once(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    file = tmp_path / "kstate.prom"
    with open(tmp_path / ".kstate.prom.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refusal = kstate("migrate", app, "--to", "4.2", "--metrics-file", file, status=5)
    assert "another kstate command" in refusal.err
    kstate("migrate", app, "--to", "4.2", "--metrics-file", file)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    kstate("migrate", app, "--to", "4.2", "--metrics-file", tmp_path / "nowhere" / "kstate.prom", status=2)


def test_a_file_where_none_belongs(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    before = tree_hash(tmp_path)
    for file in (app / "kstate.prom", app / "0_0" / "rocksdb" / "kstate.prom", tmp_path):
        result = kstate("check", app, "--for", "4.3", "--metrics-file", file, status=2)
        assert str(file) in result.err
    assert tree_hash(tmp_path) == before


@pytest.mark.sample(2)
@pytest.mark.parametrize("content", ["my notes\n", "format = 1\n", "# HELP node_load1 1m load average.\n", "\0notes"])
def test_a_file_of_somebody_else(tmp_path: Path, content: str) -> None:
    """It would be replaced as a whole, were it the kstate.toml that names it: nothing is that kstate did not write."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    file = tmp_path / "kept.txt"
    file.write_text(content)
    before = tree_hash(tmp_path)
    for words in (["check", app, "--for", "4.3"], ["migrate", app, "--to", "4.2"], ["verify", app]):
        refusal = kstate(*words, "--metrics-file", file, status=4)
        assert str(file) in refusal.err
        assert "kstate did not write" in refusal.err
    assert tree_hash(tmp_path) == before


@pytest.mark.parametrize("content", ["", "\0" * 4096])
def test_a_file_that_a_power_failure_has_left(tmp_path: Path, content: str) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    file = tmp_path / "kstate.prom"
    file.write_text(content)
    kstate("verify", app, "--metrics-file", file)
    assert read(file, "verify")["kstate_last_run_exit_code"] == 0


def test_metrics_file_of_another_command_is_replaced(tmp_path: Path) -> None:
    """Whatever command has written it, and whatever that had to say: the next one writes over it."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    file = tmp_path / "kstate.prom"
    for words in (["check", app, "--for", "4.3"], ["verify", app], ["migrate", app, "--to", "4.2"], ["verify", app]):
        kstate(*words, "--metrics-file", file)
        assert file.read_bytes().startswith(b"# ")
