"""``STATE_DIR/.kstate/<application.id>/ages.json``: how old the data of stores is that kstate has made.

The SSTs of a restored store are new, and its data is as of the reading of the dump. Two kinds of entries:

- with ``identity`` an entry speaks of those very SSTs, and of nothing else, whatever else they may say;
- without, it is a bound that is written before the switch: a store at these offsets is no younger. It counts only where
  it makes a store older, so that it does no harm when the run fails or is undone.

``kstate clean`` leaves the file: the data stays as old as it is. Not Streams' file, and not within the application
directory. It is written by whoever holds the application lock.

Other modules about ages: ``statedir.age`` (what SSTs say), ``offsets.ages`` (the age of one store, from both),
``migrate.ages`` (of rows that are written anew), ``check.ages`` (whether a start hears of every delete).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kstate_cli.change.access import reading
from kstate_cli.change.folder import AGES, runs_folder, write_own_file
from kstate_cli.dump_reader.model import ClockMark
from kstate_cli.errors import Refused
from kstate_cli.formats.json_text import parse_json
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.regular_files import read_small
from kstate_cli.statedir.age import SstAge
from kstate_cli.texts import command

SCHEMA = 1
_MOST = 64
"""Entries of one store: what is older has been undone or overwritten many times."""
_MAX_BYTES = 64 << 20
_LAST_MS = 253_402_300_799_999
"""The last millisecond that has a date of four digits."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """What tells a log from another one under the same name."""

    topic_id: str | None = None
    leader_epoch: int | None = None
    last: int | None = None
    """The offset of the last record that is in the store."""
    digest: str | None = None
    """Of that record."""
    delete_retention_ms: int | None = None
    """How long its tombstones lived then; None where none was removed."""

    def as_json(self) -> dict[str, Any]:
        """Without what is not known."""
        facts = {"topic_id": self.topic_id, "leader_epoch": self.leader_epoch, "last": self.last, "digest": self.digest}
        facts["delete_retention_ms"] = self.delete_retention_ms
        return {name: value for name, value in facts.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Age:
    """What kstate knows of the data of one store."""

    store: str
    """``TASK/STORE``."""
    offsets: Mapping[TopicPartition, int]
    """The offsets of the store, as it keeps them."""
    as_of_ms: int | None
    """Every record that was in the log at this time is in the store; None where nobody knows."""
    logs: Mapping[TopicPartition, LogMark] = field(default_factory=dict)
    identity: str | None = None
    """:attr:`kstate_cli.statedir.age.SstAge.identity` of the store."""
    run: str = ""
    clock: ClockMark | None = None
    """The clock of ``as_of_ms``, that of a dump; None for the time of day of some host."""


def ages_path(app: Path) -> Path:
    """Where the file of an application lies."""
    return runs_folder(app) / AGES


def read_ages(app: Path) -> tuple[Age, ...]:
    """What is known of the stores of an application, oldest entry first.

    Raises Refused for a file that is damaged or that a newer kstate wrote: without it old data would look young.
    """
    path = ages_path(app)
    try:
        with reading():
            content = parse_json(read_small(path, _MAX_BYTES))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise _damaged(path, app, error) from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA:
        raise Refused(
            f"{path} was written by a newer kstate (schema_version {version}, known: {SCHEMA})",
            hint="run the newer kstate, or upgrade this one",
        )
    try:
        if version != SCHEMA or isinstance(version, bool):
            raise ValueError(f"schema_version {version!r}")
        return tuple(_age(name, entry) for name, entries in content["stores"].items() for entry in _list(entries))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise _damaged(path, app, error) from None


def add_ages(app: Path, new: Iterable[Age]) -> None:
    """Adds entries, durably; the application lock is held. Raises OSError, and Refused as :func:`read_ages` does."""
    by_store: dict[str, list[Age]] = {}
    for age in (*read_ages(app), *new):
        entries = by_store.setdefault(age.store, [])
        if age not in entries:
            entries.append(age)
    stores = {name: [_as_json(age) for age in entries[-_MOST:]] for name, entries in sorted(by_store.items())}
    data = json.dumps({"schema_version": SCHEMA, "stores": stores}, indent=1).encode() + b"\n"
    write_own_file(app, ages_path(app), data)


def known_of(ages: Iterable[Age], store: str, offsets: Mapping[TopicPartition, int], of_ssts: SstAge) -> Age:
    """What is known of a store as it lies there: by its SSTs, and by what kstate recorded of it.

    Entries about these very SSTs at these offsets go first, the newest of them. Others at the same offsets only ever
    make it older.
    """
    at_these_offsets = [age for age in ages if age.store == store and dict(age.offsets) == dict(offsets)]
    exact = [age for age in at_these_offsets if age.identity == of_ssts.identity]
    if exact:
        return exact[-1]
    bounds = [age.as_of_ms for age in at_these_offsets]
    logs = at_these_offsets[-1].logs if at_these_offsets else {}
    mark = _one_clock([age.clock for age in at_these_offsets])
    if None in bounds:
        # Somebody made such a store without knowing how old its data was: no date of a file says more.
        return Age(store, offsets, None, logs, clock=mark)
    times = [one for one in (*bounds, of_ssts.at_ms) if one is not None]
    return Age(store, offsets, min(times, default=None), logs, clock=mark)


def _one_clock(marks: list[ClockMark | None]) -> ClockMark | None:
    """Return the clock of several ages; one that is like no other if they are of several."""
    marked = [mark for mark in marks if mark is not None]
    if len({mark.scale for mark in marked}) > 1:
        return replace(marked[-1], scale="")
    return marked[-1] if marked else None


def _damaged(path: Path, app: Path, error: Exception) -> Refused:
    return Refused(
        f"{path} cannot be read: {error}",
        hint="put it back as it was, from a backup: it says how old restored data is. Without it data that kstate has "
        "rewritten may look younger than it is, so that deleted keys stay; if there is no backup, move the file away "
        "and rebuild the stores:",
        hint_details=[command("restore", app, "--from-changelog", "DUMP", "--for", "RELEASE", "--rebuild")],
    )


def _as_json(age: Age) -> dict[str, Any]:
    facts: dict[str, Any] = {"run": age.run, "as_of_ms": age.as_of_ms, "identity": age.identity}
    facts["offsets"] = [[tp.topic, tp.partition, offset] for tp, offset in sorted(age.offsets.items())]
    if age.clock is not None:
        facts["clock"] = {name: value for name, value in asdict(age.clock).items() if value is not None}
    facts["logs"] = [[tp.topic, tp.partition, mark.as_json()] for tp, mark in sorted(age.logs.items())]
    return facts


def _age(store: str, entry: Mapping[str, Any]) -> Age:
    offsets = {
        TopicPartition(_text(topic), _whole(partition)): _whole(at) for topic, partition, at in _list(entry["offsets"])
    }
    logs = {
        TopicPartition(_text(topic), _whole(partition)): LogMark(
            _maybe_text(mark.get("topic_id")),
            None if mark.get("leader_epoch") is None else _whole(mark["leader_epoch"]),
            None if mark.get("last") is None else _whole(mark["last"]),
            _maybe_text(mark.get("digest")),
            None if mark.get("delete_retention_ms") is None else _whole(mark["delete_retention_ms"]),
        )
        for topic, partition, mark in _list(entry["logs"])
    }
    as_of = None if entry["as_of_ms"] is None else _whole(entry["as_of_ms"])
    if as_of is not None and not 0 <= as_of <= _LAST_MS:
        raise ValueError(f"as_of_ms {as_of}")
    identity, run = _maybe_text(entry["identity"]), _text(entry["run"])
    return Age(store, offsets, as_of, logs, identity, run, _clock(entry.get("clock")))


def _clock(facts: Mapping[str, Any] | None) -> ClockMark | None:
    if facts is None:
        return None
    boot_ms, time_ms, wall_ms = (_whole(facts[name]) for name in ("boot_ms", "time_ms", "wall_ms"))
    error = None if facts.get("max_error_ms") is None else _whole(facts["max_error_ms"])
    return ClockMark(_text(facts["boot"]), boot_ms, time_ms, wall_ms, error, _text(facts["scale"]))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _maybe_text(value: Any) -> str | None:
    return None if value is None else _text(value)
