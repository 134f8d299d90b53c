"""Dumps changelog topics to Parquet with Spark's Kafka source, with the manifest that ``kstate restore`` asks for.

Needs kstate, and Spark's Kafka connector in the version of Spark itself:

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 examples/dump_changelogs.py \\
        --bootstrap-server broker:9092 --application my-app --also users --out s3a://backups/my-app/2024-06-01

Everything goes through the connector's own Kafka client, so one file of properties (--config: security.protocol and
so on) is enough for the offsets and for the records, and no other package is needed.

It may run beside the application: what is committed when it starts is dumped, and a directory that is ahead of the dump
is later left alone. A table that is restored from a source topic (--also) is good only up to what the application has
read, so these offsets are asked of its group.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstate_cli.dump_reader.location import is_hidden, is_parquet_name, list_files, open_location
from kstate_cli.dump_reader.manifest import NAME, Manifest, ManifestFile, ManifestPartition, Reading, render
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.reader import digest_at
from kstate_cli.formats.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# kstate reads a dump in slices made of row groups: smaller ones can be spread better, and need less memory.
ROW_GROUP_BYTES = 32 * 1024 * 1024
ISOLATION = "read_committed"
READ_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Log:
    """A partition at the broker: its first offset, and where what is committed ends."""

    start: int
    end: int
    topic_id: str | None = None
    leader_epoch: int | None = None
    cleanup_policy: str | None = None
    delete_retention_ms: int | None = None


@dataclass(frozen=True)
class Times:
    """When the log's ends were asked for, and when the last record was read: ms since 1970."""

    started_ms: int
    ended_ms: int


class Broker:
    """Kafka's admin client, in the JVM that Spark runs in anyway."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        client = self._jvm.java.util.Properties()
        for name, value in properties.items():
            client.setProperty(name, value)
        self._admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(client)

    def changelogs(self, application: str) -> list[str]:
        """The topics that Streams made for the stores of an application."""
        return sorted(
            name
            for name in self._admin.listTopics().names().get()
            if name.startswith(f"{application}-") and name.endswith("-changelog")
        )

    def logs(self, topics: Iterable[str]) -> dict[TopicPartition, Log]:
        """Where the partitions of these topics begin and end now.

        The end is the one that a read_committed consumer sees: it stops before a transaction that is still open.
        """
        names = self._jvm.java.util.ArrayList()
        for topic in topics:
            names.add(topic)
        ids = {}
        for topic, description in self._admin.describeTopics(names).allTopicNames().get().items():
            for partition in description.partitions():
                ids[TopicPartition(topic, partition.partition())] = description.topicId().toString()
        # The beginning after the end: deleted meanwhile, a record fails the job; counted as there, it would not.
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        ends = self._offsets(ids, spec.latest())
        starts = self._offsets(ids, spec.earliest())
        settings = {topic: self._settings(topic) for topic in {key.topic for key in ids}}
        logs = {}
        for key in sorted(ids):
            end = ends[key].offset()
            epoch = ends[key].leaderEpoch()
            logs[key] = Log(
                min(starts[key].offset(), end),
                end,
                ids[key],
                int(epoch.get()) if epoch.isPresent() else None,
                settings[key.topic].get("cleanup.policy").value(),
                int(settings[key.topic].get("delete.retention.ms").value()),
            )
        return logs

    def committed(self, group: str, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that a group has committed, of these partitions: the next one that it reads."""
        found = self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        offsets = {}
        for key in keys:
            told = found.get(self._partition(key))
            if told is not None:
                offsets[key] = int(told.offset())
        return offsets

    def close(self) -> None:
        """Ends the client's threads."""
        self._admin.close()

    def _offsets(self, keys: Iterable[TopicPartition], spec: Any) -> dict[TopicPartition, Any]:
        kafka, asked = self._jvm.org.apache.kafka, self._jvm.java.util.HashMap()
        partitions = {key: self._partition(key) for key in keys}
        for partition in partitions.values():
            asked.put(partition, spec)
        options = kafka.clients.admin.ListOffsetsOptions(kafka.common.IsolationLevel.READ_COMMITTED)
        told = self._admin.listOffsets(asked, options)
        return {key: told.partitionResult(partition).get() for key, partition in partitions.items()}

    def _settings(self, topic: str) -> Any:
        kafka, asked = self._jvm.org.apache.kafka, self._jvm.java.util.ArrayList()
        resource = kafka.common.config.ConfigResource
        # 2 is a topic: ConfigResource.Type.TOPIC.
        asked.add(resource(resource.Type.forId(2), topic))
        (found,) = self._admin.describeConfigs(asked).all().get().values()
        return found

    def _partition(self, key: TopicPartition) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(key.topic, key.partition)


def write_records(
    spark: SparkSession, properties: Mapping[str, str], logs: Mapping[TopicPartition, Log], out: str, parts: int | None
) -> None:
    """The records as Parquet. A Spark task reads one range of one partition in order, so that nothing need be sorted.

    The bounds are numbers and not "latest", which Spark would look up once more: the manifest must say what was read.
    """
    read = spark.read.format("kafka")
    for name, value in properties.items():
        read = read.option(f"kafka.{name}", value)
    read = (
        read.option("assign", _by_topic((key, None) for key in logs))
        .option("startingOffsets", _by_topic((key, log.start) for key, log in logs.items()))
        .option("endingOffsets", _by_topic((key, log.end) for key, log in logs.items()))
        # Streams with exactly-once leaves records of aborted transactions in its changelogs.
        .option("kafka.isolation.level", ISOLATION)
        # Positions and the headers of 4.3's stores are there.
        .option("includeHeaders", "true")
        # A range that the broker has deleted meanwhile must fail, not look like compaction.
        .option("failOnDataLoss", "true")
    )
    if parts is not None:
        read = read.option("minPartitions", str(parts))
    read.load().write.option("parquet.block.size", ROW_GROUP_BYTES).mode("errorifexists").parquet(out)


def write_manifest(
    out: str,
    logs: Mapping[TopicPartition, Log],
    committed: Mapping[TopicPartition, int] | None = None,
    times: Times | None = None,
) -> Dump:
    """Writes ``_manifest.json`` from the log's bounds and the Parquet files that are there. Returns the dump.

    With ``times`` it says when it was read, so that kstate knows whether deletes may be forgotten between a store and
    the dump, and what tells the log from another one of the same name.

    Last of all: a dump that was broken off has none, and is refused. ValueError for records outside of the bounds.
    """
    found = read_dump(out, complete=True, committed_only=True).partitions
    partitions = []
    for key in sorted(logs.keys() | found.keys()):
        log, rows = logs.get(key), found.get(key)
        if log is None:
            raise ValueError(f"{key} is in the files, but was not asked for")
        first, last = (rows.first, rows.last) if rows else (None, None)
        if first is not None and last is not None and not log.start <= first <= last < log.end:
            raise ValueError(f"{key}: the files have {first} to {last}, the log {log.start} to {log.end}")
        partitions.append(
            ManifestPartition(
                key.topic,
                key.partition,
                log_start=log.start,
                log_end=log.end,
                first=first,
                last=last,
                rows=rows.rows if rows else 0,
                topic_id=log.topic_id,
                start=log.start,
                reading=None if times is None else _reading(out, log, rows, times),
            )
        )
    manifest = Manifest(ISOLATION, tuple(partitions), tuple(_files(out)), committed or {})
    filesystem, root = open_location(out)
    with filesystem.open_output_stream(f"{root.rstrip('/')}/{NAME}") as stream:
        stream.write(render(manifest))
    return read_dump(out, complete=False, committed_only=False)


def _reading(out: str, log: Log, rows: PartitionDump | None, times: Times) -> Reading:
    last = None if rows is None or rows.last is None else digest_at(open_location(out)[0], rows, rows.last)
    return Reading(
        times.started_ms, times.ended_ms, log.cleanup_policy, log.delete_retention_ms, log.leader_epoch, last
    )


def _files(out: str) -> Iterable[ManifestFile]:
    filesystem, root = open_location(out)
    for file in list_files(filesystem, root, out).files:
        if is_hidden(file.relative) or not is_parquet_name(file.relative):
            continue
        digest = hashlib.sha256()
        with filesystem.open_input_stream(file.path) as stream:
            while chunk := stream.read(READ_AT_ONCE):
                digest.update(chunk)
        yield ManifestFile(file.relative, file.size, digest.hexdigest())


def _by_topic(offsets: Iterable[tuple[TopicPartition, int | None]]) -> str:
    """As Spark wants it: {"topic": {"0": 42}}, or {"topic": [0]} where there are no offsets."""
    found: dict[str, dict[str, int | None]] = {}
    for key, offset in offsets:
        found.setdefault(key.topic, {})[str(key.partition)] = offset
    if any(None in of_topic.values() for of_topic in found.values()):
        return json.dumps({topic: sorted(map(int, of_topic)) for topic, of_topic in found.items()})
    return json.dumps(found)


def _properties(path: Path | None) -> dict[str, str]:
    """name=value lines, as Kafka's own tools take them."""
    lines = path.read_text(encoding="utf-8").splitlines() if path else []
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _now_ms() -> int:
    return int(time.time() * 1000)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT")
    parser.add_argument("--config", type=Path, metavar="FILE", help="properties of the Kafka client, as its tools take")
    parser.add_argument("--application", required=True, metavar="ID", help="application.id: its changelogs are dumped")
    parser.add_argument(
        "--also", action="append", default=[], metavar="TOPIC", help="a source topic that restores a store; repeatable"
    )
    parser.add_argument("--out", required=True, metavar="DUMP", help="a folder or URI that is not there yet")
    parser.add_argument("--min-partitions", type=int, metavar="N", help="at least so many Spark tasks")
    args = parser.parse_args()

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("dump changelogs").getOrCreate()
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    properties = {**_properties(args.config), "bootstrap.servers": args.bootstrap_server}
    try:
        broker = Broker(spark, properties)
        started = _now_ms()
        try:
            logs = broker.logs([*broker.changelogs(args.application), *args.also])
            # Asked for before the records are read, and so never beyond them.
            committed = broker.committed(args.application, [key for key in logs if key.topic in args.also])
        finally:
            broker.close()
        if not logs:
            parser.error(f"no topic of {args.application} ends in -changelog")
        write_records(spark, properties, logs, args.out, args.min_partitions)
        dump = write_manifest(args.out, logs, committed, Times(started, _now_ms()))
    finally:
        spark.stop()
    rows = sum(partition.rows for partition in dump.partitions.values())
    sys.stderr.write(f"{rows:,} records of {len(dump.partitions)} partitions: {args.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
