"""The table of decoders and parsers: how each reads bytes, which errors refuse them, and what its writer must give back.

An entry reads any bytes. Either it raises one of its refusals, whose message is short, or it returns a value. The writer of that
value must give the same bytes (EXACT), or bytes that are read as an equal value (EQUAL). Anything else is a defect: another
exception, an input that takes seconds, or memory beyond the limit.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from kstate_cli import barrier, clock, jars
from kstate_cli.broker import facts, group_offsets
from kstate_cli.broker.settings import client_settings
from kstate_cli.change import journal, marks, standby
from kstate_cli.cli.options import restore as restore_options
from kstate_cli.dump_reader import footers, growing, manifest, schema, table_sources
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.location import ListedFile
from kstate_cli.dump_reader.sources import DumpPlace
from kstate_cli.dump_writer import verified
from kstate_cli.errors import KstateError, Refused, RunFailed, UsageError
from kstate_cli.fleet import fleet_output, listing
from kstate_cli.formats import checkpoint, metadata_files, sst, versioned
from kstate_cli.formats.binary import MAX_I64, MalformedBytesError, i64, parse_json
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.kind_inference import infer_kind
from kstate_cli.formats.offsets import Position, decode_rows, encode_rows
from kstate_cli.formats.store_kinds import all_families
from kstate_cli.formats.topic_partition import TaskId, TopicPartition
from kstate_cli.formats.values import (
    BufferValue,
    HeadersSessionValue,
    HeadersValue,
    SubscriptionWrapper,
    TimestampedValue,
    decode_list,
    encode_list,
    strip_headers_to_plain,
    strip_headers_to_timestamped,
    strip_index_headers,
    strip_session_headers,
    subscription_version,
)
from kstate_cli.maintain import memory
from kstate_cli.offsets import ages
from kstate_cli.restore import staging
from kstate_cli.rows import serdes, values
from kstate_cli.rows.serde_type import SERDE_ERRORS, Serde
from kstate_cli.seed import journal as seed_journal
from kstate_cli.snapshot import expiry, generation_file, model
from kstate_cli.snapshot.repository import Repository
from kstate_cli.specification import topology
from kstate_cli.specification.toml_file import parse_draft, to_toml
from kstate_cli.statedir import names
from kstate_cli.statedir.find import read_process_id

MOST_MESSAGE: Final = 2_000
"""Characters of a message, of its place and of its hint: a longer one hides what it is about."""


class Shape(Enum):
    """How mutations understand an input."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    """One JSON document, or one in each line."""


class Inverse(Enum):
    """What the writer of a decoded value gives."""

    EXACT = "the same bytes"
    EQUAL = "bytes that are read as an equal value"
    NONE = "no writer"


@dataclass(frozen=True, slots=True)
class Target:
    """One decoder or parser."""

    name: str
    decode: Callable[[bytes], Any]
    refusals: tuple[type[BaseException], ...]
    encode: Callable[[Any], bytes | None] | None = None
    """Returns None for a value that has no bytes, such as a checkpoint without entries, which is a removed file."""
    inverse: Inverse = Inverse.NONE
    shape: Shape = Shape.BYTES
    mutations: int = 2_500
    """Inputs of one run of the tests."""
    typed: bool = False
    """It is an argument of a command: a message may repeat what the user has just written, whatever its length."""


class PropertyError(AssertionError):
    """A value and its bytes do not belong together, or a message is too long."""


def run(target: Target, data: bytes) -> bool:
    """Give bytes to a decoder; return whether it read them. Raise what it must not raise, and PropertyError."""
    try:
        value = target.decode(data)
    except target.refusals as error:
        if not target.typed:
            _check_message(error)
        return False
    if target.encode is None:
        return True
    again = target.encode(value)
    if again is None:
        return True
    if target.inverse is Inverse.EXACT and again != data:
        raise PropertyError(f"{target.name}: {data[:200].hex()} is written as {again[:200].hex()}")
    if target.inverse is Inverse.EQUAL and target.decode(again) != value:
        raise PropertyError(f"{target.name}: {value!r:.300} is written as {again!r:.300}")
    return True


def _compute_properties(value: object, *properties: str) -> None:
    """Compute properties of a value: a command would, and the bytes may make them fail."""
    for name in properties:
        getattr(value, name)


def _check_message(error: BaseException) -> None:
    parts = [str(error)]
    if isinstance(error, KstateError):
        parts += [error.message, error.where or "", error.hint or "", *error.details, *error.hint_details]
    for part in parts:
        if len(part) > MOST_MESSAGE:
            raise PropertyError(f"a long message, of {len(part)} characters: {part[:300]}")


# --- places for parsers that read a file by its name --------------------------------------------------------------------


@cache
def _folder() -> Path:
    base = None
    if os.path.isdir("/dev/shm"):
        base = "/dev/shm"
    path = Path(tempfile.mkdtemp(prefix="kstate-fuzz-", dir=base))
    owner = os.getpid()

    def remove() -> None:
        # Not in a child process, which has the handlers of its parent.
        if os.getpid() == owner:
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return path


def _file(data: bytes, name: str = "input") -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


def _in_folder(path: Path, data: bytes) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True)
    path.write_bytes(data)


# --- rows ----------------------------------------------------------------------------------------------------------------


def frame(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return rows as an input: a length of two bytes before each key and each value."""
    return b"".join(len(part).to_bytes(2, "big") + part for row in rows for part in row)


def rows_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the rows in an input; a part that is too short ends the last one."""
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2], "big")
        parts.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return list(zip(parts[::2], parts[1::2], strict=False))


# --- formats -------------------------------------------------------------------------------------------------------------


def _checkpoint(data: bytes) -> dict[TopicPartition, int]:
    return dict(checkpoint.parse(data).entries)


def _render(entries: dict[TopicPartition, int]) -> bytes | None:
    return checkpoint.render(entries) if entries else None


def _position_file(data: bytes) -> Position:
    return Position.from_checkpoint(checkpoint.parse(data))


def _rendered_position(position: Position) -> bytes | None:
    return _render(position.to_checkpoint_entries())


def _written_rows(record: Any) -> bytes:
    return frame(encode_rows(record).items())


_Codec = tuple[Callable[[bytes], Any], Callable[[Any], bytes]]
_WINDOW: Final[tuple[_Codec, ...]] = (
    (WindowKey.from_bytes, WindowKey.to_bytes),
    (WindowKey.from_time_first, WindowKey.to_time_first),
    (WindowKey.from_key_first, WindowKey.to_key_first),
)
_SESSION: Final[tuple[_Codec, ...]] = (
    (SessionKey.from_bytes, SessionKey.to_bytes),
    (SessionKey.from_time_first, SessionKey.to_time_first),
    (SessionKey.from_key_first, SessionKey.to_key_first),
)


def _every_form(codecs: tuple[_Codec, ...]) -> Callable[[bytes], bytes]:
    """Return a decoder for keys without a sign of their form: each form that reads the bytes must write them."""

    def decode(data: bytes) -> bytes:
        refusals: list[MalformedBytesError] = []
        for read, write in codecs:
            try:
                key = read(data)
            except MalformedBytesError as error:
                refusals.append(error)
                continue
            if write(key) != data:
                raise PropertyError(f"{key!r:.300} is written as {write(key).hex()}")
        if len(refusals) == len(codecs):
            raise refusals[-1]
        return data

    return decode


def _headers_value(data: bytes) -> HeadersValue:
    value = HeadersValue.from_bytes(data)
    plain, stamped = strip_headers_to_plain(data), strip_headers_to_timestamped(data)
    if plain != (value.value, len(value.headers)):
        raise PropertyError(f"without headers {data.hex()} is {plain!r}")
    if stamped != (i64(value.timestamp) + value.value, len(value.headers)):
        raise PropertyError(f"as a timestamped value {data.hex()} is {stamped!r}")
    return value


def _session_value(data: bytes) -> HeadersSessionValue:
    value = HeadersSessionValue.from_bytes(data)
    if strip_session_headers(data) != (value.value, len(value.headers)):
        raise PropertyError(f"without headers {data.hex()} is {strip_session_headers(data)!r}")
    return value


def _segment_value(data: bytes) -> versioned.SegmentValue:
    oldest = versioned.oldest_of_any_order(data)
    value = versioned.SegmentValue.from_bytes(data)
    if oldest != value.min_timestamp:
        raise PropertyError(f"the oldest version of {data.hex()} is at {oldest} and {value.min_timestamp}")
    return value


def _options(data: bytes) -> metadata_files.StoredOptions:
    stored = metadata_files.parse(data)
    text = data.decode()
    metadata_files.foreign_settings(stored, "/state/app/0_0/rocksdb/store")
    if metadata_files.restore_settings(text, text, frozenset()) != text:
        raise PropertyError("the settings of a file change it")
    changed = metadata_files.with_settings(text, {"wal_dir": "/wal"}, {"num_levels": "7"}, {})
    if metadata_files.parse(changed).db.keys() != stored.db.keys():
        raise PropertyError("other settings change the names of settings")
    return stored


def _manifest_records(data: bytes) -> object:
    metadata_files.torn(data)
    whole = metadata_files.whole_records(data)
    if metadata_files.whole_records(whole) != whole:
        raise PropertyError("whole records are not whole")
    may_have = metadata_files.may_have_paths(data)
    tables = metadata_files.live_tables(data)
    if metadata_files.live_tables(whole) != tables:
        raise PropertyError("an incomplete record counts")
    if not may_have and any(any(of_family.values()) for of_family in tables.values()):
        raise PropertyError(f"a path id was missed: {tables!r:.300}")
    return metadata_files.families_with_tables(data)


def _blob(data: bytes) -> list[bool]:
    file = io.BytesIO(data)
    return [sst.is_whole_blob(file, record) for record in sst.blob_records(file, len(data))]


def _kind(data: bytes) -> object:
    """Infer a kind: the first byte chooses column families, the second one the segments."""
    families = sorted(all_families())
    kind_families = frozenset(name for number, name in enumerate(families) if data[:1] and data[0] >> (number % 8) & 1)
    starts = None
    if data[1:2] and data[1] & 1:
        starts = [int.from_bytes(data[at : at + 6], "big") for at in range(2, 2 + 6 * (data[1] >> 1 & 3), 6)]
    rows = rows_of(data[2:])
    return infer_kind(kind_families, starts, dict.fromkeys(kind_families, rows), f"store-{data[:1].hex()}")


def _name(data: bytes) -> tuple[object, ...]:
    """Read a name from disk or from JSON as that of a task, of a segment and of a topic-partition."""
    text = data.decode("utf-8", "surrogateescape")
    names.segment_start("store", text)
    names.is_foreign(text)
    task = TaskId.parse(text)
    if TaskId.parse(task.name) != task:
        raise PropertyError(f"{text!r} is another task than {task.name!r}")
    return task.order


def _topic_partition(data: bytes) -> TopicPartition:
    return TopicPartition.parse(data.decode())


# --- JSON files of kstate, and of others ---------------------------------------------------------------------------------


def _json(data: bytes) -> Any:
    return parse_json(data)


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def _reseal(data: bytes) -> bytes:
    """Return the lines of a journal with the checksums that they should have: damage is found too early otherwise."""
    lines = []
    for line in data.split(b"\n"):
        body = re.sub(rb', "sum": "[0-9a-f]{0,8}"\}$', b"}", line)
        sealed = line
        if body != line:
            sealed = body[:-1] + b', "sum": "%08x"}' % zlib.crc32(body)
        lines.append(sealed)
    return b"\n".join(lines)


def _journal(data: bytes) -> list[Any]:
    results = []
    for content in (data, _reseal(data)):
        run_ = journal.Run(Path("0001-migrate"), [])
        journal._take_in(run_, content)
        if run_.damage is not None and len(run_.damage) > MOST_MESSAGE:
            raise PropertyError(f"a damage of {len(run_.damage)} characters")
        # What commands ask of a run that they have read.
        if run_.damage is None and run_.events:
            _compute_properties(run_, "token", "settled_at", "seconds")
            journal.signal_of(run_)
            journal.run_state_name(run_, locked=False)
        results.append(run_)
    return [event for event in results[1].events if event.get("schema_version") == journal.SCHEMA]


def _journal_lines(events: list[dict[str, Any]]) -> bytes | None:
    plain = [{k: v for k, v in event.items() if k not in ("schema_version", "n", "sum")} for event in events]
    return b"".join(journal.encode_line(row, number) for number, row in enumerate(plain)) or None


def _dump_manifest(data: bytes) -> manifest.Manifest:
    parsed = manifest.parse(data)
    for entry in parsed.files:
        # As pyarrow opens it.
        entry.path.encode()
    # Written in one order, in whatever order they are read.
    partitions = tuple(sorted(parsed.partitions, key=lambda partition: (partition.topic, partition.partition)))
    return replace(parsed, partitions=partitions, files=tuple(sorted(parsed.files, key=lambda file: file.path)))


def _growing(data: bytes) -> Any:
    generation = re.search(rb'"generation": ?([0-9]{1,10})', data)
    name = growing.name_of(int(generation[1]) if generation else 1)
    return growing.parse(data, name, "dump")


def _verify(data: bytes) -> Any:
    record = verified._parsed(parse_json(data), "/dump")
    if record is not None:
        record.oldest_ms()
    return record


def _generation_name(data: bytes) -> str:
    created = re.search(rb'"created_ms": ?([0-9]{1,14})', data)
    milliseconds = int(created[1]) if created else 0
    try:
        utc = model.utc_name(milliseconds)
    except (ValueError, OverflowError):
        utc = model.utc_name(0)
    return model.name_of(utc, data)


def _generation(data: bytes) -> model.Generation:
    generation = generation_file.parse(_generation_name(data), data)
    generation.lacking({})
    for store in (store for _, store in generation.stores):
        _compute_properties(store, "delete_retention_ms", "usable_until_ms", "size", "has_rows")
        if store.position is not None:
            store.position.to_bytes()
        for database in store.databases:
            if database.offsets is not None:
                encode_rows(database.offsets)
    expiry.expired({"a": generation}, expiry.Retention(keep=1), 0, {})
    return generation


def _parse_condemned(data: bytes) -> object:
    entry = SimpleNamespace(written_ms=0)
    repository = SimpleNamespace(where="/repository", notes=lambda _: {"a": entry}, read_note=lambda *_: data)
    return expiry._condemned(cast("Repository", repository))


def _intent(data: bytes) -> object:
    entry = SimpleNamespace(written_ms=0)
    repository = SimpleNamespace(
        where="/repository",
        notes=lambda _: {"a.begun": entry, "a.aware": entry},
        read_note=lambda *_: data,
        clock_ms=lambda: 0,
        is_ended=lambda _, document: bool(document.get("pid")),
        remove_note=lambda *_: 1,
    )
    return expiry._is_awaited(cast("Repository", repository), "b")


def _marker(data: bytes) -> None:
    Repository.check_marker(cast("Repository", SimpleNamespace(where="/repository", _read=lambda *_, **__: data)))


def _seed_journal(data: bytes) -> object:
    path = _file(data, "seed.jsonl")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        events, _ = seed_journal._read(path, descriptor)
        open_journal = seed_journal.SeedJournal(path, descriptor, events)
        seed_journal.announced_topics(events)
        for event in ("announced", "created", "verified"):
            open_journal.topics(event)
        open_journal.first("planned")
        return open_journal.announced_offsets()
    finally:
        os.close(descriptor)


def _ages(data: bytes) -> Any:
    app = _folder() / "state" / "app"
    _in_folder(ages.ages_path(app), data)
    return ages.read_ages(app)


def _ages_bytes(entries: tuple[ages.Age, ...]) -> bytes:
    stores: dict[str, list[Any]] = {}
    for age in entries:
        stores.setdefault(age.store, []).append(ages._as_json(age))
    return json.dumps({"schema_version": ages.SCHEMA, "stores": stores}).encode()


def _standby(data: bytes) -> object:
    app = _folder() / "state" / "app"
    _in_folder(standby.standby_path(app), data)
    return standby.read_standby(app)


def _mark(data: bytes) -> str | None:
    name = min(marks.MARKS)
    return marks.token_of(_file(data, name).parent, name)


def _memory(data: bytes) -> object:
    return memory.read_memory(_file(data, "memory.json"))


def _staging_note(data: bytes) -> object:
    folder = _folder() / "staging"
    for suffix in (staging.STARTED, staging.FINISHED):
        _in_folder(folder / f"a{suffix}", data)
    area = staging.Staging(str(folder))
    for note in area.notes(staging.FINISHED):
        try:
            staging.files_of(note)
        except ValueError:
            continue
    return area.notes(staging.STARTED), area.finished()


def _process_id(data: bytes) -> str | None:
    _in_folder(_folder() / "process" / names.PROCESS_FILE, data)
    return read_process_id(_folder() / "process")


def _barrier(data: bytes) -> object:
    return barrier._parsed(data, "web-1")


def _delta(data: bytes) -> object:
    log = _folder() / "table" / "_delta_log" / f"{0:020d}.json"
    _in_folder(log, data)
    place = DumpPlace(LocalFileSystem(), str(_folder() / "table"), "table")
    return table_sources._replayed(place, 0)


def _fleet(data: bytes) -> int:
    reports = listing._hosts("web-1", "web-1.json", data) + listing._hosts(None, listing.STREAM, data)
    for report in reports:
        for gap in report.gaps:
            if len(gap.why) > MOST_MESSAGE:
                raise PropertyError(f"a gap of {len(gap.why)} characters: {gap.why[:300]}")
    return len(reports)


def _fleet_listing(data: bytes) -> object:
    fleet = fleet_output.read_fleet(_file(data, "fleet.json"))
    application, host = min(fleet.applications, default="app"), min(fleet.hosts, default="web-1")
    return fleet_output.held_elsewhere(fleet, application, host), fleet_output.had_before(fleet, application, host)


def _metadata(data: bytes) -> bytes:
    """Give metadata of a committed offset to librdkafka's structure, and read it back."""
    element = group_offsets._Element()
    group_offsets._set_metadata(element, data)
    result = group_offsets._metadata_of(element)
    libc = ctypes.CDLL(None)
    libc.free.argtypes = (ctypes.c_void_p,)
    libc.free(element.metadata)
    return result


# --- texts of users ------------------------------------------------------------------------------------------------------


def _toml(data: bytes) -> Any:
    return parse_draft(data.decode())


def _toml_bytes(draft: Any) -> bytes:
    return to_toml(draft).encode()


def _topology(data: bytes) -> object:
    text = topology.parse_topology(data.decode())
    _compute_properties(text, "global_stores", "shared", "inner_topics")
    bare = text.undecorated("app")
    for store in text.stores[:20]:
        text.origin(store)
        part = bare.of(store)
        if part is not None:
            part.read_directly(store)
    return text.draft()


def _no_module(name: str, _module: str, _path: str) -> Serde:
    raise ValueError(f"{name[:100]!r} is a module of a user's code")


def _named_serde(name: str) -> Serde:
    """Return a serde; names of modules are refused, because an import would run any module of this host."""
    with patch.object(serdes, "import_serde", _no_module):
        return serdes.serde(name)


def _serde(data: bytes) -> object:
    """Read bytes by a serde, whose name is before the first line feed."""
    name, _, content = data.partition(b"\n")
    of = _named_serde(name.decode())
    value = of.deserialize(content)
    of.text(value)
    json.dumps(of.render(value), allow_nan=False)
    again = of.serialize(value)
    of.deserialize(again)
    return None


def _serde_text(data: bytes) -> object:
    name, _, text = data.decode().partition("\n")
    of = _named_serde(name)
    return of.serialize(of.parse(text))


def _times(data: bytes) -> int:
    text = data.decode()
    clock.span(text)
    try:
        at = values.parse_moment(text, 1_700_000_000_000, is_end=False)
    except ValueError:
        at = values.parse_time(text)
    if abs(at) > MAX_I64 + 1:
        raise PropertyError(f"{text} is the time {at}")
    if values.parse_time(values.milliseconds(at)) != at:
        raise PropertyError(f"{at} is printed as {values.milliseconds(at)}")
    return at


def _size(data: bytes) -> int:
    return restore_options.bytes_of(data.decode())


def _properties(data: bytes) -> object:
    return client_settings(_file(data, "client.properties"))


def _log_facts(data: bytes) -> object:
    return facts.read_facts(_file(data, "offsets.json"))


def _parse_committed(data: bytes) -> object:
    return restore_options.committed_of(_file(data, "committed.json"))


def _jar(data: bytes) -> object:
    return jars.release_in(_file(data, "app.jar"))


# --- Parquet -------------------------------------------------------------------------------------------------------------

_TYPES: Final = (
    pa.binary(),
    pa.string(),
    pa.large_binary(),
    pa.large_string(),
    pa.binary(4),
    pa.int32(),
    pa.int64(),
    pa.int8(),
    pa.uint64(),
    pa.bool_(),
    pa.float64(),
    pa.date32(),
    pa.null(),
    pa.timestamp("us"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("ns"),
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
    pa.list_(pa.struct([("key", pa.string())])),
    pa.list_(pa.list_(pa.int32())),
    pa.struct([("a", pa.struct([("b", pa.int64())]))]),
    pa.map_(pa.string(), pa.binary()),
    pa.decimal128(20, 3),
    pa.dictionary(pa.int32(), pa.string()),
)
_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def schema_bytes(columns: Iterable[tuple[str, pa.DataType]]) -> bytes:
    """Return the input of a schema: the number of a type, the length of a name, and the name, for each column."""
    out = bytearray()
    for name, kind in columns:
        encoded = name.encode()
        out += bytes((_TYPES.index(kind), len(encoded))) + encoded
    return bytes(out)


def _parquet_schema(data: bytes) -> object:
    fields, at = [], 0
    while at + 2 <= len(data) and len(fields) < 30:
        length = data[at + 1]
        name = data[at + 2 : at + 2 + length].decode("utf-8", "replace")
        # A name of one byte stands for a column of Spark's Kafka source.
        if length == 1:
            name = _COLUMNS[data[at + 2 : at + 3][0] % len(_COLUMNS)] if data[at + 2 : at + 3] else ""
        fields.append(pa.field(name, _TYPES[data[at] % len(_TYPES)]))
        at += 2 + length
    sink = io.BytesIO()
    try:
        table = pa.schema(fields).empty_table()
        pq.write_table(table, sink, use_deprecated_int96_timestamps=len(data) % 2 == 0)
    except pa.ArrowException:
        # Arrow has no such file, so kstate never reads one.
        raise MalformedBytesError("no schema of a Parquet file") from None
    with pq.ParquetFile(io.BytesIO(sink.getvalue()), coerce_int96_timestamp_unit="us") as parquet:
        columns = schema.check_columns(parquet, "part-0.parquet", ())
        loaded = parquet.read()
        for name, kind in columns.kinds:
            if kind is not None and name in schema.RECORD_COLUMNS:
                schema.convert(name, loaded.column(name))
    return columns.in_file


def _parquet_footer(data: bytes) -> object:
    path = _file(data, "part-0.parquet")
    file = ListedFile(str(path), "part-0.parquet", len(data))
    return footers.read_facts(LocalFileSystem(), file).rows


_MALFORMED: Final = (MalformedBytesError,)
_USAGE: Final = (UsageError, UnicodeDecodeError)
"""The file is decoded before its text is parsed, and a byte that is not UTF-8 is refused there."""
_CAUGHT_BY_READER: Final = (ValueError, KeyError, TypeError, AttributeError)
"""The function that reads the file catches these, and treats the file as missing or refuses it."""

TARGETS: Final = {
    target.name: target
    for target in (
        # Files and rows that Kafka Streams wrote.
        Target("checkpoint", _checkpoint, _MALFORMED, _render, Inverse.EQUAL, Shape.TEXT),
        Target("position-file", _position_file, (ValueError,), _rendered_position, Inverse.EQUAL, Shape.TEXT),
        Target("position", Position.from_bytes, _MALFORMED, Position.to_bytes, Inverse.EQUAL),
        Target("offsets-rows", lambda data: decode_rows(rows_of(data)), _MALFORMED, _written_rows, Inverse.EQUAL),
        Target("window-key", _every_form(_WINDOW), _MALFORMED),
        Target("session-key", _every_form(_SESSION), _MALFORMED),
        Target("versioned-key", VersionedKey.from_bytes, _MALFORMED, VersionedKey.to_bytes, Inverse.EXACT),
        Target("join-side-key", JoinSideKey.from_bytes, _MALFORMED, JoinSideKey.to_bytes, Inverse.EXACT),
        Target("combined-key", CombinedKey.from_bytes, _MALFORMED, CombinedKey.to_bytes, Inverse.EXACT),
        Target("timestamped-value", TimestampedValue.from_bytes, _MALFORMED, TimestampedValue.to_bytes, Inverse.EXACT),
        Target("headers-value", _headers_value, _MALFORMED, HeadersValue.to_bytes, Inverse.EQUAL),
        Target("headers-session-value", _session_value, _MALFORMED, HeadersSessionValue.to_bytes, Inverse.EQUAL),
        Target("index-value", strip_index_headers, _MALFORMED),
        Target("list-value", decode_list, _MALFORMED, encode_list, Inverse.EXACT),
        Target(
            "subscription-wrapper",
            SubscriptionWrapper.from_bytes,
            _MALFORMED,
            SubscriptionWrapper.to_bytes,
            Inverse.EXACT,
        ),
        Target("subscription-row", subscription_version, _MALFORMED),
        Target("buffer-value", BufferValue.from_bytes, _MALFORMED, BufferValue.to_bytes, Inverse.EQUAL),
        Target(
            "latest-value",
            versioned.LatestValue.from_bytes,
            _MALFORMED,
            versioned.LatestValue.to_bytes,
            Inverse.EXACT,
        ),
        Target("segment-value", _segment_value, _MALFORMED, versioned.SegmentValue.to_bytes, Inverse.EXACT),
        Target("kind", _kind, ()),
        Target("name", _name, (ValueError,), shape=Shape.TEXT),
        Target(
            "topic-partition",
            _topic_partition,
            (MalformedBytesError, UnicodeDecodeError),
            lambda key: key.kafka_name.encode(),
            Inverse.EXACT,
            Shape.TEXT,
        ),
        Target("process-id", _process_id, (), shape=Shape.JSON, mutations=1_000),
        Target("group-metadata", _metadata, (), bytes, Inverse.EXACT, mutations=1_000),
        # Files of RocksDB.
        Target("options", _options, _MALFORMED, shape=Shape.TEXT, mutations=300),
        Target("sst-footer", sst.footer, _MALFORMED),
        Target("sst-properties", lambda data: sst.read_properties(io.BytesIO(data)), _MALFORMED),
        Target("blob", _blob, _MALFORMED),
        Target("rocksdb-manifest", _manifest_records, _MALFORMED),
        # Files of kstate: a journal decides what may be deleted, and a repository of snapshots is hostile.
        Target("json", _json, _MALFORMED, _json_bytes, Inverse.EQUAL, Shape.JSON),
        Target("change-journal", _journal, (), _journal_lines, shape=Shape.JSON, mutations=1_000),
        Target("mark", _mark, (), shape=Shape.JSON, mutations=1_000),
        Target("standby", _standby, (Refused,), shape=Shape.JSON, mutations=1_000),
        Target("ages", _ages, (Refused,), _ages_bytes, Inverse.EQUAL, Shape.JSON, 500),
        Target("seed-journal", _seed_journal, (Refused,), shape=Shape.JSON, mutations=1_000),
        Target("generation", _generation, _MALFORMED, generation_file.render, Inverse.EQUAL, Shape.JSON, 300),
        Target("condemned", _parse_condemned, (RunFailed,), shape=Shape.JSON),
        Target("intent", _intent, (RunFailed,), shape=Shape.JSON),
        Target("snapshots-marker", _marker, (Refused,), shape=Shape.JSON),
        Target("maintain-memory", _memory, (Refused,), shape=Shape.JSON, mutations=1_000),
        Target("staging-note", _staging_note, (), shape=Shape.JSON, mutations=500),
        Target("barrier", _barrier, (ValueError,), shape=Shape.JSON),
        # Dumps, which other programs may write too.
        Target("dump-manifest", _dump_manifest, (DumpError,), manifest.render, Inverse.EQUAL, Shape.JSON, 1_000),
        Target("growing-manifest", _growing, (DumpError,), growing.render, Inverse.EQUAL, Shape.JSON, 500),
        Target("verified", _verify, _CAUGHT_BY_READER, shape=Shape.JSON),
        Target(
            "delta-log",
            _delta,
            (table_sources._RefusedTableError, *table_sources._OTHER_SHAPE),
            shape=Shape.JSON,
            mutations=500,
        ),
        Target("parquet-schema", _parquet_schema, (DumpError, MalformedBytesError), mutations=300),
        Target("parquet-footer", _parquet_footer, (DumpError,), mutations=500),
        # Texts that users write or paste.
        Target("kstate-toml", _toml, _USAGE, _toml_bytes, shape=Shape.TEXT, mutations=300),
        Target("topology", _topology, _USAGE, shape=Shape.TEXT, mutations=500),
        Target("serde", _serde, SERDE_ERRORS, typed=True),
        Target("serde-text", _serde_text, SERDE_ERRORS, shape=Shape.TEXT, typed=True),
        Target("times", _times, (ValueError,), shape=Shape.TEXT, typed=True),
        Target("size", _size, _USAGE, shape=Shape.TEXT, typed=True),
        Target("properties", _properties, (UsageError,), shape=Shape.TEXT, mutations=1_000),
        Target("log-facts", _log_facts, (UsageError,), shape=Shape.JSON, mutations=1_000),
        Target("committed-offsets", _parse_committed, (UsageError,), shape=Shape.JSON, mutations=1_000),
        Target("fleet", _fleet, (), shape=Shape.JSON, mutations=500),
        Target("fleet-listing", _fleet_listing, (UsageError, Refused), shape=Shape.JSON, mutations=1_000),
        Target("jar", _jar, (Refused, UsageError), mutations=300),
    )
}
"""By name."""
