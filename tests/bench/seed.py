"""
Measure how fast ``kstate seed`` writes, beside a bare transactional producer with the same settings and its records in memory.

    python -m tests.bench.seed [--records 1000000] [--value-bytes 100] [--rounds 3]

One broker on this host, two partitions. kstate reads the records from a dump, checks and digests each of them, and writes them.
The bare producer only writes. The sides take turns, and the medians of the rounds are printed. Reading the log again, which
follows in a real run, is measured too.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kstate_cli.seed.cluster import Connection
from kstate_cli.seed.execution import Watcher, carry_out
from kstate_cli.seed.journal import open_journal
from kstate_cli.seed.model import SeedRequest
from kstate_cli.seed.planner import plan_seed, read_facts
from kstate_cli.seed.records import Record
from kstate_cli.seed.writing import TRANSACTION_RECORDS, producer_settings
from tests.interop.harness import Harness
from tests.interop.seeding import Source

PARTITIONS = 2


class Phases(Watcher):
    """When each phase began."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}

    def begin(self, text: str, records: int) -> None:
        """Note the time."""
        self.began[text] = time.monotonic()


def records_in_memory(count: int, value_bytes: int) -> list[Record]:
    """Return records with distinct keys; every third one has a header."""
    value = b"v" * value_bytes
    return [
        Record(b"key-%08d" % number, value, 1_700_000_000_000 + number, [("trace", b"t")] if number % 3 == 0 else [])
        for number in range(count)
    ]


def bare(harness: Harness, topic: str, records: list[Record]) -> float:
    """Write the records to each partition, in transactions as large as those of kstate; return seconds."""
    producer = Producer(producer_settings(Connection(harness.bootstrap, {}), topic))
    producer.init_transactions()
    began = time.monotonic()
    for partition in range(PARTITIONS):
        for first in range(0, len(records), TRANSACTION_RECORDS):
            producer.begin_transaction()
            for key, value, timestamp, headers in records[first : first + TRANSACTION_RECORDS]:
                while True:
                    try:
                        producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers or None)
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.commit_transaction()
    return time.monotonic() - began


def seed_application(source: Source, number: int) -> tuple[float, float]:
    """Seed an application; return the seconds of writing and of comparing."""
    cluster = Connection(source.harness.bootstrap, {})
    journal = source.folder / f"journal-{number}.jsonl"
    request = SeedRequest(str(source.folder / "dump"), f"seeded-{number}", None, cluster, cluster, journal)
    plan = plan_seed(request, read_facts(request), ())
    phases = Phases()
    with open_journal(journal) as run_journal:
        carry_out(request, plan, run_journal, phases)
    compared = time.monotonic()
    return phases.began["comparing"] - phases.began["writing"], compared - phases.began["comparing"]


def main() -> None:
    """Run all rounds, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="of both partitions")
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    records = records_in_memory(arguments.records // PARTITIONS, arguments.value_bytes)
    # A process that only seeds does not have them, so its garbage collector must not visit them either.
    gc.freeze()
    seconds: dict[str, list[float]] = {"bare": [], "seed": [], "comparing": []}
    with Harness() as harness, tempfile.TemporaryDirectory() as folder:
        source = Source(harness, Path(folder), "bench", PARTITIONS)
        source.topic(source.changelog, PARTITIONS, source.settings)
        source.topic(f"{source.app}-in", 1)
        bare(harness, source.changelog, records)
        source.commit()
        source.dump()
        admin = AdminClient({"bootstrap.servers": harness.bootstrap})
        for number in range(arguments.rounds):
            topic = f"bare-{number}"
            source.topic(topic, PARTITIONS)
            seconds["bare"].append(bare(harness, topic, records))
            writing, comparing = seed_application(source, number)
            seconds["seed"].append(writing)
            seconds["comparing"].append(comparing)
            for future in admin.delete_topics([topic, f"seeded-{number}-count-changelog"]).values():
                future.result()
    rates = {side: round(arguments.records / statistics.median(values)) for side, values in seconds.items()}
    print(json.dumps({"records": arguments.records, "rates": rates, "share": round(rates["seed"] / rates["bare"], 2)}))


if __name__ == "__main__":
    main()
