"""The release in a jar, a fat jar, a shaded one, a folder; and jars that somebody made to do harm."""

from __future__ import annotations

import io
import os
import random
import struct
import warnings
import zipfile
from pathlib import Path

import pytest

from kstate_cli import jars
from kstate_cli.errors import KstateError, Refused, UsageError
from kstate_cli.jars import PROPERTIES, release_in
from kstate_cli.releases import CONFLUENT, RELEASES, release, release_of_build
from tests.jars import archive, fat_jar, jar, properties, write_file


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("3.2.0", "3.2"),
        ("4.3.1", "4.3"),
        ("4.3.2-SNAPSHOT", "4.3"),
        ("4.3.0-SNAPSHOT", None),
        ("3.7.0.redhat-00007", "3.7"),
        ("3.4.1.7.3.1.0-197", "3.4"),
        ("7.9.1-ccs", "3.9"),
        ("7.6.0-ce", "3.6"),
        ("8.2.0-17-ccs", "4.2"),
        ("8.3.0-ccs", "4.3"),
        ("7.9.1", None),
        ("9.9.0-ccs", None),
        ("5.5.1-ccs", None),
        ("unknown", None),
        ("", None),
        ("4.2\x1b[31m", None),
    ],
)
def test_versions(tmp_path: Path, version: str, name: str | None) -> None:
    path = write_file(tmp_path / "app.jar", jar(version))
    if name is None:
        with pytest.raises(Refused) as refusal:
            release_in(path)
        assert refusal.value.hint
    else:
        release = release_in(path)
        assert (release.release.name, release.version, release.where) == (name, version, str(path))


def test_every_release_of_confluent_is_taken_by_its_name() -> None:
    names = {release.name for release in RELEASES}
    for confluent, apache in CONFLUENT.items():
        for text in (f"cp-{confluent}", f"cp-{confluent}.3", release_of_build(f"{confluent}.3-ccs")):
            if apache in names:
                assert release(text).name == apache
            else:
                with pytest.raises(UsageError) as unknown:
                    release(text)
                assert f"Apache Kafka {apache}" in unknown.value.message or apache.startswith("3.")
    for text in ("cp-", "cp-4.3", "cp-8", "cp-8.2.1.1", "cp-cp-8.2", "CP-8.2", "cp-८.2"):
        with pytest.raises(UsageError, match="kstate does not know release"):
            release(text)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("lib/kafka-streams-4.2.1.jar", jar("4.2.1")),
        ("shaded.jar", jar("4.2.1", more={"org/acme/App.class": b"x" * 1000})),
        ("boot.jar", fat_jar("4.2.1")),
        ("app.war", archive({"WEB-INF/lib/kafka-streams-4.2.1.jar": jar("4.2.1")})),
        ("lib/main/org.apache.kafka.kafka-streams-4.2.1.jar", jar("4.2.1")),
        ("crlf.jar", archive({PROPERTIES: b"#made\r\n version = 3.9.1\r\nversion : 4.2.1 \r\n"})),
    ],
)
def test_where_it_may_lie(tmp_path: Path, name: str, data: bytes) -> None:
    """Named itself, or the folder; what else is there, the scala wrapper, a text, a damaged jar, makes no difference."""
    path = write_file(tmp_path / name, data)
    write_file(tmp_path / "lib" / "kafka-streams-scala_2.13-4.2.1.jar", archive({"a": b"a"}))
    write_file(tmp_path / "lib" / "damaged-1.0.jar", b"PK\x03\x04 and no more")
    write_file(tmp_path / "kafka-streams-3.9.1.txt", b"no jar")
    os.symlink(tmp_path, tmp_path / "loop")
    for arguments in (path, tmp_path):
        release = release_in(arguments)
        assert release.release.name == "4.2"
        assert release.where.startswith(str(path))


def test_several(tmp_path: Path) -> None:
    write_file(tmp_path / "a" / "kafka-streams-4.2.0.jar", jar("4.2.0"))
    write_file(tmp_path / "b" / "kafka-streams-4.2.1.jar", jar("4.2.1"))
    write_file(tmp_path / "c" / "kafka-streams-8.2.0-ccs.jar", jar("8.2.0-ccs"))
    assert release_in(tmp_path).release.name == "4.2"
    write_file(tmp_path / "d" / "boot.jar", fat_jar("4.3.1"))
    with pytest.raises(Refused) as refusal:
        release_in(tmp_path)
    text = str(refusal.value)
    assert "4.2.1: " in text and f"4.3.1: {tmp_path}/d/boot.jar!BOOT-INF/lib/kafka-streams-4.3.1.jar" in text
    assert release_in(tmp_path / "d").release.name == "4.3"
    # Patch releases whose next starts differ are two releases.
    write_file(tmp_path / "e" / "kafka-streams-4.2.1.jar", jar("4.2.1"))
    assert release_in(tmp_path / "e").release.version == "4.2.1"
    write_file(tmp_path / "e" / "kafka-streams-4.2.2.jar", jar("4.2.2"))
    with pytest.raises(Refused, match="several releases"):
        release_in(tmp_path / "e")


def test_two_entries_of_the_same_name_both_count(tmp_path: Path) -> None:
    outputs = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(outputs, "w") as zipped:
        warnings.simplefilter("ignore")
        for version in ("4.2.1", "4.3.1"):
            zipped.writestr(PROPERTIES, properties(version))
    with pytest.raises(Refused, match="several releases"):
        release_in(write_file(tmp_path / "two.jar", outputs.getvalue()))


def test_none(tmp_path: Path) -> None:
    for path, kind in (
        (tmp_path / "missing", UsageError),
        (Path(os.devnull), UsageError),
        (tmp_path, Refused),
        (write_file(tmp_path / "x.jar", archive({"kafka/kafka-version.properties": properties("4.2.1")})), Refused),
        (write_file(tmp_path / "empty.jar", b""), Refused),
        (write_file(tmp_path / "not.jar", b"not a zip at all" * 100), Refused),
        (write_file(tmp_path / "nameless.jar", archive({PROPERTIES: b"commitId=1\n"})), Refused),
        (write_file(tmp_path / "deep.jar", archive({"lib/kafka-streams-4.2.1.jar": b"no jar"})), Refused),
    ):
        with pytest.raises(kind) as raised:
            release_in(path)
        assert raised.value.hint
        assert str(path) in str(raised.value) or str(path) in str(raised.value.where)


def test_a_damaged_jar_of_kafka_streams_is_not_passed_over(tmp_path: Path) -> None:
    write_file(tmp_path / "kafka-streams-4.2.1.jar", jar("4.2.1"))
    write_file(tmp_path / "kafka-streams-4.3.1.jar", jar("4.3.1")[:-30])
    with pytest.raises(Refused, match="not a readable jar"):
        release_in(tmp_path)


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is unpacked or read beyond the limits, whatever sizes the archive says."""
    monkeypatch.setattr(jars, "_MOST_NESTED_BYTES", 1 << 20)
    monkeypatch.setattr(jars, "_MOST_AT_ONCE", 1 << 20)
    zeros = bytes(8 << 20)
    lying = bytearray(archive({PROPERTIES: zeros}))
    for mark, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        struct.pack_into("<I", lying, lying.index(mark) + at, 20)
    text = "".join(random.Random(1).choices("abc", k=60))
    for name, data in {
        "properties": archive({PROPERTIES: zeros}),
        "lying": bytes(lying),
        "nested": archive({"kafka-streams-4.2.1.jar": zeros}),
        "lzma": archive({PROPERTIES: properties("4.2.1")}, zipfile.ZIP_LZMA),
        "many": archive({f"lib/{n}/kafka-streams-4.2.1.jar": jar("4.2.1") for n in range(17)}),
        "directory": archive({f"{text}{n}": b"" for n in range(12_000)}),
    }.items():
        with pytest.raises(Refused) as refusal:
            release_in(write_file(tmp_path / f"{name}.jar", data))
        assert refusal.value.hint, name


def test_a_folder_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_MOST_ENTRIES", 50)
    (tmp_path / "deep" / "/".join("abcdefghijkl")).mkdir(parents=True)
    for n in range(51):
        write_file(tmp_path / "wide" / f"{n}.txt", b"")
    for name in ("deep", "wide"):
        with pytest.raises(Refused):
            release_in(tmp_path / name)


def test_any_changed_byte_gives_a_release_or_an_error(tmp_path: Path) -> None:
    """Never a traceback; an answer only where the version itself is still that of a release."""
    chance = random.Random(16)
    for whole in (jar("4.2.1"), fat_jar("4.2.1")):
        for _ in range(400):
            data = bytearray(whole)
            for _ in range(chance.choice((1, 1, 3, 20))):
                data[chance.randrange(len(data))] = chance.randrange(256)
            path = write_file(
                tmp_path / "x.jar", bytes(data[: chance.choice((len(data), chance.randrange(len(data))))])
            )
            try:
                release = release_in(path)
            except KstateError as error:
                assert error.hint
            else:
                assert release.release in RELEASES
