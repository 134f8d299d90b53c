"""What a restoration lacks is told before there is a run, by a dry run too: nothing begins, and nothing is in ERROR."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.make_dump import make_dump
from tests.golden import unpack

from . import support

pytestmark = pytest.mark.rotating(6)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "dump"
    make_dump(folder, support.TOPIC, records=200, keys=50, value_bytes=20, partitions=2)
    return folder


def restore(app: Path, dump: Path, *options: str, **variables: str) -> tuple[int, str]:
    """Exit status and standard error."""
    process = subprocess.run(
        support.command(app, dump, *options),
        env={**support.environment(), **variables},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert "Traceback" not in process.stderr, process.stderr
    assert "defect" not in process.stderr, process.stderr
    return process.returncode, process.stderr


def nothing_began(app: Path) -> None:
    assert sorted(path.name for path in app.parent.iterdir()) == ["kept"]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An application directory that is lost, in a state.dir with another one."""
    (tmp_path / "state" / "kept").mkdir(parents=True)
    return tmp_path / "state" / support.APP


DRY = pytest.mark.parametrize("dry", [("--dry-run",), ()], ids=["dry", "real"])


@DRY
def test_no_java(app: Path, small: Path, dry: tuple[str, ...]) -> None:
    status, text = restore(app, small, *dry, PATH="/nowhere", JAVA_HOME="")
    assert (status, "java is not on the PATH" in text) == (4, True), text
    status, text = restore(app, small, *dry, JAVA_HOME="/nowhere")
    assert (status, "JAVA_HOME is /nowhere" in text) == (4, True), text
    nothing_began(app)


@DRY
def test_a_java_that_is_too_old(app: Path, small: Path, tmp_path: Path, dry: tuple[str, ...]) -> None:
    """As Java 8 names itself."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_412\"' >&2\n")
    java.chmod(0o755)
    status, text = restore(app, small, *dry, JAVA_HOME=str(java.parents[1]))
    assert (status, "is Java 8" in text) == (4, True), text
    nothing_began(app)


@pytest.mark.sample(3)
@DRY
@pytest.mark.parametrize("master", [(), ("--master", "local"), ("--master", "local[3,4]"), ("--master", "local[*]")])
def test_too_little_memory(app: Path, small: Path, dry: tuple[str, ...], master: tuple[str, ...]) -> None:
    status, text = restore(app, small, *dry, *master, "--memory", "10M")
    assert (status, "--memory is too small" in text) == (2, True), text
    nothing_began(app)


@DRY
def test_refuses_memory_for_too_few_concurrent_tasks(app: Path, small: Path, dry: tuple[str, ...]) -> None:
    status, text = restore(app, small, *dry, "--memory", "950M", "--master", "local[2,4]")
    assert (status, "for 2 concurrent tasks" in text) == (2, True), text
    nothing_began(app)


@DRY
def test_staging_that_cannot_be_written(app: Path, small: Path, tmp_path: Path, dry: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    places = [str(file), f"{file}/below", f"file://{file}/below", "/proc/nothing"]
    for place in places:
        status, text = restore(app, small, *dry, "--staging", place)
        assert (status, "--staging" in text) == (4, True), text
    status, text = restore(app, small, *dry, "--staging", "nosuch://bucket/staging")
    assert (status, "cannot open" in text) == (2, True), text
    nothing_began(app)


def test_an_object_store_that_nobody_answers_for(app: Path, small: Path) -> None:
    uri = "s3://id:s3cr3t@bucket/staging?endpoint_override=127.0.0.1:9&scheme=http&region=x"
    status, text = restore(app, small, "--staging", uri, AWS_MAX_ATTEMPTS="1", AWS_RETRY_MODE="standard")
    assert (status, "--staging s3://bucket/staging" in text, "s3cr3t" in text) == (4, True, False), text
    nothing_began(app)


def test_a_staging_that_is_good_is_left_as_it_was(app: Path, small: Path, tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    before = staging.stat().st_mtime_ns
    status, text = restore(app, small, "--dry-run", "--staging", str(staging))
    assert status == 0, text
    assert list(staging.iterdir()) == []
    assert staging.stat().st_mtime_ns == before
    nothing_began(app)


def test_spark_that_does_not_start_is_no_failure_of_the_run(app: Path, small: Path) -> None:
    """What only Spark can tell: its start is refused, no run stays, and the next one needs no --after-error."""
    status, text = restore(app, small, "--master", "nosuch://127.0.0.1")
    assert (status, "Spark failed to start" in text, "aster" in text) == (4, True, True), text
    nothing_began(app)


def test_a_store_that_drops_whole_files(tmp_path: Path) -> None:
    """FIFO compaction goes by files: a catch-up would make others than Streams, and other rows would be dropped."""
    app = unpack("4.3.1-kinds-eos", tmp_path)
    process = subprocess.run(
        [sys.executable, "-m", "kstate_cli", "inspect-position", str(app), "-o", "json"],
        env=support.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    topic = f"{app.name}-kv-timestamped-changelog"
    assert topic in process.stdout
    dump = tmp_path / "dump"
    make_dump(dump, topic, records=200_000, keys=50, value_bytes=1, partitions=1)
    command = [
        sys.executable, "-m", "kstate_cli", "restore", str(app), "--from-changelog", str(dump), "--for", "4.3",
        "--store", "kv-timestamped", "--task", _task_of(app, "kv-timestamped"), "--dry-run", "--warnings-ok",
    ]  # fmt: skip
    good = subprocess.run(command, env=support.environment(), capture_output=True, text=True, check=False)
    assert (good.returncode, "catch up" in good.stdout) == (0, True), good
    for options in app.rglob("kv-timestamped/OPTIONS-*"):
        text = options.read_text()
        options.write_text(re.sub("compaction_style=.*", "compaction_style=kCompactionStyleFIFO", text))
    refusal = subprocess.run(command, env=support.environment(), capture_output=True, text=True, check=False)
    assert (refusal.returncode, "FIFO" in refusal.stderr, "--rebuild" in refusal.stderr) == (4, True, True), refusal


def _task_of(app: Path, store: str) -> str:
    return min(path.parents[1].name for path in app.glob(f"*/rocksdb/{store}") if path.is_dir())


def test_a_name_that_no_file_can_have(tmp_path: Path, small: Path) -> None:
    """Streams could not make the store either, but for one that is restored from a topic of another name."""
    name = "s" * 245
    spec = tmp_path / "kstate.toml"
    spec.write_text(
        f'format = 1\napplication = "{support.APP}"\n[stores.{name}]\nkind = "window"\nsubtopology = 0\npartitions = 2\n'
        f'changelog = "{support.TOPIC}"\nretention_ms = 1000\nsegment_interval_ms = 1000\n'
    )
    app = tmp_path / "state" / support.APP
    app.parent.mkdir()
    command = support.command(app, small, "--dry-run")
    command[command.index("--spec") + 1] = str(spec)
    process = subprocess.run(command, env=support.environment(), capture_output=True, text=True, check=False)
    assert (process.returncode, "too long" in process.stderr) == (4, True), process
    assert list(app.parent.iterdir()) == []


@pytest.mark.parametrize("requests", [(), ("--store", "cache")], ids=["all", "named"])
def test_a_store_in_memory_is_left_to_streams(
    app: Path, small: Path, tmp_path: Path, requests: tuple[str, ...]
) -> None:
    """Its kind is one of a specification only: no table of releases and no codec knows it."""
    spec = tmp_path / "kstate.toml"
    memory = f'[stores.cache]\nkind = "in-memory"\nsubtopology = 0\npartitions = 2\nchangelog = "{support.TOPIC}"\n'
    spec.write_text(support.SPEC + memory, encoding="utf-8")
    restore = support.restore(app, small, "--dry-run", "--engine", "local", "--spec", str(spec), *requests)
    assert restore.status in (0, 1), restore.stderr
    assert "kstate does not restore cache, because it is an in-memory store" in str(restore.rows)
    assert ("0_0" in str(restore.rows)) is not bool(requests)
    nothing_began(app)
