"""
Offline queries against the answers of real releases (IQv2, `KafkaStreams.query`) on the same directory.

An application runs and closes; kstate is asked about a copy of its directory, Streams is started on the directory and asked
the same questions. Histories of versioned stores are compared on a directory that Streams has just restored: after a
restart it does not find them (docs/internals/stores.md#versioned-stores). Stores that IQv2 does not serve are compared with
its older iterators.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli import query as kq
from kstate_cli.formats.keys import CombinedKey, JoinSideKey
from kstate_cli.formats.topic_partition import GLOBAL
from kstate_cli.specification.draft import Spec, StoreSpec
from kstate_cli.statedir.model import Store
from kstate_cli.statedir.scan import read_application
from tests.directories.support import tree_hash

from . import queries
from .harness import App, Batch, Harness, Run
from .queries import Query
from .releases import number as number_of
from .releases import tried
from .support import ALL, application, good

pytestmark = pytest.mark.interop

RELEASES = ["3.9.2", "4.2.1", "4.3.1", "4.4.0"]
BATCH = Batch(records=900, keys=220)
FOREVER = (1 << 63) - 1
KEYS, RANGES, WINDOWS = 210, 50, 50
HISTORY_MS = 20 * 60 * 1000
"""The history retention of both versioned stores of the topology."""
VERSIONED = ("versioned", "grace-table")


def position_not_kept(release: str) -> tuple[str, ...]:
    """The stores whose Position, which the directory has, Streams forgets at a restart."""
    return VERSIONED if number_of(release) >= (4, 3) else ()


KINDS: tuple[queries.Kind, ...] = (
    "key", "range", "timestamped-key", "timestamped-range", "window-key", "window-range-key", "window-range-time",
    "versioned-key", "multi-versioned-key",
)  # fmt: skip


# --- kstate's answer, as the harness writes those of Streams ----------------------------------------------------------


def _query(query: Query) -> kq.Query[Any]:
    if query.kind == "key":
        return kq.KeyQuery(query.key)
    if query.kind == "timestamped-key":
        return kq.TimestampedKeyQuery(query.key)
    if query.kind == "range":
        ranged: kq.RangeQuery[Any, Any] = kq.RangeQuery(query.lower, query.upper)
        return ranged.with_descending_keys() if query.order == "descending" else ranged
    if query.kind == "timestamped-range":
        stamped: kq.TimestampedRangeQuery[Any, Any] = kq.TimestampedRangeQuery(query.lower, query.upper)
        return stamped.with_descending_keys() if query.order == "descending" else stamped
    if query.kind == "window-key":
        assert query.start is not None and query.end is not None
        return kq.WindowKeyQuery(query.key, query.start, query.end)
    if query.kind == "window-range-key":
        return kq.WindowRangeQuery(key=query.key)
    if query.kind == "headers-key":
        return kq.TimestampedKeyWithHeadersQuery(query.key)
    if query.kind == "headers-range":
        backup: kq.TimestampedRangeWithHeadersQuery[Any, Any] = kq.TimestampedRangeWithHeadersQuery(
            query.lower, query.upper
        )
        return backup.with_descending_keys() if query.order == "descending" else backup
    if query.kind == "headers-window-key":
        assert query.start is not None and query.end is not None
        return kq.TimestampedWindowKeyWithHeadersQuery(query.key, query.start, query.end)
    if query.kind == "headers-window-range-key":
        return kq.TimestampedWindowRangeWithHeadersQuery(key=query.key)
    if query.kind == "headers-window-range-time":
        return kq.TimestampedWindowRangeWithHeadersQuery(time_from=query.start, time_to=query.end)
    if query.kind == "window-range-time":
        return kq.WindowRangeQuery(time_from=query.start, time_to=query.end)
    if query.kind == "versioned-key":
        return kq.VersionedKeyQuery(query.key, query.as_of)
    versions: kq.MultiVersionedKeyQuery[Any, Any] = kq.MultiVersionedKeyQuery(query.key, query.start, query.end)
    return versions.with_ascending_timestamps() if query.order == "ascending" else versions


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, kq.ValueAndTimestamp):
        headers = [[h.key, _text(h.value)] for h in value.headers]
        return {"value": _text(value.value), "timestamp": value.timestamp, **({"headers": headers} if headers else {})}
    if isinstance(value, kq.VersionedRecord):
        row = {"value": _text(value.value), "timestamp": value.timestamp}
        return row if value.valid_to is None else {**row, "valid_to": value.valid_to}
    return {"value": _text(value)}


def _row(row: Any) -> dict[str, Any]:
    if isinstance(row, kq.VersionedRecord):
        return _value(row)
    key, value = row
    if isinstance(key, int):
        return {"start": key, **_value(value)}
    if isinstance(key, kq.Windowed):
        end = {} if key.end is None else {"end": key.end}
        return {"key": _text(key.key), "start": key.start, **end, **_value(value)}
    return {"key": _text(key), **_value(value)}


def _output_of(answer: kq.QueryResult[Any]) -> dict[str, Any]:
    position = answer.position and {t: {str(p): o for p, o in v.items()} for t, v in answer.position.as_map().items()}
    if answer.is_failure:
        return {"reason": answer.failure_reason.value, "position": position}
    result = answer.result
    if isinstance(result, kq.RowIterator):
        with result as rows:
            return {"result": [_row(row) for row in rows], "position": position}
    return {"result": None if result is None else _value(result), "position": position}


def _reason_of(answer: dict[str, Any]) -> dict[str, Any]:
    """What Streams said, without the ends of windows: no directory has them."""
    position = answer["position"]
    if not answer["success"]:
        return {"reason": answer["reason"], "position": position}
    result = answer["result"]
    if isinstance(result, list):
        result = [{k: v for k, v in row.items() if k != "end" or "session" in answer["store"]} for row in result]
    return {"result": result, "position": position}


def _without_headers(answer: dict[str, Any], query: Query) -> dict[str, Any]:
    """Return kstate's answer as Streams gives it: headers with the queries of KIP-1356 only, no time of a session.

    There a row has its key once more, and a session's record has the end of the session for its time.
    """
    startswith = query.kind.startswith("headers-")

    def edited(row: dict[str, Any]) -> dict[str, Any]:
        session = "end" in row
        dropped = {"headers"} if not startswith else set()
        dropped |= {"timestamp"} if session else set()
        return {name: value for name, value in row.items() if name not in dropped}

    result = answer.get("result")
    if isinstance(result, list):
        return {**answer, "result": [edited(row) for row in result]}
    return answer if result is None else {**answer, "result": edited(result)}


def _plain(answer: dict[str, Any], query: Query) -> dict[str, Any]:
    """Return an answer of Streams to a query of KIP-1356 in the form of the others."""
    result = answer.get("result")
    if not query.kind.startswith("headers-") or result is None:
        return answer

    def edited(row: dict[str, Any]) -> dict[str, Any]:
        dropped = set() if row["headers"] else {"headers"}
        dropped |= {"key"} if query.kind in ("headers-key", "headers-window-key") else set()
        dropped |= {"timestamp"} if "end" in row else set()
        return {name: value for name, value in row.items() if name not in dropped}

    return {**answer, "result": [edited(row) for row in result] if isinstance(result, list) else edited(result)}


def _results_of(streams: kq.OfflineStreams, query: Query) -> dict[int, dict[str, Any]]:
    request = kq.in_store(query.store).with_query(_query(query))
    if query.partitions is not None:
        request = request.with_partitions(query.partitions)
    if query.bound:
        bound = kq.Position.from_map({t: {int(p): o for p, o in v.items()} for t, v in query.bound.items()})
        request = request.with_position_bound(kq.PositionBound.at(bound))
    if query.require_active:
        request = request.require_active()
    answers = streams.query(request)
    if answers.global_result is not None:
        return {-1: _output_of(answers.global_result)}
    return {partition: _output_of(answer) for partition, answer in answers.partition_results.items()}


# --- questions --------------------------------------------------------------------------------------------------------


class Request:
    """Questions about what a directory holds, and about what it does not."""

    def __init__(self, app: Path) -> None:
        self.draw = random.Random(5)
        self.kinds: dict[str, str] = {}
        self.topics: dict[str, dict[int, dict[str, int]]] = defaultdict(dict)
        self.keys: dict[str, list[bytes]] = {}
        self.times: dict[str, list[int]] = {}
        with kq.OfflineStreams(app) as streams:
            for task in read_application(app, workers=1).tasks:
                for store in task.stores:
                    if store.kind.certain:
                        self.kinds[store.name] = store.kind.name
                    if task.partition is not None:
                        self.topics[store.name][task.partition] = {
                            t: v[task.partition] for t, v in store.position.as_map().items() if task.partition in v
                        }
            for name in self.kinds:
                self._learn(streams, name)

    def _learn(self, streams: kq.OfflineStreams, name: str) -> None:
        keys: Counter[bytes] = Counter()
        times: set[int] = set()
        for task, store in streams.stores(name):
            reader = streams.reader(task, store)
            for segment in reader.segments:
                for row, _ in segment.scan():
                    key, time = _parts(self.kinds[name], row)
                    keys[key] += 1
                    times.update(time)
        self.keys[name] = sorted(keys)
        self.times[name] = sorted(times)

    def some_keys(self, name: str, count: int) -> Iterator[bytes]:
        """So many, most of them there, some of them before, between and behind those."""
        there = self.keys[name]
        absent = [b"", b"k", b"k0000\0", b"k00001", b"zzz", *(f"a{n:03}".encode() for n in range(count))]
        if name in ("fk-subscription-store", "join-left-shared-join-store"):
            absent = []  # their keys have a form
        yield from [*self.draw.sample(there, min(len(there), count)), *absent][:count]

    def some_time(self, name: str) -> tuple[int, int]:
        """From one time to another, ends and emptiness included."""
        ends = [0, FOREVER, *self.times[name], *(t + 1 for t in self.times[name])]
        low, high = sorted((self.draw.choice(ends), self.draw.choice(ends)))
        return low, high

    def basic(self, name: str) -> Iterator[Query]:
        """Each query once: most of them are unknown to the store."""
        key = (self.keys[name] or [b"k"])[0]
        for kind in KINDS:
            by_key = kind not in ("range", "timestamped-range", "window-range-time")
            # Streams fails at a range of this store that is open at an end.
            bound = key if kind == "range" and self.kinds[name] == "list-value" else None
            yield Query(name, kind, key if by_key else None, bound, bound, start=1, end=FOREVER)

    def of(self, name: str) -> Iterator[Query]:
        """All that a store of this kind answers."""
        kind = self.kinds[name]
        yield from self.basic(name)
        if "key-value" in kind or kind == "foreign-key-subscription":
            stamped = kind != "key-value"
            for key in self.some_keys(name, KEYS):
                yield Query(name, "key", key)
                if stamped:
                    yield Query(name, "timestamped-key", key)
            for number in range(RANGES):
                pool = [None, *self.some_keys(name, 40)]
                low, high = self.draw.choice(pool), self.draw.choice(pool)
                order: queries.Order = "descending" if number % 2 else "ascending" if number % 4 else "any"
                yield Query(name, "range", lower=low, upper=high, order=order)
                if stamped:
                    yield Query(name, "timestamped-range", lower=low, upper=high, order=order)
        elif kind == "list-value":
            for key in self.some_keys(name, KEYS):
                yield Query(name, "key", key)
                yield Query(name, "range", lower=self.draw.choice(self.keys[name]), upper=key)
        elif "window" in kind:
            for key in self.some_keys(name, KEYS):
                yield Query(name, "window-key", key, start=0, end=FOREVER)
            for key in self.some_keys(name, WINDOWS):
                first, last = self.some_time(name)
                yield Query(name, "window-key", key, start=first, end=last)
                yield Query(name, "window-range-time", start=first, end=last)
        elif "session" in kind:
            for key in self.some_keys(name, KEYS):
                yield Query(name, "window-range-key", key)
        yield from self.bounds(name)

    def versions(self, name: str) -> Iterator[Query]:
        """Of a versioned store that was just restored."""
        for key in self.some_keys(name, KEYS):
            yield Query(name, "versioned-key", key)
            for time in self.draw.sample(self.times[name], 2):
                yield Query(name, "versioned-key", key, as_of=time + self.draw.choice((-1, 0, 1)))
            order: queries.Order = self.draw.choice(["any", "ascending", "descending"])
            yield Query(name, "multi-versioned-key", key, order=order)
            low, _ = self.some_time(name)
            yield Query(name, "multi-versioned-key", key, start=low, order=order)

    def bounds(self, name: str) -> Iterator[Query]:
        """Bounds below, at and above the Position of each partition, of an unknown topic, and partitions elsewhere."""
        key = (self.keys[name] or [b"k"])[0]
        kind: queries.Kind = (
            "window-range-key" if "session" in self.kinds[name]
            else "window-key" if "window" in self.kinds[name]
            else "versioned-key" if self.kinds[name] == "versioned"
            else "key"
        )  # fmt: skip
        query = Query(name, kind, key, start=0, end=FOREVER)
        bounds: list[dict[str, dict[int, int]]] = [{"nobody-knows-it": {0: 0}}]
        for partition, topics in self.topics[name].items():
            for topic, offset in topics.items():
                bounds += [{topic: {partition: offset + ahead}} for ahead in (-1, 0, 1)]
        for bound in bounds:
            yield _with(query, bound=bound)
            yield _with(query, bound=bound, require_active=True)
        yield _with(query, partitions=(0, 1, 7))


def _with(query: Query, **changes: Any) -> Query:
    return Query(**{**{field: getattr(query, field) for field in Query.__dataclass_fields__}, **changes})


def _parts(kind: str, row: bytes) -> tuple[bytes, Iterable[int]]:
    """The record's key in a row's key, and the times in it."""
    big = int.from_bytes
    if kind.removeprefix("headers-").startswith("time-ordered"):
        if row[0]:
            row = row[1:]
        elif "window" in kind:
            return row[9:-4], (big(row[1:9], "big"),)
        else:
            return row[17:], (big(row[1:9], "big"),)
    if "window" in kind:
        return row[:-12], (big(row[-12:-4], "big"),)
    if "session" in kind:
        return row[:-16], (big(row[-16:-8], "big"), big(row[-8:], "big"))
    if kind == "versioned":
        return row[8:], ()
    if kind == "foreign-key-subscription":
        CombinedKey.from_bytes(row)
    if kind == "list-value":
        JoinSideKey.from_bytes(row)
    return row, ()


# --- comparison -------------------------------------------------------------------------------------------------------


def _has_later_queries(release: str) -> bool:
    """Those of KIP-968, KIP-985 and KIP-992 came with 3.7."""
    return number_of(release) >= (3, 7)


def _as_of_today(release: str, query: Query, kinds: Mapping[str, str]) -> Query:
    """Up to 3.6 a plain query has the timestamps that later releases are asked for (KIP-992)."""
    plain = query.kind in ("key", "range") and kinds[query.store] in (
        "timestamped-key-value",
        "foreign-key-subscription",
    )
    if not plain or _has_later_queries(release):
        return query
    return replace(query, kind="timestamped-key" if query.kind == "key" else "timestamped-range")


def _compare(release: str, app: Path, queries: list[Query], answers: dict[int, list[dict[str, Any]]]) -> Counter[str]:
    """Counts what was compared; the first differences fail the test."""
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    kinds = Request(app).kinds
    with kq.OfflineStreams(app, assume_active=True) as streams:
        for number, entry in enumerate(queries):
            text = answers[number]
            ours = {
                at: _without_headers(mine, entry)
                for at, mine in _results_of(streams, _as_of_today(release, entry, kinds)).items()
            }
            for answer in text:
                if "partition" not in answer:
                    # Versioned stores throw at what kstate answers with a failure.
                    assert "UnsupportedOperationException" in answer["exception"], (entry, answer)
                    assert entry.store in VERSIONED
                    assert {mine["reason"] for mine in ours.values()} == {"UNKNOWN_QUERY_TYPE"}, (entry, ours)
                    counts["throws"] += 1
                    continue
                theirs, mine = (
                    _plain(_reason_of({**answer, "store": entry.store}), entry),
                    dict(ours.pop(answer["partition"])),
                )
                if entry.store in position_not_kept(release) or theirs["position"] is None:
                    # What a store's wrapper refuses has no Position in Streams.
                    theirs.pop("position")
                    mine.pop("position")
                if theirs != mine:
                    wrong.append(f"{entry}\n  Streams {json.dumps(theirs)[:900]}\n  kstate  {json.dumps(mine)[:900]}")
                rows = theirs.get("result")
                counts[entry.kind if "reason" not in theirs else str(theirs["reason"])] += 1
                counts["rows"] += len(rows) if isinstance(rows, list) else rows is not None
            assert "partition" not in text[-1] or not ours, (entry, ours)
    assert not wrong, f"{len(wrong)} answers differ:\n" + "\n".join(wrong[:6])
    return counts


def _release_has(release: str, query: Query) -> bool:
    """Whether a release can be asked it."""
    later = query.kind.startswith(("timestamped-", "versioned-", "multi-versioned-")) or query.order != "any"
    return not later or _has_later_queries(release)


@pytest.mark.rotating(3, "answers to queries")
@pytest.mark.parametrize("release", tried(RELEASES if ALL else ["4.3.1"]))
def test_answers_are_those_of_the_release(harness: Harness, tmp_path: Path, release: str) -> None:
    app = application("kinds", "alos")
    state = tmp_path / "state"
    harness.produce(release, app, BATCH)
    good(harness.run(release, app, state, Run(read=False)))
    copy = tmp_path / "copy" / app.name
    shutil.copytree(state / app.name, copy)
    before = tree_hash(copy.parent)
    question = Request(copy)
    served = [
        name for name in question.kinds if name not in VERSIONED and name != "global-table" and "Buffer" not in name
    ]
    requests = [entry for name in served for entry in question.of(name)]
    requests += [query for name in VERSIONED for query in (Query(name, "key", b"k"), Query(name, "range"))]
    requests = [entry for entry in requests if _release_has(release, entry)]
    compare = _compare(release, copy, requests, _streams(harness, release, app, state, requests, tmp_path))
    assert tree_hash(copy.parent) == before
    assert compare["rows"] > 5000, compare
    for kind in (
        "key",
        "range",
        "timestamped-key",
        "timestamped-range",
        "window-key",
        "window-range-key",
        "window-range-time",
    ):
        assert compare[kind] >= 100 or not _release_has(release, Query("", kind)), compare
    for reason in ("UNKNOWN_QUERY_TYPE", "NOT_UP_TO_BOUND", "NOT_PRESENT", "throws"):
        assert compare[reason], compare
    print(release, dict(compare))


def _answer_headers(release: str) -> bool:
    """Stores with record headers answer IQv2 from 4.4 on (KIP-1356)."""
    return number_of(release) >= (4, 4)


@pytest.mark.rotating(3, "answers to queries")
@pytest.mark.parametrize("release", [line for line in tried(["4.4.0"]) if _answer_headers(line)])
def test_headers_stores_answer_as_the_release_does(harness: Harness, tmp_path: Path, release: str) -> None:
    app = application("headers", "alos")
    state = tmp_path / "state"
    harness.produce(release, app, BATCH)
    good(harness.run(release, app, state, Run(read=False)))
    copy = tmp_path / "copy" / app.name
    shutil.copytree(state / app.name, copy)
    question = Request(copy)
    kinds = [entry for name in question.kinds for entry in question.of(name)]
    backup = {
        "timestamped-key": "headers-key",
        "timestamped-range": "headers-range",
        "window-key": "headers-window-key",
        "window-range-key": "headers-window-range-key",
        "window-range-time": "headers-window-range-time",
    }
    kinds += [replace(entry, kind=backup[entry.kind]) for entry in kinds if entry.kind in backup]  # type: ignore[arg-type]
    compare = _compare(release, copy, kinds, _streams(harness, release, app, state, kinds, tmp_path))
    assert compare["rows"] > 1000, compare
    for kind in ("key", "range", *backup, *backup.values()):
        assert compare[kind] >= 100, compare
    assert compare["UNKNOWN_QUERY_TYPE"], compare
    print(release, dict(compare))


def _streams(
    harness: Harness, release: str, app: App, state: Path, requests: list[Query], folder: Path
) -> dict[int, list[dict[str, Any]]]:
    run = Run(read=False, queries=queries.write(folder / "asked", requests), answers=folder / "answers")
    good(harness.run(release, app, state, run))
    return queries.read(folder / "answers")


@pytest.mark.rotating(3, "answers to queries")
@pytest.mark.parametrize(
    "release",
    [line for line in tried(RELEASES if ALL else ["4.3.1"]) if _release_has(line, Query("", "versioned-key"))],
)
def test_histories_are_those_of_a_restored_store(harness: Harness, tmp_path: Path, release: str) -> None:
    app = application("kinds", "alos")
    harness.produce(release, app, BATCH)
    good(harness.run(release, app, tmp_path / "first", Run(read=False)))
    # Questions come from the first directory, answers from the one that was restored.
    question = Request(tmp_path / "first" / app.name)
    for name in VERSIONED:
        question.times[name] = _version_times(tmp_path / "first" / app.name, name)
    versioned = [version for name in VERSIONED for version in question.versions(name)]
    restored = tmp_path / "restored"
    answers = _streams(harness, release, app, restored, versioned, tmp_path)
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    spec = Spec(None, tuple(StoreSpec(name=name, kind="versioned", retention_ms=HISTORY_MS) for name in VERSIONED))
    with kq.OfflineStreams(restored / app.name, spec=spec) as streams:
        for number, entry in enumerate(versioned):
            ours = _results_of(streams, entry)
            for answer in answers[number]:
                theirs, mine = (
                    _reason_of({**answer, "store": entry.store})["result"],
                    ours[answer["partition"]]["result"],
                )
                if theirs != mine:
                    wrong.append(f"{entry}\n  Streams {theirs}\n  kstate  {mine}")
                counts[entry.kind] += bool(theirs)
    with kq.OfflineStreams(restored / app.name) as streams:
        # What has expired is there still, and is shown where no retention is known.
        counts["expired"] = sum(
            mine["result"] != answer["result"]
            for number, element in enumerate(versioned)
            for answer, mine in zip(answers[number], _results_of(streams, element).values(), strict=True)
        )
    assert not wrong, f"{len(wrong)} answers differ:\n" + "\n".join(wrong[:6])
    assert counts["versioned-key"] > 200, counts
    assert counts["expired"] > 20, counts
    assert counts["multi-versioned-key"] > 200, counts


def _version_times(app: Path, name: str) -> list[int]:
    from kstate_cli.formats.keys import VersionedKey
    from kstate_cli.formats.versioned import LatestValue, SegmentValue

    numbers: set[int] = set()
    with kq.OfflineStreams(app) as streams:
        for answer in streams.query(kq.in_store(name).with_query(kq.RawScanQuery())).partition_results.values():
            for key, value in answer.result:
                if VersionedKey.from_bytes(key).is_latest:
                    numbers.add(LatestValue.from_bytes(value).valid_from)
                else:
                    numbers.update(version.valid_from for version in SegmentValue.from_bytes(value).versions)
    return sorted(numbers)


# --- what IQv2 does not serve -----------------------------------------------------------------------------------------


@pytest.mark.in_full("tests/interop/test_query.py::test_headers_stores_answer_as_the_release_does")
@pytest.mark.parametrize(
    ("release", "topology"),
    [("4.3.1", "headers"), ("4.3.1", "kinds"), ("3.9.2", "kinds")] if ALL else [("4.3.1", "headers")],
)
def test_global_and_headers_stores_have_the_rows_of_their_iterators(
    harness: Harness, tmp_path: Path, release: str, topology: str
) -> None:
    app = application(topology, "eos")
    state = tmp_path / "state"
    harness.produce(release, app, BATCH)
    good(harness.run(release, app, state, Run(read=False)))
    copy = tmp_path / "copy" / app.name
    shutil.copytree(state / app.name, copy)
    good(harness.run(release, app, state, Run(dump=tmp_path / "dump")))
    names = None if topology == "headers" else {"global-table"}
    compared = _compare_with_iterators(copy, tmp_path / "dump", names)
    assert sum(compared.values()) > 100, compared
    assert topology != "headers" or len(compared) >= 5, compared


@pytest.mark.in_full("tests/directories/test_query.py::test_rows_that_are_not_migrated_yet_are_read_as_if_they_were")
@pytest.mark.parametrize("topology", ["headers", "bulk"] if ALL else ["headers"])
def test_a_store_that_migrates_lazily_is_read_as_streams_reads_it(
    harness: Harness, tmp_path: Path, topology: str
) -> None:
    """Rows of two layouts side by side: those that were written since the store got its newer format, and the others."""
    older = {"headers": ("4.2.1", "headers-old"), "bulk": ("4.3.1", "bulk-plain")}[topology]
    app = application(topology, "alos")
    before = replace(app, topology=older[1])
    state = tmp_path / "state"
    harness.produce(older[0], before, BATCH)
    good(harness.run(older[0], before, state, Run(read=False)))
    # Few records of the second batch, and long after the first: most rows stay what they are, and no session of the first
    # is looked for. 4.3.1 ends in an error where it reads a time-ordered session that has not been migrated.
    harness.produce("4.3.1", app, replace(BATCH.next(), records=60))
    good(harness.run("4.3.1", app, state, Run(read=False)))
    copy = tmp_path / "copy" / app.name
    shutil.copytree(state / app.name, copy)
    unread = tree_hash(copy.parent)
    mixed = {
        store.name for task in read_application(copy, workers=1).tasks for store in task.stores if _is_mixed(store)
    }
    assert len(mixed) >= {"headers": 3, "bulk": 1}[topology], mixed
    good(harness.run("4.3.1", app, state, Run(dump=tmp_path / "dump")))
    compared = _compare_with_iterators(copy, tmp_path / "dump", None)
    assert mixed <= set(compared), (mixed, compared)
    assert tree_hash(copy.parent) == unread


def _is_mixed(store: Store) -> bool:
    """Rows in more than one column family; those of windows lie in different segments."""
    return len({name for database in store.databases for name, rows in database.samples.items() if rows}) > 1


def _compare_with_iterators(app: Path, dump: Path, names: set[str] | None) -> dict[str, int]:
    """Rows by store that are the same in the directory and in what a release has shown of it."""
    target: dict[str, Counter[str]] = defaultdict(Counter)
    for line in dump.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if names is None or row["store"] in names:
            target[row["store"]][_iterator_line(row)] += 1
    compared: dict[str, int] = {}
    with kq.OfflineStreams(app) as streams:
        for name, rows in target.items():
            kind = streams.stores(name)[0][1].kind.name
            if kind == "versioned":
                continue
            # The stores of the DSL are shown without their headers.
            headers = any('"headers": null' not in row for row in rows)
            ours = Counter(_everything(streams, name, kind, headers=headers))
            assert ours == rows, (name, list((ours - rows).items())[:2], list((rows - ours).items())[:2])
            compared[name] = rows.total()
    return compared


def _iterator_line(row: dict[str, Any]) -> str:
    session = "session" in row["store"]
    gets = {k: row.get(k) for k in ("partition", "key", "value", "timestamp", "headers", "start")}
    gets["headers"] = gets["headers"] or None
    return json.dumps({**gets, "end": row.get("end") if session else None}, sort_keys=True)


def _everything(streams: kq.OfflineStreams, name: str, kind: str, *, headers: bool) -> Iterator[str]:
    if "key-value" in kind:
        query: kq.Query[Any] = kq.TimestampedRangeQuery()
    elif "window" in kind:
        query = kq.WindowRangeQuery.with_window_start_range(0, FOREVER)
    else:
        query = EverySession()
        streams.handlers.register(EverySession, [kind], _every_session)
    answers = streams.query(kq.in_store(name).with_query(query))
    results = {GLOBAL: answers.global_result} if answers.global_result else answers.partition_results
    for partition, answer in results.items():
        assert answer is not None
        for key, value in answer.result:
            windowed = isinstance(key, kq.Windowed)
            yield _iterator_line(
                {
                    "store": name,
                    "partition": -1 if partition == GLOBAL else partition,
                    "key": _text(key.key if windowed else key),
                    "value": _text(value.value),
                    "timestamp": value.timestamp if "session" not in kind else None,
                    "headers": [[h.key, _text(h.value)] for h in value.headers] if headers else None,
                    "start": key.start if windowed else None,
                    "end": key.end if windowed else None,
                }
            )


class EverySession(kq.Query["kq.RowIterator[Any]"]):
    """All sessions of all keys: what no query of Streams asks."""


def _every_session(store: kq.StoreReader, _query: EverySession) -> kq.RowIterator[Any]:
    from kstate_cli.formats.keys import SessionKey

    def rows() -> Iterator[Any]:
        for segment in store.segments:
            for key, value in segment.scan(b"\0", b"\1") if "time-ordered" in store.kind else segment.scan():
                read = SessionKey.from_time_first if "time-ordered" in store.kind else SessionKey.from_bytes
                session = read(key)
                yield kq.Windowed(session.key, session.start, session.end), store.stamped(value)

    return kq.RowIterator(rows(), order=lambda row: row[0])
