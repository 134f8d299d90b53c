"""``kstate.toml``: read strictly, so that a typing error never passes for a decision, and written.

``read_draft`` returns the content of the file, ``read_spec`` a whole :class:`Spec`, for which the file alone must
suffice. ``to_toml`` writes each inferred value with its source, and a comment to fill in for each missing one.

``read_configuration`` returns the file as a configuration: defaults of commands, and the steps of ``maintain``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kstate_cli import clock, option
from kstate_cli.errors import UsageError
from kstate_cli.formats.binary import MAX_I32, MAX_I64
from kstate_cli.formats.store_kinds import has_retention, is_time_ordered
from kstate_cli.formats.topic_partition import legal_store_name, legal_topic
from kstate_cli.regular_files import NotReadableError, read_given
from kstate_cli.specification.draft import (
    GLOBAL_SOURCES,
    SOURCE_TOPIC,
    Missing,
    Spec,
    SpecDraft,
    StoreDraft,
    complete,
    draft_of,
    line_of,
    literal,
    spec_kinds,
)
from kstate_cli.specification.tables import (
    DEFAULTS,
    DEFAULTS_TABLE,
    MAINTAIN_TABLE,
    SERDES_TABLE,
    SPARK_TABLE,
    STEPS,
    flag,
    refuse_unknown_keys,
    require_defaults,
    require_maintain,
    require_serdes,
    require_spark,
    short,
    similar,
    whole,
    word_in,
)
from kstate_cli.texts import command, example

if TYPE_CHECKING:
    from tomlkit.items import Table


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FORMAT: Final = 1
_MAX_BYTES: Final = 4 << 20
TOP: Final[Mapping[str, str]] = {
    "format": "The version of the file format. It must be 1. This key is required.",
    "application": (
        "The application.id, which is the prefix of the changelog topics. Without it, you must specify "
        "the changelog of each store."
    ),
    "stores": 'A table for each store: `[stores.NAME]`, or `[stores."NAME"]` if the name contains dots.',
    DEFAULTS_TABLE: f"Default options for commands that you run with `{option.CONFIG}`.",
    SERDES_TABLE: (
        f"The serdes that `query` and `export` use with `{option.CONFIG}`. A `[serdes.NAME]` table contains "
        "the serdes of the store NAME."
    ),
    SPARK_TABLE: f"The Spark cluster that `dump` and `restore` use with `{option.CONFIG}`.",
    MAINTAIN_TABLE: "The steps that `maintain` runs and how often it runs them.",
}
"""The keys of the file, and what they mean."""


def read_spec(path: Path) -> Spec:
    """Return the specification in a complete file.

    Raises UsageError for an unknown key or value, Refused (with the lines to add) for a missing one.
    """
    draft = read_draft(path)
    return complete(draft, file_name=str(path), tables=frozenset(store.name for store in draft.stores))


def read_draft(path: Path) -> SpecDraft:
    """Return the stores of a file. Raise UsageError with file, table and key for anything unknown."""
    return parse_draft(_text(path), str(path))


def read_document(path: Path) -> dict[str, Any]:
    """Return the whole content of a file, every key checked. Raise UsageError with file, table and key."""
    text = _text(path)
    # Checked as a whole, also by commands that need one table: a typing error elsewhere must not wait.
    parse_draft(text, str(path))
    document: dict[str, Any] = tomllib.loads(text)
    return document


def _text(path: Path) -> str:
    """Return the text of a file. Raise UsageError if it cannot be read, is too large, or is not UTF-8."""
    try:
        # Reading is bounded: a path that names a device or a huge file by mistake must not fill the memory.
        data = read_given(path, _MAX_BYTES)
    except NotReadableError as error:
        raise UsageError(
            f"{path} {error.why}", hint=f"write the file in the same format as {example('kstate.toml')}"
        ) from None
    except OSError as error:
        raise UsageError(
            f"kstate cannot read {path}: {error.strerror}",
            hint=f"pass a specification. To create one, run {command('ls', 'APP', option.SPEC)}",
        ) from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 at byte {error.start}", hint="convert the file to UTF-8, because TOML requires it"
        ) from None


def parse_draft(text: str, where: str = "kstate.toml") -> SpecDraft:
    """Return the stores in the text of a file; ``where`` is its name in errors. Raise UsageError.

    A draft contains what the file states, and may lack fields that a :class:`Spec` needs. The other tables are only
    checked here: :func:`read_configuration` reads them from the same document.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # TOMLDecodeError is a ValueError, and Python raises another one for a number of 5000 digits. RecursionError:
        # thousands of nested arrays.
        raise UsageError(
            f"{where} is not a valid TOML file: {error}",
            hint=f"write it in the same format as {example('kstate.toml')}",
        ) from None
    number = document.get("format")
    # The type is compared too: in Python ``true`` equals 1.
    if number != FORMAT or type(number) is not int:
        problem = f"has format {short(number)}"
        if number is None:
            problem = "has no format"
        raise UsageError(
            f"{where} {problem}", hint=f"write 'format = {FORMAT}', the only format that this version of kstate reads"
        )
    # After the format: a later one may have other tables.
    refuse_unknown_keys(where, "the file", document, TOP)
    application = document.get("application")
    # An application.id is the prefix of the names of changelogs, so only characters of topic names are legal.
    if application is not None and not (isinstance(application, str) and legal_topic(application)):
        raise UsageError(
            f"{where}: application = {short(application)} is not a valid application.id",
            hint=f"an application.id consists of {_LEGAL}",
        )
    stores = document.get("stores", {})
    if not isinstance(stores, dict):
        raise UsageError(f"{where}: stores is not a table", hint='write a table for each store: [stores."NAME"]')
    defaults = require_defaults(where, document.get(DEFAULTS_TABLE, {}))
    # It compares both tables: only one of them may name the master.
    require_spark(where, document.get(SPARK_TABLE, {}), defaults)
    require_serdes(where, document.get(SERDES_TABLE, {}))
    require_maintain(where, document.get(MAINTAIN_TABLE, {}))
    return SpecDraft(application, tuple(_store(where, name, table) for name, table in stores.items()))


_LEGAL: Final = "1 to 249 characters: a-z A-Z 0-9 . _ -"


@dataclass(frozen=True, slots=True)
class _Key:
    """The values and the meaning of a key of a store's table, and its field of :class:`StoreDraft`."""

    field: str
    fits: Callable[[Any], bool]
    expected: str
    meaning: str


def _kind(value: Any) -> bool:
    return isinstance(value, str) and value in spec_kinds()


def _topic(value: Any) -> bool:
    return isinstance(value, str) and legal_topic(value)


KEYS: Final[Mapping[str, _Key]] = {
    "kind": _Key(
        "kind",
        _kind,
        f"one of {', '.join(sorted(spec_kinds()))}",
        "The kind of the store, as `ls` shows it.",
    ),
    "logged": _Key(
        "logged",
        flag,
        "true or false",
        "Whether the store has a changelog. `false` means `withLoggingDisabled`. The default is `true`.",
    ),
    "global": _Key(
        "is_global",
        flag,
        "true or false",
        "Whether the store is global. Every instance keeps global stores in its `global` directory.",
    ),
    "source": _Key(
        "source",
        word_in({*GLOBAL_SOURCES, SOURCE_TOPIC}),
        '"table", "processor" or "topic"',
        (
            "The source of the records if the store has no changelog topic. `topic` means the source "
            "topic of a table (`topology.optimization`). For a global store, `table` means `globalTable`, "
            "and `processor` means `addGlobalStore` with a processor that may transform records."
        ),
    ),
    "changelog": _Key(
        "changelog",
        _topic,
        f"a topic name of {_LEGAL}",
        "The topic from which the store is restored. The default is `<application>-<store>-changelog`.",
    ),
    "subtopology": _Key(
        "subtopology",
        whole(0, MAX_I32),
        "a whole number of 0 or more",
        "The first number in the names of the store's tasks, for example 0 for `0_0` and `0_1`.",
    ),
    "partitions": _Key(
        "partitions",
        whole(1, MAX_I32),
        "a whole number of 1 or more",
        "The number of partitions in the changelog.",
    ),
    "retention_ms": _Key(
        "retention_ms",
        whole(1, MAX_I64),
        "milliseconds, a whole number of 1 or more",
        (
            "How long Kafka Streams keeps windows, sessions or versions. This is the value of `withRetention`, or "
            "the window size plus the grace period. For a versioned store, it is the history retention."
        ),
    ),
    "segment_interval_ms": _Key(
        "segment_interval_ms",
        whole(1, MAX_I64),
        "milliseconds, a whole number of 1 or more",
        "The time span that one segment covers. The default is half the retention, but at least one minute.",
    ),
    "indexed": _Key(
        "indexed",
        flag,
        "true or false",
        "Whether a time-ordered store has an index. Set this key to `true` for sliding windows.",
    ),
    "topology": _Key(
        "topology",
        _topic,
        "the name of a named topology",
        "The named topology that contains the store, if any.",
    ),
}
"""The keys of ``[stores.NAME]``, in the order in which they are written."""


def _store(where: str, name: str, table: object) -> StoreDraft:
    """Return the draft in the table ``name`` of the file ``where``. Raise UsageError for anything illegal in it."""
    if not legal_store_name(name):
        raise UsageError(f"{where}: {short(name)} is not a legal store name", hint=f"a store name consists of {_LEGAL}")
    header = f"[stores.{name}]"
    if not isinstance(table, dict):
        hint = f'write [stores."{name}"] instead, because a name with dots must be quoted'
        raise UsageError(f"{where}: {header} is not a table", hint=hint)
    # A name with dots needs quotes: TOML reads [stores.a.b] as a table "b" in the table "a".
    if any(isinstance(value, dict) for value in table.values()):
        inner = next(key for key, value in table.items() if isinstance(value, dict))
        hint = f'write [stores."{name}.{inner}"] instead, because a store name with dots must be quoted'
        raise UsageError(f"{where}: {header} contains a table {inner!r}", hint=hint)
    refuse_unknown_keys(where, header, table, KEYS)
    values: dict[str, Any] = {}
    for key, value in table.items():
        rule = KEYS[key]
        if not rule.fits(value):
            close = None
            if key == "kind":
                close = similar(value, spec_kinds())
            message = f"{where}: in {header}, {key} = {short(value)} is invalid"
            raise UsageError(message, hint=close or f"{key} must be {rule.expected}")
        values[rule.field] = value
    if values.get("source") in GLOBAL_SOURCES:
        # Only global stores have these sources, so the user need not write 'global = true' as well.
        values.setdefault("is_global", True)
    draft = StoreDraft(name=name, **values)
    for contradiction, hint in _contradictions(draft):
        raise UsageError(f"{where}: {header} {contradiction}", hint=hint)
    return draft


def _contradictions(store: StoreDraft) -> Iterator[tuple[str, str]]:
    """Yield each contradiction in a store's table, and the hint that resolves it."""
    if store.logged is False and store.changelog is not None:
        yield "has logged = false, but also a changelog", "remove 'logged = false' or the changelog"
    yield from _contradictions_of_source(store)
    if store.kind is None:
        return
    if not has_retention(store.kind):
        for key in ("retention_ms", "segment_interval_ms"):
            if store.get(key) is not None:
                yield (
                    f"is a {store.kind} store, but has {key}",
                    f"remove {key}, because stores of this kind do not have it",
                )
    # Refused, not ignored: otherwise a user would believe that kstate had built an index.
    if store.indexed and not is_time_ordered(store.kind):
        yield (
            f"is a {store.kind} store, but has indexed = true",
            "remove indexed, because only time-ordered stores have an index",
        )


def _contradictions_of_source(store: StoreDraft) -> Iterator[tuple[str, str]]:
    """Yield the contradictions between the source of a store and what the table says otherwise, each with its hint."""
    if store.is_global:
        for key in ("subtopology", "topology"):
            if store.get(key) is not None:
                yield (
                    f"is global, but has a {key}",
                    f"remove {key}, because global stores belong to no sub-topology",
                )
        if store.logged is not None:
            yield (
                "is global, but has 'logged'",
                "specify the source topic as changelog, because Streams restores a global store from this topic",
            )
        if store.source == SOURCE_TOPIC:
            yield 'is global with source = "topic"', 'use source = "table" or "processor" for a global store'
    elif store.source in GLOBAL_SOURCES:
        yield f'has source = "{store.source}", but is not global', "remove 'global = false' or the source"
    elif store.source == SOURCE_TOPIC and store.changelog is None:
        yield 'has source = "topic", but no topic', "specify the source topic as changelog"


def to_toml(spec: Spec | SpecDraft, *, notes: Iterable[str] = ()) -> str:
    """Return the text of a file for ``spec``, with a comment to fill in for each missing field.

    ``notes`` become comments at the top. The order is that of sub-topologies and names, global stores last.
    """
    import tomlkit

    draft = spec
    if isinstance(draft, Spec):
        draft = draft_of(draft, with_inferred=True)
    document = tomlkit.document()
    for note in notes:
        document.add(tomlkit.comment(_plain(note)))
    document.add("format", tomlkit.item(FORMAT))
    if draft.application is not None:
        document.add("application", tomlkit.item(draft.application))
    stores = tomlkit.table(is_super_table=True)
    for store in sorted(draft.stores, key=_order):
        stores.add(tomlkit.key(store.name), _table(store.filled(draft.application)))
    if draft.stores:
        document.add("stores", stores)
    return tomlkit.dumps(document)


def _order(store: StoreDraft) -> tuple[bool, str, int, str]:
    """Return the sort key of a store: whether it is global, its named topology, its sub-topology and its name."""
    number = store.subtopology
    # Unknown sub-topologies come last; 0 is the first.
    if number is None:
        number = MAX_I32
    return bool(store.is_global), store.topology or "", number, store.name


def _table(store: StoreDraft) -> Table:
    """Return the table of a store, in the order of ``KEYS``: values with their source, comments for missing ones."""
    import tomlkit

    table = tomlkit.table()
    missing = {entry.field: entry for entry in store.missing()}
    for key, rule in KEYS.items():
        value = store.get(rule.field)
        if rule.field in missing:
            table.add(tomlkit.comment(_to_fill_in(missing[rule.field])))
        elif _worth_writing(store, rule.field, value):
            entry = tomlkit.item(value)
            if rule.field in store.inferred:
                entry.comment(_plain(store.inferred[rule.field]))
            table.add(key, entry)
    table.add(tomlkit.nl())
    return table


def _worth_writing(store: StoreDraft, field: str, value: Any) -> bool:
    """Return False for a value that the file has by default."""
    if value is None:
        return False
    if field == "logged":
        return value is False or store.changelog is None
    if field in ("changelog", "partitions"):
        return store.logged is not False
    if field == "is_global":
        return bool(value)
    return field != "indexed" or is_time_ordered(store.kind)


def _to_fill_in(missing: Missing) -> str:
    """Return the comment for a missing field: its line, why kstate needs it, and other possible values."""
    # The first answer is in the line itself.
    others, possible = missing.question.answers[1:], ""
    if others:
        possible = f". Other possible values: {', '.join(literal(answer) for answer in others)}"
    return _plain(f"{line_of(missing)}  # to fill in: {missing.question.why}{possible}")


def _plain(text: str) -> str:
    """Return a text for a comment: one line of ASCII, whatever names it contains."""
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text)


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
    out: str | None = None
    """The repository of snapshots: an absolute path, or a URI."""
    keep_for: str | None = None
    abandoned: str | None = None
    guarantee: str | None = None
    """``processing.guarantee`` of the application whose running directory a snapshot captures."""


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
    serdes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Store -> key of ``[serdes.STORE]`` -> value."""


def read_configuration(path: Path) -> Configuration:
    """Return the content of a file. Raise UsageError with file, table and key for anything unknown."""
    document = read_document(path)
    path = Path(os.path.abspath(path))
    table = document.get(DEFAULTS_TABLE, {})
    # Paths are relative to the file and not to the working directory: cron starts commands anywhere.
    paths = {key: _absolute(path, value) for key, value in table.items() if DEFAULTS[key].is_path}
    defaults = {**table, **paths}
    steps, maintenance = document.get(MAINTAIN_TABLE), None
    if steps is not None:
        maintenance = _maintenance(path, steps)
    return Configuration(
        path,
        document.get("application"),
        bool(document.get("stores")),
        defaults,
        maintenance,
        spark=_spark(document.get(SPARK_TABLE, {})),
        serdes=document.get(SERDES_TABLE, {}),
    )


def _spark(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``[spark]`` as the options take them: ``conf`` as a list of ``NAME=VALUE``."""
    pairs = {key: [f"{name}={text}" for name, text in value.items()] for key, value in table.items() if key == "conf"}
    return {**table, **pairs}


def _maintenance(path: Path, table: Mapping[str, Any]) -> Maintenance:
    """Return ``[maintain]`` of the file ``path``, which was checked before; steps in the order in which they run."""

    def path_of(key: str) -> Path | None:
        return Path(_absolute(path, table[key])) if key in table else None

    steps = tuple(_step(path, name, table[name]) for name in STEPS if name in table)
    return Maintenance(path_of("memory_file"), path_of("standby"), path_of("metrics_file"), steps)


def _step(path: Path, name: str, table: Mapping[str, Any]) -> Step:
    """Return a step from its table, whose other keys are fields of :class:`Step`."""
    own = {key: value for key, value in table.items() if key not in ("every", "timeout")}
    if "out" in own:
        own["out"] = _absolute(path, own["out"])
    return Step(name, clock.span(table.get("every", "")), clock.span(table.get("timeout", "")) or _TIMEOUT, **own)


def _absolute(path: Path, value: str) -> str:
    """Return a path in the file ``path`` as an absolute one; a URI unchanged."""
    # A bucket has no folder to be relative to.
    if _URI.match(value):
        return value
    return os.path.abspath(os.path.join(path.parent, value))
