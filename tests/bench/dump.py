"""
How fast ``kstate dump`` is beside a bare loop of the same client that drops everything, on the same broker, in one run.

    python -m tests.bench.dump [--records 4000000] [--value-bytes 80] [--rounds 2]

Two partitions, two processes. The start of two Pythons and of their imports is in the figures of the dump, and not in those of the
loop. With the peak of memory of one process that reads.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kstate_cli.capture.engines import CaptureEngine
from kstate_cli.capture.jobs import RangeJob
from kstate_cli.capture.rounds import DumpRequest, DumpWatcher, dump_round
from kstate_cli.capture.task import capture_range
from kstate_cli.formats import topic_partition
from kstate_cli.spark.session import SparkSettings
from tests.interop.broker import Broker
from tests.memory import peak_bytes

TOPIC = "bench-count-changelog"
PROCESSES = 2


def produce(bootstrap: str, records: int, value_bytes: int) -> None:
    """Half of them to each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.create_topics([NewTopic(TOPIC, PROCESSES, 1)]).values()
    future.result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    value = b"v" * value_bytes
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, f"key-{number % 500_000:020d}", number % PROCESSES)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush(300)


def bare(bootstrap: str, partition: int) -> int:
    """Reads a partition, and drops it; how many records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bare", "enable.partition.eof": True,
                         "isolation.level": "read_committed", "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    count = 0
    while True:
        for message in consumer.consume(20_000, 0.25):
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return count


def peak(job: RangeJob) -> int:
    """Reads a range; the most memory that this process ever had, in bytes."""
    capture_range(job)
    return peak_bytes()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--value-bytes", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="kstate-bench-") as folder, Broker(Path(folder) / "broker") as broker:
        produce(broker.bootstrap, options.records, options.value_bytes)
        for number in range(options.rounds):
            with spawn.Pool(PROCESSES) as pool:
                pool.map(abs, range(PROCESSES))
                began = time.monotonic()
                count = sum(pool.starmap(bare, [(broker.bootstrap, one) for one in range(PROCESSES)], chunksize=1))
                _tell("a bare loop", count, time.monotonic() - began)
            request = DumpRequest(broker.bootstrap, {}, str(Path(folder) / f"dump-{number}"), None, {TOPIC: "here"},
                                  CaptureEngine.local, SparkSettings(), PROCESSES)  # fmt: skip
            began = time.monotonic()
            outcome = dump_round(request, DumpWatcher())
            _tell("kstate dump, with its start", outcome.records, time.monotonic() - began)
        key = topic_partition.TopicPartition(TOPIC, 0)
        job = RangeJob(
            key, 0, options.records // PROCESSES, str(Path(folder) / "peak"), 1, "0" * 12, broker.bootstrap, {}
        )
        with spawn.Pool(1) as pool:
            sys.stdout.write(f"peak of a process that reads one range: {pool.apply(peak, (job,)) / 2**20:,.0f} MiB\n")
    return 0


def _tell(what: str, records: Any, seconds: float) -> None:
    sys.stdout.write(f"{what}: {records:,} records, {seconds:.1f} s, {records / seconds:,.0f}/s, ")
    sys.stdout.write(f"{seconds * 1e6 / records:.2f} µs a record\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
