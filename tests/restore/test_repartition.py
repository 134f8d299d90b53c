"""Dumps that are shuffled beyond what slices can cut are put in order by Spark; Spark's own files are read."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.dump_reader import slices as module
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.model import Dump
from kstate_cli.dump_reader.slices import repartition, slices
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from tests.dumps.crafted import Crafted
from tests.dumps.encodings import BINARY, EXTRA, HEADERS, TIMES, ZONES, Writer
from tests.dumps.support import OTHER, A, B, content, expected_content, open_dump, rows, several, write
from tests.dumps.test_encodings import read, write_files

pytestmark = pytest.mark.rotating(6)

WITH_HEADERS = ("key", "value", "timestamp", "offset", "headers")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    patch = pytest.MonkeyPatch()
    patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster("local[2,4]").setAppName("kstate tests")
    for name, value in {
        "spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    }.items():  # fmt: skip
        conf.set(name, value)
    context = SparkContext.getOrCreate(conf)
    yield SparkSession(context)
    context.stop()
    patch.undo()


@pytest.mark.rotating(4, "long restorations")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "layout", [{}, {"hive": True}, {"together": True, "rows_per_group": 40}, {"int96": True}, {"headers": False}]
)
def test_shuffled(spark: Any, layout: dict[str, Any], tmp_path: Path) -> None:
    table = several()
    dump = open_dump(
        write(tmp_path / "a b [1]", table, **{"shuffle": 7, "rows_per_file": 30, "duplicates": 40, **layout})
    )
    assert slices(dump.partitions[TopicPartition(A, 0)], after=None, until=None, max_bytes=2_000)[1]
    keys = [TopicPartition(A, 0), TopicPartition(A, 1), TopicPartition(B, 0)]
    ordered = repartition(spark.sparkContext, dump, keys, str(tmp_path / "x y" / "sorted"))
    assert list(ordered.partitions) == keys
    columns = WITH_HEADERS if layout.get("headers", True) else WITH_HEADERS[:-1]
    target = expected_content(table, columns)
    assert content(ordered, columns=columns) == {key: target[key] for key in keys}
    assert content(ordered, 1, columns) == {key: target[key] for key in keys}
    for key in keys:
        before, after = dump.partitions[key], ordered.partitions[key]
        assert (after.log_start, after.log_end) == (before.log_start, before.log_end)
        assert after.rows == len(target[key])


def test_plan_has_a_single_shuffle(spark: Any, tmp_path: Path) -> None:
    dump = open_dump(write(tmp_path / "a", several(), shuffle=7, rows_per_file=30))
    plan = module._ordered(spark, dump, list(dump.partitions.values()))._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange") == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", OTHER)
def test_rows_that_differ(spark: Any, name: str, tmp_path: Path) -> None:
    write(tmp_path / "a", rows(), manifest=False, shuffle=1)
    other = rows(count=40).slice(33, 1)
    other = other.set_column(other.schema.get_field_index(name), name, OTHER[name])
    pq.write_table(other, tmp_path / "a" / "b.parquet")
    key = TopicPartition(A, 0)
    with pytest.raises(DumpError, match=f"two rows have offset 33, but differ in their {name}"):
        content(repartition(spark.sparkContext, open_dump(tmp_path / "a"), [key], str(tmp_path / "sorted")))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "naive"),
    [("timestamp[ns, tz=UTC]", False), ("timestamp[us]", True), ("timestamp[ms, tz=UTC]", False), ("INT96", False)],
)
def test_timestamps(spark: Any, kind: str, naive: bool, tmp_path: Path) -> None:
    values = [-1, -999_001, 1_700_000_000_123_456, 0, None, -5_000_000_000_000_000]
    column = pa.array(values, pa.int64()).view(pa.timestamp("us", tz="UTC"))
    if kind != "INT96":
        unit = kind.partition("[")[2][:2]
        column = column.cast(pa.timestamp(unit, tz=None if naive else "UTC"), safe=False)
    if kind == "timestamp[ns, tz=UTC]":
        nanos = [-1, -1_000_001, 1_700_000_000_123_999_999, 0, None, 1_699_999_999_999_999_999]
        column = pa.array(nanos, pa.int64()).view(column.type)
    table = rows(count=len(values))
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", column)
    (tmp_path / "a").mkdir()
    pq.write_table(table, tmp_path / "a" / "x.parquet", use_deprecated_int96_timestamps=kind == "INT96")
    before, key = open_dump(tmp_path / "a"), TopicPartition(A, 0)
    ordered = repartition(spark.sparkContext, before, [key], str(tmp_path / "sorted"))
    assert content(ordered) == content(before)


def test_topic_with_an_underscore_in_front(spark: Any, tmp_path: Path) -> None:
    table = rows("_x-changelog")
    dump = open_dump(write(tmp_path / "a", table, shuffle=1, rows_per_file=20))
    assert content(
        repartition(spark.sparkContext, dump, list(dump.partitions), str(tmp_path / "sorted"))
    ) == expected_content(table)


def test_failures(spark: Any, tmp_path: Path) -> None:
    key = TopicPartition(A, 0)
    dump = open_dump(write(tmp_path / "a", rows(), shuffle=1))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").touch()
    with pytest.raises(RunFailed, match="taken"):
        repartition(spark.sparkContext, dump, [key], str(tmp_path / "taken"))
    path = Path(dump.partitions[key].pieces[0].path)
    path.unlink()
    with pytest.raises(RunFailed, match=path.name):
        repartition(spark.sparkContext, dump, [key], str(tmp_path / "sorted"))


def damaged(folder: Path, damage: Callable[[bytearray], None], **options: Any) -> Dump:
    """A dump of one file, whose bytes change after it was opened."""
    folder.mkdir()
    pq.write_table(rows(), folder / "x.parquet", compression="none", use_dictionary=False, **options)
    dump, data = open_dump(folder), bytearray((folder / "x.parquet").read_bytes())
    damage(data)
    (folder / "x.parquet").write_bytes(data)
    return dump


def change_a_key(data: bytearray) -> None:
    at = data.index(b"k16")
    data[at : at + 3] = b"k61"


@pytest.mark.parametrize("lenient", [False, True])
def test_damaged_page(spark: Any, tmp_path: Path, lenient: bool) -> None:
    """Spark neither compares checksums by itself, nor reads files that it may ignore."""
    dump = damaged(tmp_path / "a", change_a_key, write_page_checksum=True)
    if lenient:
        spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(RunFailed, match=r"/a/x\.parquet.* CRC checksum verification failed"):
            repartition(spark.sparkContext, dump, [TopicPartition(A, 0)], str(tmp_path / "sorted"))
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


def test_damaged_file_is_not_ignored(spark: Any, tmp_path: Path) -> None:
    """Other files have the first and the last offset, so that nothing else shows the difference."""
    write(tmp_path / "a", rows(), manifest=False, rows_per_file=40)
    dump, key = open_dump(tmp_path / "a"), TopicPartition(A, 0)
    _, path, _ = sorted(piece.path for piece in dump.partitions[key].pieces)
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :])
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(RunFailed, match=Path(path).name):
            repartition(spark.sparkContext, dump, [key], str(tmp_path / "sorted"))
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


@pytest.mark.parametrize("index", ["page index", "Bloom filter"])
def test_rows_are_not_skipped_by_an_index(spark: Any, tmp_path: Path, index: str) -> None:
    """kstate does not trust it, so Spark must not."""
    path = tmp_path / "a" / "x.parquet"
    path.parent.mkdir()
    options: dict[str, Any] = {"use_dictionary": False, "write_batch_size": 10, "data_page_size": 100}
    if index == "page index":
        pq.write_table(rows(), path, write_page_index=True, **options)
        start, end = bounds_of_column_index(path.read_bytes())
    else:
        pq.write_table(rows(), path, bloom_filter_options={"topic": {"ndv": 10, "fpp": 0.01}}, **options)
        start, end = bounds_of_bloom_filter(path.read_bytes())
    data = bytearray(path.read_bytes())
    if index == "page index":
        data[start:end] = data[start:end].replace(A.encode(), A.replace("a", "z").encode())
    else:
        # Without a bit, no value is in the filter.
        data[end - 32 : end] = bytes(32)
    assert data != path.read_bytes()
    path.write_bytes(data)
    dump = open_dump(path.parent)
    ordered = repartition(spark.sparkContext, dump, list(dump.partitions), str(tmp_path / "sorted"))
    assert content(ordered) == expected_content(rows())


def bounds_of_column_index(data: bytes) -> tuple[int, int]:
    """Where the page index of the topic is in a file."""
    number = rows().column_names.index("topic")
    chunk = Crafted(data).chunks()[number]
    return chunk[6][1], chunk[6][1] + chunk[7][1]


def bounds_of_bloom_filter(data: bytes) -> tuple[int, int]:
    """Where the Bloom filter of the topic is in a file."""
    chunk = Crafted(data).chunk("topic")
    return chunk[14][1], chunk[14][1] + chunk[15][1]


def test_any_mix_of_writers(spark: Any, tmp_path: Path) -> None:
    """Files that differ in the types of their columns, Spark's own among them, are put in order together."""
    kinds = [*EXTRA]
    writers = [
        Writer(time=time, zone=zone, partition=("int32", "int64")[number % 2], headers=[*HEADERS][number % 3],
               no_headers=("empty", "null")[number % 2], order=number, extra=(kinds[number % len(kinds)],),
               timestamp_type=number % 3 > 0, hive=number % 4 == 0, key=[*BINARY][number % 4])
        for number, (time, zone) in enumerate(itertools.product(TIMES, ZONES))
    ]  # fmt: skip
    plain = read(write_files(tmp_path / "plain", [Writer()], 1000, 0))
    mixed = write_files(tmp_path / "mixed", writers, 9, 3)
    for number, kind in enumerate(("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS")):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        try:
            frame = spark.read.parquet(str(tmp_path / "plain")).where(f"offset % 3 = {number}")
            frame.write.parquet(str(mixed / kind))
        finally:
            spark.conf.unset("spark.sql.parquet.outputTimestampType")
    assert read(mixed) == plain
    ordered = repartition(spark.sparkContext, open_dump(mixed), list(plain), str(tmp_path / "sorted"))
    assert all(ordered.partitions[key].rows == len(rows) for key, rows in plain.items()), "each record once"
    assert read(tmp_path / "sorted") == plain


def test_headers_that_some_files_lack(spark: Any, tmp_path: Path) -> None:
    plain = read(write_files(tmp_path / "plain", [Writer()], 1000, 0), columns=("key", "value", "timestamp", "offset"))
    mixed = write_files(tmp_path / "mixed", [Writer(), Writer(headers=None)], 9, 3)
    Writer().write(rows("other", 0, 30), mixed, "other.parquet")
    dump, other = open_dump(mixed), TopicPartition("other", 0)
    ordered = repartition(spark.sparkContext, dump, list(dump.partitions), str(tmp_path / "sorted"))
    assert ordered.headers_of("other") and not ordered.headers_of(A)
    records = content(ordered, columns=("key", "value", "timestamp", "offset"))
    assert {key: rows for key, rows in records.items() if key != other} == plain
    assert content(ordered, columns=WITH_HEADERS)[other] == expected_content(rows("other", 0, 30), WITH_HEADERS)[other]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("folders", [[], ["topic", "partition"], ["topic"]])
def test_reads_dumps_written_by_spark(spark: Any, kind: str, folders: list[str], tmp_path: Path) -> None:
    """As a user's dump job does: Spark's Kafka source, with headers, to Parquet."""
    table = several()
    pq.write_table(table, tmp_path / "source.parquet")
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        frame = spark.read.parquet(str(tmp_path / "source.parquet")).repartition(3)
        frame.write.partitionBy(*folders).parquet(str(tmp_path / "dump"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    dump = open_dump(tmp_path / "dump")
    assert dump.warnings == ()
    assert content(dump, columns=WITH_HEADERS) == expected_content(table, WITH_HEADERS)


def test_hint_about_a_file_sink_copies_the_committed_files(spark: Any, tmp_path: Path) -> None:
    """Spark's file sink names committed files in its log; a batch that failed leaves others beside them."""
    table = several()
    (tmp_path / "source").mkdir()
    pq.write_table(table, tmp_path / "source" / "a.parquet")
    sink = tmp_path / "sink"
    stream = spark.readStream.schema(spark.read.parquet(str(tmp_path / "source")).schema).parquet(
        str(tmp_path / "source")
    )
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .partitionBy("topic", "partition")
        .trigger(availableNow=True)
        .start(str(sink))
    )
    query.awaitTermination()
    (min(sink.glob("topic=*/partition=0")) / "part-00000-failed.c000.snappy.parquet").write_bytes(b"PAR1 half a file")
    with pytest.raises(DumpError, match=r"is a table \(Spark file sink\)") as caught:
        open_dump(sink)
    line = caught.value.hint_details[0].removeprefix("Spark: ").replace("COPY", str(tmp_path / "copy"))
    eval(line, {"spark": spark})
    assert content(open_dump(tmp_path / "copy"), columns=WITH_HEADERS) == expected_content(table, WITH_HEADERS)
