"""
How fast ``kstate dump`` is: beside Spark's own Kafka source that writes Parquet, a bare loop of the same client that drops
everything, and real Streams' own restore of the same changelog, on the same broker, in one run.

    python -m tests.bench.dump [--records 8000000] [--rounds 3] [--folder DIR]

Two partitions; two tasks, processes or threads each; sides in turns, medians of the rounds. The start of Spark is in no figure;
that of two Pythons is in the one of ``--engine local``, and of no other. The processor's seconds are those of a side's own
processes, without the broker's. The connector ``spark-sql-kafka-0-10`` is fetched from Maven Central in the version of PySpark:
with a PySpark whose connector is not there, install an older one for this. Nothing is asserted but that each side has had every
record: figures are read by people.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyspark
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import SparkSession

from kstate_cli.dump_writer.plan import DumpRequest, DumpWatcher
from kstate_cli.dump_writer.rounds import RangesOnSpark, dump_round, range_runner
from kstate_cli.dump_writer.task import RangeJob, read_range
from kstate_cli.formats import topic_partition
from kstate_cli.spark.context import SparkSettings
from kstate_cli.spark.engine import REQUESTED, Engine, EngineChoice
from tests.interop.harness import Batch
from tests.interop.releases import connector_jars
from tests.memory import peak_bytes

from .bulk import bulk
from .cpu import children, cpu_seconds

APP = "bulk-app"
PROCESSES = 2
VALUE_BYTES = 100


def bare(bootstrap: str, topic: str, partition: int) -> int:
    """Reads a partition, and drops it; how many records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bare", "enable.partition.eof": True,
                         "isolation.level": "read_committed", "auto.offset.reset": "earliest",
                         "fetch.queue.backoff.ms": 10})  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    count = 0
    while True:
        for message in consumer.consume(20_000, 0.25):
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return count


def sparks_source(session: Any, bootstrap: str, topic: str, out: str) -> None:
    """What Spark itself would do for such a dump: no digests, no manifest."""
    rows = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    rows.write.option("compression", "zstd").parquet(out)


def jars() -> list[str]:
    """The connector, and of what it needs all that Spark does not bring."""
    names = {path.name for path in (Path(pyspark.__file__).parent / "jars").iterdir()}
    paths = sorted(connector_jars(pyspark.__version__).glob("*.jar"))
    return [str(path) for path in paths if path.name not in names and not path.name.startswith("slf4j-")]


def peak(job: RangeJob) -> int:
    """Reads a range; the most memory that this process ever had, in bytes."""
    read_range(job)
    return peak_bytes()


class Sides:
    """Seconds and processor seconds of each side, round by round."""

    def __init__(self, folder: Path, without: set[int]) -> None:
        self._folder, self._without = folder, without
        self.rounds: dict[str, list[tuple[float, float]]] = {}

    def time(self, side: str, work: Callable[[str], int], expected: int) -> None:
        """``work`` gets a folder for its output, and says how many records it had."""
        out = self._folder / "out"
        os.sync()
        usage, began = cpu_seconds(os.getpid(), self._without), time.monotonic()
        count = work(str(out))
        seconds = time.monotonic() - began
        self.add(side, seconds, cpu_seconds(os.getpid(), self._without) - usage, expected)
        if count < 0:
            count = pyarrow.dataset.dataset(out, format="parquet").count_rows()
        assert count == expected, (side, count, expected)
        shutil.rmtree(out, ignore_errors=True)

    def add(self, side: str, seconds: float, usage: float, records: int) -> None:
        """Add a round to a side, and print it."""
        self.rounds.setdefault(side, []).append((seconds, usage))
        print(f"{side}: {seconds:.1f} s, {records / seconds:,.0f}/s, processor {usage:.1f} s", flush=True)


ON_SPARK, IN_PROCESSES = EngineChoice(Engine.spark, REQUESTED), EngineChoice(Engine.local, REQUESTED)


def measure(folder: Path, records: int, keys: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """All sides in turns; and the memory of one task, which is printed."""
    spawn = multiprocessing.get_context("spawn")
    spark = SparkSettings(f"local[{PROCESSES}]", {"spark.jars": ",".join(jars())})
    with bulk(folder, APP, Batch(records=records, keys=keys, value_bytes=VALUE_BYTES)) as topic:
        sides = Sides(folder, children(os.getpid()))

        def dumped(engine: EngineChoice, runner: Any) -> Callable[[str], int]:
            def work(out: str) -> int:
                request = DumpRequest(topic.bootstrap, {}, out, None, {topic.topic: "here"}, engine, spark, PROCESSES)
                return dump_round(request, DumpWatcher(), runner).records

            return work

        with range_runner(ON_SPARK, spark, PROCESSES) as runner, spawn.Pool(PROCESSES) as pool:
            assert isinstance(runner, RangesOnSpark)
            session = SparkSession(runner.context)

            def loop(_: str) -> int:
                parts = [(topic.bootstrap, topic.topic, number) for number in range(PROCESSES)]
                return sum(pool.starmap(bare, parts, chunksize=1))

            def source(out: str) -> int:
                sparks_source(session, topic.bootstrap, topic.topic, out)
                return -1

            expected = loop("")
            for number in range(rounds):
                sides.time("a bare loop", loop, expected)
                sides.time("kstate dump on Spark", dumped(ON_SPARK, runner), expected)
                sides.time("Spark's Kafka source", source, expected)
                sides.time("kstate dump --engine local", dumped(IN_PROCESSES, None), expected)
                sides.add("real Streams' restore", *topic.restored(PROCESSES), expected)
                print(f"round {number + 1} of {rounds} is done", flush=True)
        for part in (expected // 8, expected // PROCESSES):
            key = topic_partition.TopicPartition(topic.topic, 0)
            job = RangeJob(key, 0, part, str(folder / f"peak-{part}"), 1, "0" * 12, topic.bootstrap, {})
            with spawn.Pool(1) as pool:
                most = pool.apply(peak, (job,)) / 2**20
            print(f"peak of a process that reads {part:,} records: {most:,.0f} MiB", flush=True)
        return sides.rounds


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where everything is made; temporary by default")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kstate-bench-"))
    folder.mkdir(exist_ok=True)
    try:
        results = measure(folder, options.records, options.keys, options.rounds)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    for side, rounds in results.items():
        seconds, usage = (statistics.median(of) for of in zip(*rounds, strict=True))
        print(
            f"{side:28} {seconds:7.1f} s {options.records / seconds / 1e6:6.2f} M records/s, processor {usage:7.1f} s"
        )
    print(json.dumps({"records": options.records, "spark": pyspark.__version__, "sides": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
