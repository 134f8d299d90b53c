"""The age of data: when the rows of a store were written, and what kstate has recorded of it in ``ages.json``.

Two sources answer, and :func:`resolve_age` combines them:

- The SSTs of the store (:func:`sst_age`). No mtime counts: a copy makes it young. The column family ``offsets`` does
  not count either: every start of 4.3 rewrites the offsets of every task (``StateDirectory.initializeStartupStores``),
  and kstate writes it too, however old the rows are. Kafka Streams wrote the store at this time or later, so the
  store never looks younger than it is.
- ``STATE_DIR/.kstate/<application.id>/ages.json``, for stores that kstate has built. The SSTs of a restored store are
  new, and its data is as of the reading of the dump.

``ages.json`` has two kinds of entries:

- An entry with ``identity`` describes exactly these SSTs, whatever their properties show.
- An entry without ``identity`` is a bound that kstate writes before the switch: a store at these offsets is no
  younger. It counts only where it makes a store older, so it does no harm if the run fails or is undone.

``kstate clean`` leaves the file: the data stays as old as it is. The file is not Streams' and is outside the
application directory. The holder of the application lock writes it.

Whether a start learns of every delete since then is a finding: ``check.ranges``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kstate_cli import clock, option
from kstate_cli.change.access import reading
from kstate_cli.change.folder import AGES, runs_folder, write_own_file
from kstate_cli.change.plan import EditDatabase, Plan
from kstate_cli.dump_reader.model import ClockMark
from kstate_cli.errors import Refused
from kstate_cli.formats.binary import MAX_I32, MIN_I64, JsonObject, MalformedBytesError, parse_json
from kstate_cli.formats.sst import read_properties
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.model import StoreOffsets
from kstate_cli.offsets.resolve import resolve
from kstate_cli.regular_files import read_small
from kstate_cli.rocks.files import is_sst
from kstate_cli.statedir.model import Application, Store
from kstate_cli.texts import command

SCHEMA = 1
_MOST_ENTRIES = 64
"""The most entries that are kept for one store. Older ones were undone or overwritten many times."""
_MAX_BYTES = 64 << 20
_AHEAD_SECONDS = 86_400
"""A time that is further in the future comes from a wrong clock, and does not count."""
_LAST_MS = 253_402_300_799_999
"""The last millisecond that has a date of four digits."""


@dataclass(frozen=True, slots=True)
class SstAge:
    """The age of a store by the properties of its SSTs."""

    at_ms: int | None
    """Kafka Streams last wrote the store at this time (ms since 1970) or later; None if no file has a time."""
    identity: str
    """SHA-256 of the properties of all its SSTs: equal only for the same files, copied or linked anywhere."""


def sst_age(store: Store) -> SstAge:
    """Return a lower bound of the time of the last write to a store, from the properties of its SSTs.

    The bound may be too early, never too late. An early bound costs an unnecessary rebuild. A late bound would lose
    deletes: kstate would catch up from a log whose tombstones since the real last write are already removed, and the
    deleted keys would stay in the store. All live SSTs of the data column families count. Unreadable files have no
    time.
    """
    # Times and identity are read in one pass, so that both describe the same files.
    times, fingerprints = [], []
    latest = clock.now_seconds() + _AHEAD_SECONDS
    for database in store.databases:
        for family, files in database.live.items():
            # Every start of 4.3 rewrites this family. So its SSTs are young even if the rows are old.
            if family == OFFSETS_CF:
                continue
            for live in files:
                # A blob file has no properties. The SST that refers to it has the times of its rows.
                if not is_sst(live.name):
                    continue
                try:
                    with open(database.path / live.name, "rb") as file:
                        properties = read_properties(file)
                except (MalformedBytesError, OSError):
                    # The file is a part of the identity nevertheless: a store with an unreadable SST never equals an
                    # undamaged one.
                    fingerprints.append(f"{database.segment_start} {family} {live.name} unreadable")
                    continue
                fingerprints.append(
                    f"{database.segment_start} {family} {hashlib.sha256(properties.raw).hexdigest()} {live.size}"
                )
                # A time in the future comes from a wrong clock; the bound would be too late. The properties have
                # seconds since 1970, kstate has milliseconds.
                if properties.newest_data is not None and properties.newest_data <= latest:
                    times.append(properties.newest_data * 1000)
    # Each time is a lower bound of a write, so the latest one is a lower bound of the last write. The fingerprints are
    # sorted: the identity must not depend on the order of the files in the MANIFEST.
    digest = hashlib.sha256("\n".join(sorted(fingerprints)).encode())
    return SstAge(max(times, default=None), digest.hexdigest())


@dataclass(frozen=True, slots=True)
class LogMark:
    """The facts that distinguish a log from another one of the same name."""

    topic_id: str | None = None
    leader_epoch: int | None = None
    last: int | None = None
    """The offset of the last record that is in the store."""
    digest: str | None = None
    """Digest of that record."""
    delete_retention_ms: int | None = None
    """``delete.retention.ms`` at that time; None if the log removed no tombstone."""

    def as_json(self) -> dict[str, Any]:
        """Return the members of ``ages.json``, without those that are None."""
        facts = {"topic_id": self.topic_id, "leader_epoch": self.leader_epoch, "last": self.last, "digest": self.digest}
        facts["delete_retention_ms"] = self.delete_retention_ms
        return {name: value for name, value in facts.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Age:
    """The age of the data of one store, as kstate has recorded or resolved it."""

    store: str
    """``TASK/STORE``."""
    offsets: Mapping[TopicPartition, int]
    """The offsets of the store when the entry was written, as the store records them."""
    as_of_ms: int | None
    """The store has every record that was in the log at this time; None if the time is unknown."""
    logs: Mapping[TopicPartition, LogMark] = field(default_factory=dict)
    identity: str | None = None
    """:attr:`kstate_cli.offsets.ages.SstAge.identity` of the store."""
    run: str = ""
    clock: ClockMark | None = None
    """The clock of ``as_of_ms``, that of a dump; None for the time of day of some host."""


def ages_path(app: Path) -> Path:
    """Return the path of the file of an application."""
    return runs_folder(app) / AGES


def read_ages(app: Path) -> tuple[Age, ...]:
    """Return the recorded ages of the stores of an application, the oldest entry first.

    Raises Refused for a file that is damaged or that a newer kstate wrote: without it, old data would look young.
    """
    path = ages_path(app)
    try:
        with reading():
            content = parse_json(read_small(path, _MAX_BYTES))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise _damaged(path, app, error) from None
    version = None
    if isinstance(content, dict):
        version = content.get("schema_version")
    # bool is a subclass of int in Python: without this test ``true`` would count as version 1.
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA:
        raise Refused(
            f"a newer version of kstate wrote {path} (schema_version {version}). This version reads only {SCHEMA}",
            hint="use the newer version of kstate or upgrade this one",
        )
    # The entries of all stores are parsed, because one damaged entry makes the whole file untrustworthy.
    try:
        if version != SCHEMA or isinstance(version, bool):
            raise ValueError(f"the schema_version is {version!r}")
        stores = JsonObject.of(content, AGES).object("stores")
        return tuple(_age(name, entry) for name in stores.members for entry in stores.items(name))
    except ValueError as error:
        raise _damaged(path, app, error) from None


def add_ages(app: Path, new: Iterable[Age]) -> None:
    """Add entries durably; the caller holds the application lock. Raise OSError, and Refused as :func:`read_ages`."""
    # Entries keep their order, oldest first: resolve_age relies on it.
    by_store: dict[str, list[Age]] = {}
    for age in (*read_ages(app), *new):
        entries = by_store.setdefault(age.store, [])
        if age not in entries:
            entries.append(age)
    stores = {name: [_as_json(age) for age in entries[-_MOST_ENTRIES:]] for name, entries in sorted(by_store.items())}
    data = json.dumps({"schema_version": SCHEMA, "stores": stores}, indent=1).encode() + b"\n"
    # write_own_file syncs and renames: a reader gets the old or the new file, whole.
    write_own_file(app, ages_path(app), data)


def resolve_age(ages: Iterable[Age], store: str, offsets: Mapping[TopicPartition, int], of_ssts: SstAge) -> Age:
    """Return the age of a store at ``offsets``, from ``of_ssts`` (the age by its SSTs) and the recorded ``ages``.

    If an entry describes exactly these SSTs at these offsets, the newest such entry decides. Other entries at the same
    offsets can only make the store older.
    """
    # Only entries at exactly these offsets count: one at lower offsets describes fewer records than the store has now.
    at_these_offsets = [age for age in ages if age.store == store and dict(age.offsets) == dict(offsets)]
    exact = [age for age in at_these_offsets if age.identity == of_ssts.identity]
    if exact:
        return exact[-1]
    bounds = [age.as_of_ms for age in at_these_offsets]
    logs: Mapping[TopicPartition, LogMark] = {}
    # Of the logs, the newest entry counts, since it has what kstate read last.
    if at_these_offsets:
        logs = at_these_offsets[-1].logs
    mark = _common_clock([age.clock for age in at_these_offsets])
    if None in bounds:
        # A run has built the store from data of unknown age. The SSTs are new, but that does not make the data younger.
        return Age(store, offsets, None, logs, clock=mark)
    times = [time for time in (*bounds, of_ssts.at_ms) if time is not None]
    return Age(store, offsets, min(times, default=None), logs, clock=mark)


def age_of(ages: Iterable[Age], task: str, existing: StoreOffsets) -> Age:
    """Return the age of the data of a store that exists."""
    return resolve_age(ages, f"{task}/{existing.store.name}", existing.offsets, sst_age(existing.store))


def _common_clock(marks: list[ClockMark | None]) -> ClockMark | None:
    """Return the clock of several times; None if none has one.

    If they have clocks of several scales, return a clock with the scale "", which equals no other clock.
    """
    clocks = [mark for mark in marks if mark is not None]
    if not clocks:
        return None
    # Times of two scales cannot be compared. With the scale "" every later comparison finds that the order is unknown.
    if len({mark.scale for mark in clocks}) > 1:
        return replace(clocks[-1], scale="")
    return clocks[-1]


def _damaged(path: Path, app: Path, error: Exception) -> Refused:
    return Refused(
        f"kstate cannot read {path}: {error}",
        hint=(
            "restore this file unchanged from a backup. It records how old restored data is. Without it, data that "
            "kstate has rewritten may appear newer than it is, and deleted keys may remain. If you have no backup, "
            "move the file away and rebuild the stores:"
        ),
        hint_details=[command("restore", app, option.FROM_CHANGELOG, "DUMP", option.FOR, "RELEASE", option.REBUILD)],
    )


def _as_json(age: Age) -> dict[str, Any]:
    facts: dict[str, Any] = {"run": age.run, "as_of_ms": age.as_of_ms, "identity": age.identity}
    # Lists of three members, because keys of a JSON object are texts. Sorted, so that equal ages have equal bytes.
    facts["offsets"] = [[tp.topic, tp.partition, offset] for tp, offset in sorted(age.offsets.items())]
    if age.clock is not None:
        facts["clock"] = {name: value for name, value in asdict(age.clock).items() if value is not None}
    facts["logs"] = [[tp.topic, tp.partition, mark.as_json()] for tp, mark in sorted(age.logs.items())]
    return facts


def _age(store: str, content: object) -> Age:
    """Return an entry of ``ages.json``. Raise MalformedBytesError, a ValueError, for one that kstate does not write."""
    entry = JsonObject.of(content, store)
    offsets = {}
    for topic, partition, offset in entry.rows("offsets", 3):
        place = JsonObject({"topic": topic, "partition": partition, "offset": offset}, f"{store}: offsets")
        # The least is the lowest i64, because Streams records -4 for an unknown offset.
        offsets[_partition(place)] = place.number("offset", least=MIN_I64)
    logs = {}
    for topic, partition, facts in entry.rows("logs", 3):
        place = JsonObject({"topic": topic, "partition": partition}, f"{store}: logs")
        mark = JsonObject.of(facts, f"{store}: an entry of logs")
        logs[_partition(place)] = LogMark(
            mark.text_or_none("topic_id"),
            mark.number_or_none("leader_epoch", least=MIN_I64),
            mark.number_or_none("last", least=MIN_I64),
            mark.text_or_none("digest"),
            mark.number_or_none("delete_retention_ms", least=MIN_I64),
        )
    # Null means that the value is unknown. If the member is missing, the entry is incomplete.
    for name in ("as_of_ms", "identity"):
        if name not in entry.members:
            raise MalformedBytesError(f"{store}: {name} is missing")
    # A later time has no date with a year of four digits, so no command could print it.
    as_of = entry.number_or_none("as_of_ms", _LAST_MS)
    clock = None
    if entry.members.get("clock") is not None:
        clock = _clock(entry.object("clock"))
    return Age(store, offsets, as_of, logs, entry.text_or_none("identity"), entry.text("run"), clock)


def _partition(place: JsonObject) -> TopicPartition:
    return TopicPartition(place.text("topic"), place.number("partition", MAX_I32))


def _clock(facts: JsonObject) -> ClockMark:
    boot_ms, time_ms, wall_ms = (facts.number(name, least=MIN_I64) for name in ("boot_ms", "time_ms", "wall_ms"))
    error = facts.number_or_none("max_error_ms", least=MIN_I64)
    return ClockMark(facts.text("boot"), boot_ms, time_ms, wall_ms, error, facts.text("scale"))


def ages_of_converted(app: Application, plan: Plan) -> list[Age]:
    """Return the ages of the stores whose rows a migration converts, to be recorded before the switch.

    A conversion writes new SSTs for old rows, so they would look young afterwards.
    """
    # Only steps with a conversion count: a compaction, which other steps cause, keeps the times of its source files.
    converted = {step.before.path for step in plan.steps if isinstance(step, EditDatabase) and step.conversions}
    if not converted:
        return []
    # The ages are read before the switch: afterwards the SSTs are those of the run, and look as young as the run.
    recorded_ages = read_ages(app.path)
    ages = []
    for resolved in resolve(app):
        for store_offsets in resolved.stores:
            store = store_offsets.store
            if any(database.path in converted for database in store.databases):
                before = age_of(recorded_ages, resolved.task.name, store_offsets)
                name = f"{resolved.task.name}/{store.name}"
                ages.append(Age(name, store_offsets.offsets, before.as_of_ms, before.logs, clock=before.clock))
    return ages
