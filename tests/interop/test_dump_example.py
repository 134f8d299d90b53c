"""examples/dump_changelogs.py asks a real broker, through Kafka's own client, for what its manifest says of the logs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyspark
import pytest
from py4j import java_gateway, protocol  # type: ignore[import-untyped]

from kstate_cli.broker.client import ask_broker

from .harness import Harness
from .releases import broker_jars
from .restoring import alter
from .support import BATCH, ROOT, application

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"


@pytest.fixture(scope="module")
def dumper() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dump_changelogs", ROOT / "examples" / "dump_changelogs.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["dump_changelogs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """A JVM as Spark's driver has one, with Kafka's client on its class path.

    A session of Spark that an earlier test began in this process leaves its own reader of answers in py4j for good. It
    wants a SparkContext for every exception, also for the one that ends a Java iterator; this JVM has none.
    """
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java_gateway, "get_return_value", protocol.get_return_value)
        gateway = java_gateway.JavaGateway.launch_gateway(
            jarpath=str(py4j), classpath=f"{broker_jars()}/*", die_on_exit=True
        )
        yield gateway.jvm
        gateway.shutdown()


@pytest.mark.in_full("tests/examples/test_examples.py::test_manifest")
def test_settings_and_offsets_come_from_the_broker(harness: Harness, dumper: ModuleType, jvm: Any) -> None:
    app = application("demo", "alos")
    harness.produce(RELEASE, app, BATCH)
    topic = f"{app.input}-events"
    alter(harness, RELEASE, [topic], ["delete.retention.ms=12345", "cleanup.policy=compact,delete"])
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm))
    broker = dumper.Broker(spark, {"bootstrap.servers": harness.bootstrap})
    try:
        logs = broker.logs([topic])
    finally:
        broker.close()
    facts = ask_broker(harness.bootstrap, {}, group="nobody", topics=[topic])
    assert logs.keys() == facts.keys()
    for key, log in logs.items():
        messages = facts[key]
        assert (log.start, log.end, log.topic_id, log.leader_epoch) == (
            messages.start,
            messages.end,
            messages.topic_id,
            0,
        )
        assert (log.cleanup_policy, log.delete_retention_ms) == (messages.policy, messages.delete_retention_ms)
        assert (log.cleanup_policy, log.delete_retention_ms, messages.leader_epoch) == ("compact,delete", 12345, 0)
