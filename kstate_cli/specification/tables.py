"""The tables of ``kstate.toml`` that are not about stores: defaults of commands, and maintenance.

One line of :data:`DEFAULTS` has everything about a key: its values, its meaning, and the option or argument that it
stands for (``cli`` passes it on).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli import clock, option
from kstate_cli.errors import UsageError
from kstate_cli.texts import close_to

_MOST_CHARACTERS: Final = 100


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The values and the meaning of a key."""

    fits: Callable[[Any], bool]
    expected: str
    meaning: str


def whole(least: int, greatest: int) -> Callable[[Any], bool]:
    """Return a test for whole numbers within these bounds, both inclusive."""
    # type(), because True is an int for isinstance.
    return lambda value: type(value) is int and least <= value <= greatest


def word_in(names: Iterable[str]) -> Callable[[Any], bool]:
    """Return a test for these words."""
    return lambda value: isinstance(value, str) and value in names


def flag(value: Any) -> bool:
    """Return whether a value is true or false."""
    return type(value) is bool


def refuse_unknown_keys(where: str, table: str, members: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raise UsageError for a key of a table that is not in ``keys``."""
    for key in members:
        if key not in keys:
            hint = similar(key, keys) or f"the keys are {', '.join(keys)}"
            raise UsageError(f"{where}: {table} has an unknown key {short(key)}", hint=hint)


def fitting(where: str, table: str, members: object, keys: Mapping[str, KeyRule]) -> dict[str, Any]:
    """Return a table if all its keys exist and all values fit. Raise UsageError with file, table and key."""
    if not isinstance(members, dict):
        raise UsageError(
            f"{where}: {table} is not a table", hint=f"write {table} on a separate line and its keys below it"
        )
    refuse_unknown_keys(where, table, members, keys)
    for key, value in members.items():
        if not keys[key].fits(value):
            raise UsageError(
                f"{where}: in {table}, {key} = {short(value)} is invalid", hint=f"{key} must be {keys[key].expected}"
            )
    return members


def similar(value: object, keys: Iterable[str]) -> str | None:
    """Return a hint with the word of ``keys`` that is closest to a value; None if none is close."""
    # A typing error is the usual cause: the hint names the word that was meant.
    close = close_to(str(value), keys)
    return None if close is None else f"did you mean {close!r}?"


def short(value: object) -> str:
    """Return a value of the file for messages, cut after 100 characters."""
    text = repr(value)
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}…"


DEFAULTS_TABLE: Final = "defaults"
MAINTAIN_TABLE: Final = "maintain"
SPARK_TABLE: Final = "spark"
APP: Final = "APP"
DUMP: Final = "DUMP"
"""The names of the argument of commands that have only this one."""
SERDES_TABLE: Final = "serdes"
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Default(KeyRule):
    """A key of ``[defaults]``."""

    fills: tuple[str, ...]
    """Long names of options; with a command before one that only it has. :data:`APP`, :data:`DUMP`: arguments."""
    is_path: bool = False
    """Whether a relative path is relative to the folder of the file."""


def _word(value: Any) -> bool:
    """Return whether a value may be a word of a command line: visible characters, not empty, not an option."""
    return isinstance(value, str) and bool(value.strip()) and value.isprintable() and not value.startswith("-")


def _path(value: Any) -> bool:
    return _word(value) and "$" not in value and not value.startswith("~")


def _spark_settings(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _word(key) and "=" not in key and isinstance(text, str) and text.isprintable() for key, text in value.items()
    )


def _span(value: Any) -> bool:
    return isinstance(value, str) and (length := clock.span(value)) is not None and length.total_seconds() > 0


_SERDE_OF_KSTATE: Final = re.compile(r"(?:(?:time|session)-windowed:)*[^:]+(?::[0-9]+)*")


def _serde(value: Any) -> bool:
    """Return whether a value may be the name of one of kstate's own serdes, and not ``MODULE:NAME``."""
    # Other users may be able to write this file. Only the user that runs kstate may name code.
    return _word(value) and _SERDE_OF_KSTATE.fullmatch(value) is not None


_WORD: Final = "a string that does not begin with a dash"
_SERDE: Final = (
    "the name of a built-in serde, such as string. MODULE:NAME is accepted only on the command line, because kstate "
    "runs its code"
)
_PATH: Final = (
    "an absolute path, or a path relative to the folder of this file. It must not contain `$` or begin with `~`"
)
_SPAN: Final = 'such as "30m", "12h", "7d"'


def _of_broker_commands(option_name: str) -> tuple[str, ...]:
    """Return the option of each command that asks a broker if it has one."""
    return tuple(
        f"{name} {option_name}" for name in ("dump", "restore", "snapshot", "check", "inspect-position", "lag")
    )


DEFAULTS: Final[Mapping[str, Default]] = {
    "directory": Default(_path, _PATH, "The application directory, state.dir/application.id.", (APP,), is_path=True),
    "release": Default(_word, _WORD, "The Kafka Streams release that the application uses.", ("for",)),
    "guarantee": Default(_word, _WORD, "The application's `processing.guarantee`.", ("guarantee",)),
    "dsl_store_format": Default(_word, _WORD, "The application's `dsl.store.format`.", ("dsl-store-format",)),
    "dump": Default(
        _path,
        f"{_PATH}. Commands that read the dump also accept a URI",
        "The changelog dump.",
        (
            f"dump {option.OUT}",
            *(f"{name} {option.FROM_CHANGELOG}" for name in ("restore", "rehome", "ls", "inspect-position")),
            *(f"{name} {option.DUMP}" for name in ("check", "lag")),
            DUMP,
        ),
        is_path=True,
    ),
    "bootstrap_server": Default(
        _word, "HOST:PORT", "The Kafka broker to connect to.", _of_broker_commands(option.BOOTSTRAP_SERVER)
    ),
    "kafka_settings": Default(
        _path, _PATH, "A file with Kafka client properties.", _of_broker_commands(option.KAFKA_SETTINGS), is_path=True
    ),
    "engine": Default(
        _word, "auto, local or spark", "The engine that `dump`, `restore` and `export` use.", ("engine",)
    ),
    "master": Default(_word, _WORD, "The same as `master` in `[spark]`.", ("master",)),
    "staging": Default(
        _word, _WORD, "The folder for sorted files when kstate restores on a Spark cluster.", ("staging",)
    ),
    "memory": Default(_word, _WORD, "The maximum amount of memory that a restoration uses, such as 2G.", ("memory",)),
    "max_rate": Default(
        _word,
        _WORD,
        "The maximum number of bytes that kstate reads from the brokers per second, such as 50M.",
        ("max-rate",),
    ),
    "workers": Default(
        whole(0, _MOST), "a whole number of 0 or more", "The number of tasks that run at the same time.", ("workers",)
    ),
}
"""The keys of ``[defaults]``."""

SPARK: Final[Mapping[str, Default]] = {
    "master": Default(
        _word, _WORD, f"The Spark cluster. If you set this key, `{option.ENGINE} auto` uses Spark.", ("master",)
    ),
    "conf": Default(
        _spark_settings,
        'a table of strings, such as { "spark.executor.memory" = "4g" }',
        f"Spark settings. If you set this key, `{option.ENGINE} auto` uses Spark.",
        ("conf",),
    ),
}
"""The keys of ``[spark]``."""

SERDES: Final[Mapping[str, Default]] = {
    "key": Default(_serde, _SERDE, "The serde for keys.", ("key-serde",)),
    "value": Default(_serde, _SERDE, "The serde for values.", ("value-serde",)),
}
"""The keys of ``[serdes.STORE]``."""

MAINTAIN: Final[Mapping[str, KeyRule]] = {
    "memory_file": KeyRule(
        _path,
        _PATH,
        (
            "The file in which `maintain` records when it ran each step. This key is required. The file must be "
            "outside the directory, the standby and the dump. kstate creates a lock file next to it."
        ),
    ),
    "standby": KeyRule(
        _path,
        _PATH,
        "The path to the standby (state.dir/application.id). The `restore` step updates the standby from the dump.",
    ),
    "metrics_file": KeyRule(
        _path, _PATH, f"The file to which `maintain` writes metrics, as with `{option.METRICS_FILE}`."
    ),
}
"""The keys of ``[maintain]``, beside the tables of its steps."""

_EVERY_STEP: Final[Mapping[str, KeyRule]] = {
    "every": KeyRule(
        _span,
        _SPAN,
        (
            "How often the step runs, with a tolerance of 10 %. kstate measures the time from the start of the last "
            "successful run. Without this key, the step is due every time `maintain` runs."
        ),
    ),
    "timeout": KeyRule(
        _span, _SPAN, 'How long each command in the step may run before kstate stops it. The default is "1h".'
    ),
}
_REPOSITORY_KEYS: Final[Mapping[str, KeyRule]] = {
    "out": KeyRule(
        _path,
        f"{_PATH}. A URI such as s3://BUCKET/PREFIX is also allowed",
        "The snapshot repository. This key is required.",
    ),
    "keep": KeyRule(
        whole(1, _MOST),
        "a whole number of 1 or more",
        (
            "DELETES all but the newest N snapshots for each task and host, a day after marking them as expired (like "
            f"`{option.KEEP}`)."
        ),
    ),
    "keep_for": KeyRule(
        _span,
        _SPAN,
        f"DELETES snapshots older than this, a day after marking them as expired (like `{option.KEEP_FOR}`).",
    ),
}
"""What the steps that write to a repository of snapshots have in common."""
STEPS: Final[Mapping[str, tuple[str, Mapping[str, KeyRule]]]] = {
    "dump": (
        "Runs `dump` to add new records to the dump.",
        {
            "keep": KeyRule(
                whole(1, _MOST),
                "a whole number of 1 or more",
                f"DELETES all but the newest N full dumps (like `{option.KEEP}`).",
            )
        },
    ),
    "restore": (
        (
            f"Runs `restore {option.STANDBY}` to update the standby from the dump. It does this even if the current "
            "run of `maintain` has not added records to the dump."
        ),
        {},
    ),
    "snapshot": (
        "Runs `snapshot` on the standby, or on the directory if there is no standby.",
        {
            **_REPOSITORY_KEYS,
            "guarantee": KeyRule(
                lambda value: value in ("at_least_once", "exactly_once_v2"),
                '"at_least_once" or "exactly_once_v2"',
                (
                    f"The same as `{option.GUARANTEE}`. With `at_least_once`, kstate captures a directory even while "
                    "its application is running. The default comes from `[defaults]`."
                ),
            ),
        },
    ),
    "prune-snapshots": (
        "Runs `prune-snapshots` to delete expired snapshots, and files that no snapshot needs.",
        {
            **_REPOSITORY_KEYS,
            "abandoned": KeyRule(
                _span,
                _SPAN,
                "DELETES even the newest snapshot for a task and host if the application has a different snapshot that "
                f"is newer by at least this much (like `{option.ABANDONED}`).",
            ),
        },
    ),
    "lag": ("Runs `inspect-position` to measure the lag of the directory and the standby for the metrics.", {}),
    "check": ("Runs `check` on the directory and the standby.", {}),
    "verify": (
        "Runs `verify` on the directory and the standby. Each run reads one part of the stores.",
        {
            "parts": KeyRule(
                whole(1, _MOST),
                "a whole number of 1 or more",
                "The number of parts. The default is 7, so each run reads one seventh.",
            )
        },
    ),
    "verify-dump": (
        "Runs `verify-dump`. Each run reads one part of the dump's files.",
        {
            "parts": KeyRule(
                whole(1, _MOST),
                "a whole number of 1 or more",
                "The number of parts. The default is 7, so each run reads one seventh.",
            )
        },
    ),
    "clean": (
        "Runs `clean` on the directory and the standby.",
        {"older_than": KeyRule(_span, _SPAN, 'DELETES undo backups that are at least this old. The default is "7d".')},
    ),
}
"""The steps, in their order: what each does, and the keys that only it has."""


def keys_of(step: str) -> Mapping[str, KeyRule]:
    """Return the keys of ``[maintain.STEP]``."""
    return {**_EVERY_STEP, **STEPS[step][1]}


def require_defaults(where: str, table: object) -> dict[str, Any]:
    """Return ``[defaults]`` if it is correct. Raise UsageError."""
    return fitting(where, f"[{DEFAULTS_TABLE}]", table, DEFAULTS)


def require_spark(where: str, table: object, defaults: Mapping[str, Any]) -> None:
    """``[spark]``. Raises UsageError, also for a master that ``[defaults]`` has too."""
    members = fitting(where, f"[{SPARK_TABLE}]", table, SPARK)
    if "master" in members and "master" in defaults:
        raise UsageError(
            f"{where}: [{DEFAULTS_TABLE}] and [{SPARK_TABLE}] both have a master",
            hint=f"keep the master of [{SPARK_TABLE}]",
        )


def require_serdes(where: str, table: object) -> dict[str, dict[str, str]]:
    """Return ``[serdes]``, a table for each store, if it is correct. Raise UsageError."""
    if not isinstance(table, dict):
        raise UsageError(
            f"{where}: {SERDES_TABLE} is not a table", hint=f'write a table for each store: [{SERDES_TABLE}."NAME"]'
        )
    return {store: fitting(where, f"[{SERDES_TABLE}.{short(store)}]", keys, SERDES) for store, keys in table.items()}


def require_maintain(where: str, table: object) -> dict[str, Any]:
    """Return ``[maintain]`` with the tables of its steps if it is correct. Raise UsageError."""
    name = f"[{MAINTAIN_TABLE}]"
    if not isinstance(table, dict):
        raise UsageError(
            f"{where}: {name} is not a table", hint=f"write {name} on a separate line and its keys below it"
        )
    refuse_unknown_keys(where, name, table, (*MAINTAIN, *STEPS))
    fitting(where, name, {key: value for key, value in table.items() if key in MAINTAIN}, MAINTAIN)
    for step in STEPS:
        if step in table:
            fitting(where, f"[{MAINTAIN_TABLE}.{step}]", table[step], keys_of(step))
    return table
