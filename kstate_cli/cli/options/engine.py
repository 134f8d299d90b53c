"""``--engine``, ``--master`` and ``--conf`` of the commands that work on Spark or in local processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstate_cli.spark.context import SparkSettings
    from kstate_cli.spark.engine import EngineChoice

AUTO: Final = "auto"
Engine = Annotated[
    str,
    typer.Option(
        "--engine", metavar="auto|local|spark", help="auto: Spark if a master is configured.", show_default=False
    ),
]
"""The default is :data:`AUTO`; the help has no line for it, because the help of ``restore`` is long."""
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Work on this Spark cluster.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="K=V", help="Spark configuration; repeatable.")]


def spark_settings(master: str | None, conf: Sequence[str] | None) -> SparkSettings:
    """Return the settings of Spark that ``--master`` and ``--conf`` give. Raises UsageError."""
    from kstate_cli.spark.context import SparkSettings

    return SparkSettings(master, dict(_pair_of(text) for text in conf or ()))


def engine_of(text: str, settings: SparkSettings) -> EngineChoice:
    """Return the engine that ``--engine`` means. Raises UsageError, also for settings of Spark beside ``local``."""
    from kstate_cli.spark.engine import EngineOption, choose_engine

    if text not in {option.value for option in EngineOption}:
        raise UsageError(f"--engine {text!r} is none of auto, local, spark", hint="leave it out for auto")
    option = EngineOption(text)
    if option is EngineOption.local and (settings.master is not None or settings.conf):
        unused = "--conf" if settings.master is None else "--master"
        raise UsageError(f"{unused} is about Spark, and --engine local uses none", hint="leave out one of them")
    return choose_engine(option, settings)


def _pair_of(text: str) -> tuple[str, str]:

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--conf {text!r} is not K=V")
    return key, value
