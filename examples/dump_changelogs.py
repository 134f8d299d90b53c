"""Dump changelog topics to Parquet with Spark's Kafka source, with the manifest that ``kstate restore`` requires.

Needs kstate, and Spark's Kafka connector in the version of Spark itself:

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 examples/dump_changelogs.py \\
        --bootstrap-server broker:9092 --application my-app --also users --out s3a://backups/my-app/2024-06-01

Everything goes through the connector's own Kafka client, so one file of properties (--config: security.protocol and
so on) is enough for the offsets and for the records, and no other package is needed.

It may run while the application is running. It dumps the records that are committed when it starts, and a restoration
later skips a directory that is ahead of the dump. A table that is restored from a source topic (--also) is valid only
up to the records that the application has read, so the script reads these offsets of its group.
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
    """A partition at the broker: its first offset, and the end of its committed records."""

    start: int
    end: int
    topic_id: str | None = None
    leader_epoch: int | None = None
    cleanup_policy: str | None = None
    delete_retention_ms: int | None = None


@dataclass(frozen=True)
class Times:
    """When the ends of the logs were requested, and when the last record was read: ms since 1970."""

    started_ms: int
    ended_ms: int


class Broker:
    """Kafka's admin client, in the JVM of Spark."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        # pyspark has no public way to its JVM. The connector brings the classes of the client.
        self._jvm: Any = spark.sparkContext._jvm
        client = self._jvm.java.util.Properties()
        for name, value in properties.items():
            client.setProperty(name, value)
        self._admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(client)

    def changelogs(self, application: str) -> list[str]:
        """Return the topics that Streams created for the stores of an application."""
        return sorted(
            name
            for name in self._admin.listTopics().names().get()
            if name.startswith(f"{application}-") and name.endswith("-changelog")
        )

    def logs(self, topics: Iterable[str]) -> dict[TopicPartition, Log]:
        """Return the bounds of the partitions of these topics.

        The end is that of a read_committed consumer, which stops before an open transaction.
        """
        # py4j converts no Python list to a collection of Java.
        names = self._jvm.java.util.ArrayList()
        for topic in topics:
            names.add(topic)
        ids = {}
        for topic, description in self._admin.describeTopics(names).allTopicNames().get().items():
            for partition in description.partitions():
                ids[TopicPartition(topic, partition.partition())] = description.topicId().toString()
        # First the ends, then the beginnings: a record that the broker deletes in between is below its beginning then,
        # and nothing counts it as a record of the log.
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        ends = self._offsets(ids, spec.latest())
        starts = self._offsets(ids, spec.earliest())
        settings = {topic: self._settings(topic) for topic in {key.topic for key in ids}}
        logs = {}
        for key in sorted(ids):
            end = ends[key].offset()
            # Java's Optional: empty before KIP-320.
            epoch = None
            if ends[key].leaderEpoch().isPresent():
                epoch = int(ends[key].leaderEpoch().get())
            logs[key] = Log(
                # In the meantime, the log may have lost everything before its new start.
                min(starts[key].offset(), end),
                end,
                ids[key],
                epoch,
                settings[key.topic].get("cleanup.policy").value(),
                int(settings[key.topic].get("delete.retention.ms").value()),
            )
        return logs

    def committed(self, group: str, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group for these partitions: the next one that it reads."""
        committed = self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        offsets = {}
        for key in keys:
            offset = committed.get(self._partition(key))
            # A group that never read a partition has no entry for it.
            if offset is not None:
                offsets[key] = int(offset.offset())
        return offsets

    def close(self) -> None:
        """End the threads of the client."""
        self._admin.close()

    def _offsets(self, keys: Iterable[TopicPartition], spec: Any) -> dict[TopicPartition, Any]:
        kafka, request = self._jvm.org.apache.kafka, self._jvm.java.util.HashMap()
        partitions = {key: self._partition(key) for key in keys}
        for partition in partitions.values():
            request.put(partition, spec)
        # The last stable offset instead of the end of the log: records behind it may still be aborted.
        options = kafka.clients.admin.ListOffsetsOptions(kafka.common.IsolationLevel.READ_COMMITTED)
        offsets = self._admin.listOffsets(request, options)
        return {key: offsets.partitionResult(partition).get() for key, partition in partitions.items()}

    def _settings(self, topic: str) -> Any:
        kafka, request = self._jvm.org.apache.kafka, self._jvm.java.util.ArrayList()
        resource = kafka.common.config.ConfigResource
        # 2 is a topic: ConfigResource.Type.TOPIC.
        request.add(resource(resource.Type.forId(2), topic))
        (settings,) = self._admin.describeConfigs(request).all().get().values()
        return settings

    def _partition(self, key: TopicPartition) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(key.topic, key.partition)


def write_records(
    spark: SparkSession, properties: Mapping[str, str], logs: Mapping[TopicPartition, Log], out: str, parts: int | None
) -> None:
    """Write the records as Parquet. A Spark task reads one range of one partition in order, so nothing is sorted.

    The bounds are numbers and not "latest", which Spark would request again: the manifest must state what was read.
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
        # If the broker has deleted a range in the meantime, the run must fail. The gap would look like compaction.
        .option("failOnDataLoss", "true")
    )
    if parts is not None:
        read = read.option("minPartitions", str(parts))
    # errorifexists: files of an earlier dump in the same directory would count too.
    read.load().write.option("parquet.block.size", ROW_GROUP_BYTES).mode("errorifexists").parquet(out)


def write_manifest(
    out: str,
    logs: Mapping[TopicPartition, Log],
    committed: Mapping[TopicPartition, int] | None = None,
    times: Times | None = None,
) -> Dump:
    """Write ``_manifest.json`` from the bounds of the logs and the Parquet files. Return the dump.

    With ``times`` it states when the dump was read. Then kstate knows whether deletes may be forgotten between a store
    and the dump, and recognizes the log.

    The manifest comes last: an interrupted dump has none, and is refused. ValueError for records outside of the bounds.
    """
    files = read_dump(out, complete=True, committed_only=True).partitions
    partitions = []
    for key in sorted(logs.keys() | files.keys()):
        log, rows = logs.get(key), files.get(key)
        if log is None:
            raise ValueError(f"{key} is in the files, but was not requested")
        first = last = reading = None
        count = 0
        if rows is not None:
            first, last, count = rows.first, rows.last, rows.rows
        if times is not None:
            reading = _reading(out, log, rows, times)
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
                rows=count,
                topic_id=log.topic_id,
                start=log.start,
                reading=reading,
            )
        )
    manifest = Manifest(ISOLATION, tuple(partitions), tuple(_files(out)), committed or {})
    filesystem, root = open_location(out)
    with filesystem.open_output_stream(f"{root.rstrip('/')}/{NAME}") as stream:
        stream.write(render(manifest))
    # Read the dump again with its manifest, so that an error is found now and not during the first restoration.
    return read_dump(out, complete=False, committed_only=False)


def _reading(out: str, log: Log, rows: PartitionDump | None, times: Times) -> Reading:
    last = None
    if rows is not None and rows.last is not None:
        # The digest of the last record: a log that was recreated under the same name has another one there.
        last = digest_at(open_location(out)[0], rows, rows.last)
    return Reading(
        times.started_ms, times.ended_ms, log.cleanup_policy, log.delete_retention_ms, log.leader_epoch, last
    )


def _files(out: str) -> Iterable[ManifestFile]:
    filesystem, root = open_location(out)
    for file in list_files(filesystem, root, out).files:
        # Spark's _SUCCESS and checksum files do not belong to the dump.
        if is_hidden(file.relative) or not is_parquet_name(file.relative):
            continue
        digest = hashlib.sha256()
        with filesystem.open_input_stream(file.path) as stream:
            while chunk := stream.read(READ_AT_ONCE):
                digest.update(chunk)
        yield ManifestFile(file.relative, file.size, digest.hexdigest())


def _by_topic(offsets: Iterable[tuple[TopicPartition, int | None]]) -> str:
    """Return offsets in the JSON of Spark: {"topic": {"0": 42}}, or {"topic": [0]} without offsets."""
    by_topic: dict[str, dict[str, int | None]] = {}
    for key, offset in offsets:
        by_topic.setdefault(key.topic, {})[str(key.partition)] = offset
    if any(None in partitions.values() for partitions in by_topic.values()):
        return json.dumps({topic: sorted(map(int, partitions)) for topic, partitions in by_topic.items()})
    return json.dumps(by_topic)


def _properties(path: Path | None) -> dict[str, str]:
    """Read name=value lines, as Kafka's own tools do."""
    if path is None:
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _now_ms() -> int:
    return int(time.time() * 1000)


def main() -> int:
    """Run the command line."""
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
    # INT96, the default of Spark, has neither statistics nor a zone.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    properties = {**_properties(args.config), "bootstrap.servers": args.bootstrap_server}
    try:
        broker = Broker(spark, properties)
        # The time before the request to the broker: the dump contains every record that the logs had at this time.
        started = _now_ms()
        try:
            logs = broker.logs([*broker.changelogs(args.application), *args.also])
            # Requested before the records are read, so the offsets are never after the last record.
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
