"""Dumps of a topic that grows, on a broker whose disk stays intact while that of the dump fails."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker import Broker
from tests.interop.dumping import dumped

from .forked import Kstate

_PARTITIONS = 2
_RECORDS = 20
_SECONDS = 120


class DumpsOfTopic:
    """Starts a broker, and writes dumps of its topic."""

    def __init__(self, folder: Path, topic: str) -> None:
        """``folder``: for the broker and for temporary files."""
        self.kstate = Kstate("tests.faults.dumping_zygote")
        self._folder = folder
        self._topic = topic
        self._broker = Broker(folder / "broker", heap="256m")
        self._broker.start()
        settings = {"bootstrap.servers": self._broker.bootstrap, "log_level": 0}
        admin = AdminClient(settings)
        (created,) = admin.create_topics([NewTopic(topic, _PARTITIONS, 1)]).values()
        created.result(_SECONDS)
        self._producer = Producer(settings)

    def close(self) -> None:
        """End the broker and the zygote."""
        self.kstate.__exit__(None, None, None)
        self._broker.__exit__(None, None, None)

    def produce(self) -> None:
        """Add records, so that the next dump has something to read."""
        for number in range(_RECORDS):
            self._producer.produce(self._topic, b"value", str(number).encode(), number % _PARTITIONS)
        assert self._producer.flush(_SECONDS) == 0

    def command(self, path: Path) -> tuple[str, ...]:
        """Return the command line."""
        options = ("--topic", self._topic, "--engine", "local", "--workers", "1", "--quiet")
        return ("dump", "--bootstrap-server", self._broker.bootstrap, "--out", str(path), *options)

    def versions(self, path: Path) -> tuple[int, list[str]]:
        """Return the number of manifests, and what is wrong with the newest one: each file must have its rows."""
        count = len(list(path.glob("_manifest-*.json")))
        if not count:
            return 0, []
        wrong = []
        ended = self.kstate(path, ("verify-dump",))
        if ended.status:
            wrong.append(f"verify-dump: exit {ended.status}: {ended.output[-800:]}")
        for key, records in dumped(path).items():
            offsets = [record[0] for record in records]
            if offsets != list(range(len(offsets))) or len(offsets) < count * _RECORDS // _PARTITIONS:
                wrong.append(f"{key} has other rows: {offsets}")
        return count, wrong
