"""``--engine auto``: Spark if something configures it, otherwise local processes; and the reason for either."""

from __future__ import annotations

import pytest

from kstate_cli.cli.options.shared import engine_of, spark_settings
from kstate_cli.errors import UsageError
from kstate_cli.spark.engine import REQUESTED, Engine

MASTER, CONF = "spark://m:7077", ["spark.executor.memory=4g"]


@pytest.mark.parametrize(
    ("option", "master", "conf", "submitted", "engine", "reason"),
    [
        ("auto", None, None, False, Engine.local, "no Spark master is configured"),
        ("auto", MASTER, None, False, Engine.spark, f"a Spark master is configured: {MASTER}"),
        ("auto", "local[2]", None, False, Engine.spark, "a Spark master is configured: local[2]"),
        ("auto", None, CONF, False, Engine.spark, "a Spark setting is configured: spark.executor.memory"),
        ("auto", None, None, True, Engine.spark, "spark-submit started kstate"),
        ("spark", None, None, False, Engine.spark, REQUESTED),
        ("spark", MASTER, CONF, False, Engine.spark, REQUESTED),
        ("local", None, None, False, Engine.local, REQUESTED),
        ("local", None, None, True, Engine.local, REQUESTED),
    ],
)
def test_each_way_to_an_engine(
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    master: str | None,
    conf: list[str] | None,
    submitted: bool,
    engine: Engine,
    reason: str,
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    choice = engine_of(option, spark_settings(master, conf))
    assert (choice.engine, choice.reason, choice.is_automatic) == (engine, reason, option == "auto")


@pytest.mark.parametrize(("master", "conf"), [(MASTER, None), (None, CONF)])
def test_local_processes_take_no_settings_of_spark(master: str | None, conf: list[str] | None) -> None:
    with pytest.raises(UsageError, match="--engine local does not use Spark"):
        engine_of("local", spark_settings(master, conf))


def test_an_unknown_engine() -> None:
    with pytest.raises(UsageError, match="does not exist"):
        engine_of("flink", spark_settings(None, None))
