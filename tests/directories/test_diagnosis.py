"""The log that a bug report attaches: what was read, which rule decided, how long it took, and no secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.golden import unpack

from .support import kstate

pytestmark = pytest.mark.rotating(6)

APP = "4.2.1-kinds-eos"
SECRET = "hunter2"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return unpack(APP, tmp_path)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "kstate.log"
    monkeypatch.setenv("KSTATE_LOG", str(file))
    return file


def run_with_log(log: Path, *words: object, status: int | None = None) -> str:
    kstate(*words, status=status)
    return log.read_text(encoding="utf-8")


def test_log_names_the_files_read_and_the_rule_that_decided(app: Path, log: Path) -> None:
    text = run_with_log(log, "check", app, "--for", "3.9", status=3)
    assert "arguments: check" in text and f"read {app}" in text and "exit code 3" in text
    assert "rule _databases (RocksDBStore.openRocksDB" in text and "fails by sst-too-new" in text
    assert stat.S_IMODE(os.stat(log).st_mode) == 0o600
    text = run_with_log(log, "migrate", app, "--to", "4.3")
    assert "step edit store" in text and "staged in" in text and "switched" in text and "holds the lock" in text
    assert text.count("arguments: ") == 2  # it is appended to


@pytest.mark.parametrize(
    "words",
    [
        ("restore", "APP", "--from-changelog", f"s3://user:{SECRET}@bucket/dump?secret_key={SECRET}", "--for", "4.3"),
        ("restore", "APP", "--from-changelog", "DUMP", "--for", "4.3", "--conf", f"spark.hadoop.password={SECRET}"),
        ("check", "APP", "--for", "4.3", "--dump", f"hdfs://user:{SECRET}@nowhere:1/dump"),
    ],
)
def test_no_secret_is_in_it(app: Path, log: Path, words: tuple[str, ...]) -> None:
    text = run_with_log(log, *(app if word == "APP" else word for word in words))
    assert "arguments: " in text and "exit code" in text
    assert SECRET not in text


def test_the_traceback_of_any_error_is_in_it_and_not_on_the_screen(tmp_path: Path, log: Path) -> None:
    result = kstate("ls", tmp_path / "nowhere", status=2)
    assert "Traceback" not in result.report and "Traceback" in log.read_text(encoding="utf-8")


def test_a_log_that_cannot_be_written_ends_the_command_before_it_begins(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KSTATE_LOG", str(tmp_path / "no" / "such" / "log"))
    result = kstate("ls", app, status=2)
    assert "cannot write the log" in result.err and "KSTATE_LOG" in result.err


def test_standard_error_has_it_with_debug(app: Path) -> None:
    result = kstate("--debug", "ls", app)
    assert "exit code 0" in result.err and f"read {app}" in result.err
    assert "exit code" not in result.out


def test_settings_are_logged_with_their_origin(app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the command line, of a variable and of a file, in this order of precedence; defaults are not logged."""
    config = tmp_path / "kstate.toml"
    config.write_text('format = 1\n[defaults]\nengine = "local"\nworkers = 1\n')
    monkeypatch.setenv("KSTATE_EXPORT_WORKERS", "2")
    monkeypatch.setenv("KSTATE_CONFIG", str(config))
    result = kstate("--debug", "export", app, "count", "--out", tmp_path / "out")
    settings = [line.partition(" setting ")[2] for line in result.err.splitlines() if " setting " in line]
    assert sorted(settings) == [
        f"--engine local ({config})",
        f"--out {tmp_path / 'out'} (command line)",
        "--workers 2 (KSTATE_EXPORT_WORKERS)",
    ]
    monkeypatch.setenv("KSTATE_RESTORE_CONF", f"spark.hadoop.fs.s3a.secret.key={SECRET}")
    version = kstate("--version", "--verbose").out
    assert f"KSTATE_CONFIG={config} " in version and "secret.key=***" in version and SECRET not in version


def test_a_secret_with_a_space_stays_out_of_the_settings(app: Path, tmp_path: Path, log: Path) -> None:
    """The log splits its lines into words, so it cannot recognize the end of such a secret."""
    secret = f"spark.hadoop.fs.s3a.secret.key=first {SECRET}"
    kstate("restore", app, "--from-changelog", tmp_path / "dump", "--for", "4.3", "--conf", secret, status=None)
    text = log.read_text(encoding="utf-8")
    assert "setting --conf spark.hadoop.fs.s3a.secret.key=*** (command line)" in text and SECRET not in text
