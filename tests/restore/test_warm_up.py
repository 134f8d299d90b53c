"""``kstate warm-up`` with real JVMs: what it makes is taken, and nothing else is; restorations are the same either way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.spark import kept_start
from kstate_cli.spark.context import SparkSettings, conf_of, run_tasks, spark_context
from kstate_cli.spark.engine import by_spark_submit
from tests import json_lines

from . import support
from .cluster import Cluster

COMMAND = [sys.executable, "-m", "kstate_cli", "warm-up", "-o", "json"]


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {**support.environment(), "XDG_CACHE_HOME": str(cache), **more}


def warm_up(cache: Path, *, status: int = 0, **more: str) -> tuple[dict[str, Any], str]:
    """The only line on standard output, and what is said on standard error."""
    process = subprocess.run(COMMAND, env=environment(cache, **more), capture_output=True, text=True, check=False)
    assert process.returncode == status, process.stderr
    json_lines.check(COMMAND[3:], process.returncode, process.stdout, process.stderr)
    (line,) = json_lines.parse_lines(process.stdout)
    return line, process.stderr


def at_work(cache: Path) -> subprocess.Popen[str]:
    """One that is about to make something."""
    process = subprocess.Popen(
        COMMAND, env=environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300
    while not [*(cache / "kstate" / "spark").glob(".making-*.classes")] and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def _jvms_of(pid: int) -> list[str]:
    """Processes that were to tell a kstate with this number where they listen."""
    results = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            match = re.search(rb"_PYSPARK_DRIVER_CONN_INFO_PATH=([^\0]*)", path.read_bytes())
            if match and f"-{pid}-" in match[1].decode():
                results.append(path.parent.name)
    return results


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory that one has begun to warm, which was killed, and then two at once: it is made once."""
    cache = tmp_path_factory.mktemp("cache")
    folder = cache / "kstate" / "spark"
    killed = at_work(cache)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    names = [path.name for path in folder.iterdir()]
    assert names and all(name.startswith(".making-") for name in names), "killed too late, or too early"
    both = [
        subprocess.Popen(COMMAND, env=environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = [entry.communicate() for entry in both]
    assert [entry.returncode for entry in both] == [0, 0], ended
    lines = [json.loads(out) for out, _ in ended]
    assert sorted(line["made"] for line in lines) == [False, True]
    assert len({line["path"] for line in lines}) == 1
    assert not _jvms_of(killed.pid), "its JVM has seen that it is alone"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.suffix for path in folder.iterdir()) == [".jsa", ".json"], "nothing else is left"
    return cache


@pytest.fixture
def copied(warm: Path, tmp_path: Path) -> Path:
    """One to damage."""
    shutil.copytree(warm, tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def cache(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What this very process takes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(copied))
    return copied


def assert_jvm_started(conf: dict[str, str]) -> None:
    """In a process of its own: how its JVM was started, what that has mapped after a job, and what is left of it."""
    with spark_context(SparkSettings(conf=conf)) as context:
        assert run_tasks(context, str, [1, 2], lambda: None) == ["1", "2"]
        pid = context._jvm.java.lang.ProcessHandle.current().pid()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        maps = Path(f"/proc/{pid}/maps").read_text()
    print(json.dumps([words, maps, [entry for entry in sys.path if "/spark-" in entry]]))


def _command_and_maps(settings: SparkSettings) -> tuple[list[str], str]:
    """The first two. PySpark goes on with the JVM that other tests of this process have started with it."""
    code = f"from tests.restore.test_warm_up import assert_jvm_started; assert_jvm_started({dict(settings.conf)!r})"
    words, maps, remainder = json.loads(support.output_of(code).splitlines()[-1])
    assert remainder == [], "whoever may write to /tmp could put modules there"
    return words, maps


def _archive(cache: Path) -> Path:
    (path,) = (cache / "kstate" / "spark").glob("*.jsa")
    return path


@pytest.mark.rotating(4, "long restorations")
def test_it_is_taken(cache: Path) -> None:
    """The JVM has the archive in its memory, and was started with what Spark's launcher would have said."""
    settings = SparkSettings(conf={"spark.executor.memory": "1g"})
    decides = kept_start.start_inputs(conf_of(settings, "kstate restore"))
    assert [path.stem for path in _archive(cache).parent.glob("*.json")] == [kept_start.key_of(decides)], decides
    words, maps = _command_and_maps(settings)
    assert f"-XX:SharedArchiveFile={_archive(cache)}" in words, "Spark's own scripts have started it"
    assert str(_archive(cache)) in maps, maps
    shutil.rmtree(cache)
    as_always, maps = _command_and_maps(settings)
    assert ".jsa" in maps and str(cache) not in maps, "the JVM's own"
    ours = [word for word in words if not word.startswith(("-XX:SharedArchiveFile", "-Xshare", "-Xlog"))]
    assert sorted(ours) == sorted(as_always)
    begin = ours.index(kept_start.MAIN_CLASS)
    assert ours[:begin] == as_always[:begin]


@pytest.mark.in_full("tests/restore/test_warm_up.py::test_it_is_taken")
def test_a_second_call_finds_it(warm: Path) -> None:
    line, text = warm_up(warm)
    assert (line["made"], line["seconds"], line["path"]) == (False, None, str(_archive(warm)))
    assert "it is there already" not in line and text.count("\n") <= 1


def restore(cache: Path, dump: Path, folder: Path) -> tuple[Path, str]:
    """What a restoration with this cache has made, and what it said on standard error."""
    app = folder / "state" / support.APP
    app.parent.mkdir()
    process = subprocess.Popen(
        support.command(app, dump, "--quiet"),
        env=environment(cache),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return app, support.good(support.await_end(process)).stderr


@pytest.mark.in_full("tests/restore/test_warm_up.py::test_it_is_taken")
def test_a_restoration_is_the_same_and_says_the_same(
    warm: Path, dump: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    app, text = restore(warm, dump, tmp_path)
    assert "warning" not in text.lower() and "jsa" not in text
    assert support.digest(app) == expected


@pytest.mark.in_full("tests/restore/test_warm_up.py::test_it_is_taken")
def test_damaged_archive_is_not_used(copied: Path, dump: Path, tmp_path: Path) -> None:
    """The JVM itself would map it, and die: it looks at the beginning alone."""
    archive = _archive(copied)
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(archive.stat().st_size // 2)
        file.write(os.urandom(1 << 20))
    _, text = restore(copied, dump, tmp_path)
    assert "jsa" not in text


@pytest.mark.in_full("tests/restore/test_warm_up.py::test_it_is_taken")
def test_note_whose_command_fails_is_no_obstacle(cache: Path) -> None:
    """A note that is whole, and whose command is of no use: Spark starts as always."""
    (note,) = (cache / "kstate" / "spark").glob("*.json")
    document = json.loads(note.read_text())
    note.write_text(json.dumps({**document, "command": ["/bin/false", kept_start.MAIN_CLASS]}))
    words, _ = _command_and_maps(SparkSettings())
    assert words[0] != "/bin/false"


JAVA_25 = sorted(Path("/usr/lib/jvm").glob("*25*"))


@pytest.mark.skipif(not JAVA_25, reason="needs another Java")
def test_of_another_jvm(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has another key; and where that said the same, the JVM would see that it is not its own, and say nothing."""
    conf = conf_of(SparkSettings(), "kstate restore")
    monkeypatch.setenv("XDG_CACHE_HOME", str(copied))
    find = kept_start.find(conf)
    assert find is not None
    monkeypatch.setenv("JAVA_HOME", str(JAVA_25[0]))
    assert kept_start.find(conf) is None
    argv = find.argv({})
    options = [f"{JAVA_25[0]}/bin/java", *argv[1 : argv.index(kept_start.MAIN_CLASS)], "-version"]
    process = subprocess.run(options, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "" and "jsa" not in process.stderr and "cds" not in process.stderr


@pytest.mark.in_full("tests/restore/test_warm_up.py::test_it_is_taken")
def test_a_signal_leaves_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = cache / "kstate" / "spark"
    process = at_work(cache)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert json.loads(out)["type"] == "error"
    assert [*folder.iterdir()] == []


@pytest.mark.rotating(2, "places of an archive")
def test_where_it_cannot_be(tmp_path: Path) -> None:
    """Refused by what is in the way, before anything is started."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    line, text = warm_up(shared, status=4)
    assert "other users may write to" in line["message"] and str(shared) in line["message"], text
    file = tmp_path / "file"
    file.touch()
    warm_up(file, status=6)
    settings = tmp_path / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").touch()
    line, _ = warm_up(tmp_path / "cache", status=4, SPARK_CONF_DIR=str(settings))
    assert "custom settings in" in line["message"]
    line, _ = warm_up(tmp_path / "cache", status=4, JAVA_HOME=str(tmp_path))
    assert "Java" in line["message"]
    line, _ = warm_up(Path("relative"), status=4, HOME="relative")
    assert "XDG_CACHE_HOME" in line["message"]
    assert not (tmp_path / "cache").exists()


@pytest.mark.rotating(2, "places of an archive")
def test_a_read_only_place(tmp_path: Path) -> None:
    """To make it there is an error; to start Spark is none."""
    if os.geteuid() == 0:
        # Whom no mode stops: what no user may write to.
        line, _ = warm_up(Path("/proc/sys"), status=6)
        assert line["code"] == "system"
        return
    (tmp_path / "cache").mkdir(0o500)
    line, _ = warm_up(tmp_path / "cache", status=4)
    assert line["code"] in ("refused", "system")


@pytest.mark.in_full("tests/restore/test_warm_up.py::test_it_is_taken")
def test_a_cluster_starts_as_always_and_with_it(
    warm: Path, dump: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    """The driver is this host's JVM whatever the master; executors are others', and know nothing of it."""
    with Cluster(tmp_path, ["127.0.0.1"]) as cluster:
        app = tmp_path / "state" / support.APP
        app.parent.mkdir()
        process = subprocess.Popen(
            support.command(app, dump, "--master", cluster.master, "--quiet"),
            env=environment(warm),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        support.good(support.await_end(process))
        assert support.digest(app) == expected
    commands = "".join(path.read_text() for path in tmp_path.glob("work*/**/stderr"))
    assert "Launch Command" in commands or "Spark Executor Command" in commands
    assert "SharedArchiveFile" not in commands


@pytest.mark.in_full("tests/restore/test_warm_up.py::test_it_is_taken")
def test_settings_of_the_jvm_use_the_launcher(cache: Path) -> None:
    """Settings that change its command are of another key: they are Spark's own to turn into one."""
    for name, value in (("spark.driver.memory", "600m"), ("spark.driver.extraClassPath", "/none.jar")):
        settings = SparkSettings(conf={name: value})
        assert kept_start.find(conf_of(settings, "kstate restore")) is None
        assert by_spark_submit(conf_of(settings, "x")).words[0].endswith("spark-submit")
    words, maps = _command_and_maps(SparkSettings(conf={"spark.driver.memory": "600m"}))
    assert "-Xmx600m" in words and str(_archive(cache)) not in maps


@pytest.mark.in_full("tests/restore/test_warm_up.py::test_where_it_cannot_be")
def test_a_user_without_a_home(tmp_path: Path) -> None:
    """With HOME it is made there; root makes it for all users where the hint says."""
    (tmp_path / "home").mkdir()
    (tmp_path / "cache").mkdir()
    refusal = {**support.environment(), "HOME": "nowhere", "XDG_CACHE_HOME": ""}
    process = subprocess.run(COMMAND, env=refusal, capture_output=True, text=True, check=False)
    assert (
        process.returncode == 4
        and ("set HOME. To create the archive for all users, run this as root with --for-all") in process.stderr
    ), process.stderr
    process = subprocess.run(
        COMMAND, env={**refusal, "HOME": str(tmp_path / "home")}, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert [*(tmp_path / "home" / ".cache" / "kstate" / "spark").iterdir()]
    if os.geteuid() or not shutil.which("unshare"):
        return
    # /var/cache of its own: nothing of this host is written.
    script = f'mount --bind {tmp_path / "cache"} /var/cache && exec "$@"'
    process = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *COMMAND, "--for-all"],
        env=refusal, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert [*(tmp_path / "cache" / "kstate" / "spark").iterdir()]
