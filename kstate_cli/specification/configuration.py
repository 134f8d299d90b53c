"""``kstate.toml`` as the file of ``--config``: defaults of commands, and the steps of ``maintain``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from kstate_cli import clock
from kstate_cli.specification.tables import DEFAULTS, DEFAULTS_TABLE, MAINTAIN_TABLE, SPARK_TABLE, STEPS
from kstate_cli.specification.toml_file import read_document

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TIMEOUT: Final = timedelta(hours=1)
_PARTS: Final = 7
_OLDER_THAN: Final = "7d"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of ``[maintain]`` that has a table."""

    name: str
    every: timedelta | None
    timeout: timedelta
    keep: int | None = None
    parts: int = _PARTS
    older_than: str = _OLDER_THAN


@dataclass(frozen=True, slots=True)
class Maintenance:
    """``[maintain]``, its paths absolute."""

    memory_file: Path | None
    standby: Path | None
    metrics_file: Path | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of the file, its paths absolute."""

    path: Path
    application: str | None
    has_stores: bool
    defaults: Mapping[str, Any]
    """Key of ``[defaults]`` -> value."""
    maintenance: Maintenance | None
    spark: Mapping[str, Any] = field(default_factory=dict)
    """Key of ``[spark]`` -> value as the option takes it."""


def read_configuration(path: Path) -> Configuration:
    """Return the content of a file. Raise UsageError with file, table and key for anything unknown."""
    document = read_document(path)
    path = Path(os.path.abspath(path))
    table = document.get(DEFAULTS_TABLE, {})
    defaults = {key: _absolute(path, value) if DEFAULTS[key].is_path else value for key, value in table.items()}
    steps = document.get(MAINTAIN_TABLE)
    maintenance = None if steps is None else _maintenance(path, steps)
    return Configuration(
        path,
        document.get("application"),
        bool(document.get("stores")),
        defaults,
        maintenance,
        spark=_spark(document.get(SPARK_TABLE, {})),
    )


def _spark(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``[spark]`` as the options take them."""
    pairs = {key: [f"{name}={text}" for name, text in value.items()] for key, value in table.items() if key == "conf"}
    return {**table, **pairs}


def _maintenance(path: Path, table: Mapping[str, Any]) -> Maintenance:
    def path_of(key: str) -> Path | None:
        return Path(_absolute(path, table[key])) if key in table else None

    steps = tuple(_step(name, table[name]) for name in STEPS if name in table)
    return Maintenance(path_of("memory_file"), path_of("standby"), path_of("metrics_file"), steps)


def _step(name: str, table: Mapping[str, Any]) -> Step:
    own = {key: value for key, value in table.items() if key not in ("every", "timeout")}
    return Step(name, clock.span(table.get("every", "")), clock.span(table.get("timeout", "")) or _TIMEOUT, **own)


def _absolute(path: Path, value: str) -> str:
    return value if _URI.match(value) else os.path.abspath(os.path.join(path.parent, value))
