"""The engine of a command, and the reason for it: Spark, or processes of this host, which need no Java.

``auto`` takes Spark if something configures it: a master, settings of Spark, or spark-submit. Otherwise local processes
do the work. On one host they are as fast as Spark at every size that docs/performance.md measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from kstate_cli.spark.jvm import under_spark_submit

if TYPE_CHECKING:
    from kstate_cli.spark.context import SparkSettings

REQUESTED: Final = "--engine requests it"


class Engine(str, Enum):
    """What does the work."""

    spark = "spark"
    local = "local"


class EngineOption(str, Enum):
    """The values of ``--engine``."""

    auto = "auto"
    local = "local"
    spark = "spark"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine, and the reason for it."""

    engine: Engine
    reason: str
    """Without a subject: it follows the name of the engine in plans, and is a member of JSON."""
    is_automatic: bool = False
    """``--engine auto`` chose it. Local processes may then start Spark to sort what only Spark can sort."""

    @property
    def is_spark(self) -> bool:
        """Whether Spark does the work."""
        return self.engine is Engine.spark


def choose_engine(option: EngineOption, settings: SparkSettings) -> EngineChoice:
    """Return the engine that ``option`` means with these settings of Spark."""
    if option is not EngineOption.auto:
        return EngineChoice(Engine(option.value), REQUESTED)
    if settings.master is not None:
        return EngineChoice(Engine.spark, f"a Spark master is configured: {settings.master}", is_automatic=True)
    if settings.conf:
        return EngineChoice(Engine.spark, f"a setting of Spark is configured: {min(settings.conf)}", is_automatic=True)
    if under_spark_submit():
        return EngineChoice(Engine.spark, "spark-submit started kstate", is_automatic=True)
    return EngineChoice(Engine.local, "no Spark master is configured", is_automatic=True)
