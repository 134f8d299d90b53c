"""A kept start is taken where all that decides is what it was, and it is whole; else Spark starts as always."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.spark import kept_start
from kstate_cli.spark.context import SparkSettings, conf_of
from kstate_cli.spark.kept_start import MAIN_CLASS, NotKept, key_of, of_user, start_inputs

KEY = "0" * 32


@pytest.fixture
def start_folder(tmp_path: Path) -> Path:
    """A folder with a note and an archive that belong together; the bytes are of no JVM."""
    folder = Path(os.path.realpath(tmp_path)) / "kept"
    folder.mkdir(0o700)
    folder.chmod(0o700)
    (folder / "some.jsa").write_bytes(b"classes" * 1000)
    size, crc = kept_start.checksum(folder / "some.jsa")
    outputs = {
        "format": 1,
        "archive": "some.jsa",
        "bytes": size,
        "crc32": crc,
        "command": ["/java", "-cp", "a b", MAIN_CLASS],
        "environment": {"SPARK_HOME": "/spark"},
    }
    (folder / f"{KEY}.json").write_text(json.dumps(outputs))
    for file in folder.iterdir():
        file.chmod(0o600)
    return folder


def test_complete_note_is_used(start_folder: Path) -> None:
    start = kept_start.read(start_folder, KEY)
    assert start is not None
    argv = start.argv({"spark.app.name": "x y"})
    assert argv[:3] == ["/java", "-cp", "a b"]
    assert argv[argv.index(MAIN_CLASS) :] == [MAIN_CLASS, "--conf", "spark.app.name=x y", "pyspark-shell"]
    assert f"-XX:SharedArchiveFile={start_folder / 'some.jsa'}" in argv and "-Xshare:auto" in argv
    assert start.environment == {"SPARK_HOME": "/spark"}
    assert kept_start.read(start_folder, "1" * 32) is None
    link = start_folder.parent / "link"
    link.symlink_to("kept")
    through = kept_start.read(link, KEY)
    assert through is not None and through.archive == start.archive, "what was looked at is what is used"


def _outputs(folder: Path, **other: Any) -> None:
    note = folder / f"{KEY}.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), **other}))


def _instead(path: Path, make: Callable[[Path], object]) -> None:
    path.rename(path.with_name("x"))
    make(path)


def _flip(folder: Path) -> None:
    data = bytearray((folder / "some.jsa").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "some.jsa").write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no archive": lambda folder: (folder / "some.jsa").unlink(),
    "no note": lambda folder: (folder / f"{KEY}.json").unlink(),
    "not a folder": lambda folder: folder.rename(folder.with_name("elsewhere")),
    "a bit of the archive": _flip,
    "a short archive": lambda folder: os.truncate(folder / "some.jsa", 100),
    "an empty archive": lambda folder: os.truncate(folder / "some.jsa", 0),
    "a note cut short": lambda folder: os.truncate(folder / f"{KEY}.json", 50),
    "an empty note": lambda folder: os.truncate(folder / f"{KEY}.json", 0),
    "bytes": lambda folder: (folder / f"{KEY}.json").write_bytes(b"\xff\x00" * 99),
    "a list": lambda folder: (folder / f"{KEY}.json").write_text("[]"),
    "a huge note": lambda folder: (folder / f"{KEY}.json").write_text(" " * (2 << 20)),
    "another format": lambda folder: _outputs(folder, format=2),
    "an archive elsewhere": lambda folder: _outputs(folder, archive="../kept/some.jsa"),
    "no name": lambda folder: _outputs(folder, archive=None),
    "a command that is none": lambda folder: _outputs(folder, command="java"),
    "an empty command": lambda folder: _outputs(folder, command=[]),
    "another class": lambda folder: _outputs(folder, command=["/java", "Main"]),
    "numbers": lambda folder: _outputs(folder, command=[1, MAIN_CLASS]),
    "no variables": lambda folder: _outputs(folder, environment=None),
    "variables that are none": lambda folder: _outputs(folder, environment={"A": 1}),
    "others may write the note": lambda folder: (folder / f"{KEY}.json").chmod(0o606),
    "others may write the archive": lambda folder: (folder / "some.jsa").chmod(0o660),
    "others may write the folder": lambda folder: folder.chmod(0o777),
    "others may write the folder above": lambda folder: folder.parent.chmod(0o777),
    "a link for the archive": lambda folder: _instead(folder / "some.jsa", lambda path: path.symlink_to("x")),
    "a FIFO for the note": lambda folder: _instead(folder / f"{KEY}.json", os.mkfifo),
    "a FIFO for the archive": lambda folder: _instead(folder / "some.jsa", os.mkfifo),
}
if os.geteuid() == 0:
    DAMAGES |= {
        "the note of somebody else": lambda folder: os.chown(folder / f"{KEY}.json", 4711, -1),
        "the archive of somebody else": lambda folder: os.chown(folder / "some.jsa", 4711, -1),
        "the folder of somebody else": lambda folder: os.chown(folder, 4711, -1),
    }


@pytest.mark.parametrize("damage", DAMAGES)
def test_anything_else_is_as_if_it_were_not_there(start_folder: Path, damage: str) -> None:
    DAMAGES[damage](start_folder)
    assert kept_start.read(start_folder, KEY) is None


def _key(**settings: str) -> str:
    return key_of(start_inputs(conf_of(SparkSettings(conf=settings), "kstate restore")))


def test_only_settings_of_the_jvm_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = _key()
    assert usual == key_of(start_inputs(conf_of(SparkSettings(master="spark://far:7077"), "kstate dump")))
    assert usual == _key(**{"spark.executor.memory": "2g", "spark.speculation": "true", "spark.hadoop.fs.x": "y"})
    for other in (
        {"spark.driver.memory": "2g"},
        {"spark.driver.extraClassPath": "/x.jar"},
        {"spark.driver.extraJavaOptions": "-Xint"},
        {"spark.jars": "/x.jar"},
        {"spark.remote": "sc://x"},
        {"spark.submit.deployMode": "cluster"},
    ):
        assert _key(**other) != usual, other
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
                 "JDK_JAVA_OPTIONS", "CLASSPATH", "LD_LIBRARY_PATH", "SPARK_PREPEND_CLASSES"):  # fmt: skip
        with monkeypatch.context() as changed:
            changed.setenv(name, "/x")
            assert _key() != usual, name
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "TMPDIR", "HOME"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "/x")
            assert _key() == usual, name


def test_settings_of_sparks_own_leave_it_to_the_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    _key()
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 3g\n")
    with pytest.raises(NotKept, match="custom settings in"):
        _key()
    assert kept_start.find(conf_of(SparkSettings(), "kstate restore")) is None


def test_arguments_for_the_launcher_leave_it_to_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages a:b:1 pyspark-shell")
    with pytest.raises(NotKept, match="PYSPARK_SUBMIT_ARGS"):
        _key()


def _java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    for file in (java, folder / "lib" / "server" / "libjvm.so", folder / "lib" / "modules"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(version)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


def test_another_java_has_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = {_key()}
    for version in ("17.0.1", "21.0.2"):
        _java(tmp_path / version, version)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / version))
        keys.add(_key())
    assert len(keys) == 3
    (tmp_path / "21.0.2" / "lib" / "server" / "libjvm.so").write_text("patched in its place")
    assert _key() not in keys
    _java(tmp_path / "11", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "11"))
    with pytest.raises(NotKept, match="is older"):
        _key()
    shim = tmp_path / "shim" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text("#!/bin/sh\n")
    shim.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "shim"))
    with pytest.raises(NotKept, match="Set JAVA_HOME to one"):
        _key()


def test_another_spark_has_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usual = _key()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(NotKept, match="is not an installation of Spark"):
        _key()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "a.jar").write_text("1")
    first = _key()
    (tmp_path / "jars" / "a.jar").write_text("12")
    assert len({usual, first, _key()}) == 3


def test_where_the_files_of_a_user_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    assert of_user() == Path("/some/cache/kstate/spark")
    monkeypatch.setenv("HOME", "/home/somebody")
    for nothing in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", nothing)
        assert of_user() == Path("/home/somebody/.cache/kstate/spark")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    folder = of_user()
    assert folder is None or folder.is_absolute(), "of the table of users"
    monkeypatch.setenv("HOME", "relative")
    assert of_user() is None
    assert kept_start.find(conf_of(SparkSettings(), "kstate restore")) is None
