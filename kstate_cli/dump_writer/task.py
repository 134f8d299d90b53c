"""Reads one range of offsets from a broker: what a worker does. Nothing here knows of Spark.

The consumer is given its partition and offset, so it never joins a group and never commits. Its ``group.id``, without
which librdkafka makes none, is always the same.
"""

from __future__ import annotations

import gc
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Any, Final

from kstate_cli.broker.client import GRANTS, denied
from kstate_cli.broker.tails import ReadFrom, assigned_consumer
from kstate_cli.clock import BootTime, boot_time
from kstate_cli.dump_reader.growing import GrownFile, LastRecord, TailRecord
from kstate_cli.dump_reader.reader import key_digest, record_digest
from kstate_cli.dump_writer.identity import DIGITS, TAIL, tail_record
from kstate_cli.dump_writer.keeping import path_of
from kstate_cli.dump_writer.stores import store_of
from kstate_cli.dump_writer.writing import RangeFile, batch_of, schema
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.parallel.workers import Counter, Progress

GROUP: Final = "kstate-dump"
_AT_ONCE: Final = 20_000
"""Messages of librdkafka are large: no more of them at once."""
_AT_ONCE_BYTES: Final = 32 << 20
"""Nor many more bytes of values: one record may be as large as its topic allows."""
_PORTION: Final = 100
"""After so many messages their bytes are looked at."""
_POLL_SECONDS: Final = 0.25
SILENT_SECONDS: Final = 45.0
"""No record and no end for so long: the broker is not there. One that restarts is, and what was read is not lost."""
_ENDLESS: Final = 1 << 62
_ERROR: Final = methodcaller("error")
_USUAL_BYTES: Final = 1_000
"""Of a record, until one was seen."""
_WAIT_SECONDS: Final = 2


class _AnotherLogError(Exception):
    """The log is not the one that was read before; says why."""


class _BeginsLaterError(Exception):
    """What was to be read first is gone."""


def capture_range(job: RangeJob) -> RangeResult:
    """Reads and writes it. Raises RunFailed where the broker does not give it, OSError where it cannot be written."""
    attempt = secrets.token_hex(4)
    relative = path_of(job.key, job.start, job.end, job.generation, job.run, attempt)
    reading = _RangeMessages(job)
    try:
        with (
            _no_collector(),
            assigned_consumer(
                job.bootstrap, job.settings, GROUP, [ReadFrom(job.key, job.start)], committed=True
            ) as consumer,
            RangeFile(relative, reading.schema, opened=store_of(job.out).opened) as file,
        ):
            for messages in reading.messages(consumer):
                batch = batch_of(job.key, messages, reading.schema)
                file.add(batch)
                reading.count(messages, batch.nbytes)
            written = file.finish(relative)
    except _AnotherLogError as error:
        return RangeResult(None, None, 0, 0, boot_time(), another=str(error))
    except _BeginsLaterError:
        return RangeResult(None, None, 0, 0, boot_time(), gone=True)
    return RangeResult(
        written,
        reading.last_record(),
        reading.records,
        reading.size,
        boot_time(),
        tail=tuple(map(tail_record, reading.tail)),
        seen=frozenset(reading.seen),
        end=reading.end,
    )


@contextmanager
def _no_collector() -> Iterator[None]:
    """Python looks for no cycles meanwhile: messages are none, and looking through them takes as long as reading."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _some(consumer: Any, most: int) -> list[Any]:
    """Messages as they come: up to ``most``, or what memory is meant for; none where none came for a while."""
    messages: list[Any] = []
    size = 0
    while len(messages) < most and size < _AT_ONCE_BYTES:
        wanted = min(_PORTION, most - len(messages))
        came = consumer.consume(wanted, _POLL_SECONDS)
        messages += came
        size += sum(map(len, came))
        if len(came) < wanted:
            break
    return messages


class _RangeMessages:
    """The messages of a range, and what is known of them."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job
        self.schema = schema()
        self.records = self.size = 0
        self.tail: list[Any] = []
        """The last messages of the range."""
        self.seen: set[str] = set()
        counters = job.counters or (None, None)
        self._counted = [Progress(one, _ENDLESS) for one in counters]
        for counter, before in zip(self._counted, job.counted, strict=True):
            counter.add(before)
        self._began = time.monotonic()
        self.end: int | None = None
        """Below this it was read, if the time was over before."""

    def messages(self, consumer: Any) -> Iterator[list[Any]]:
        """Those of the range, in order; of a job whose time is over, those up to there."""
        job = self._job
        at = job.start
        heard, end_seen = time.monotonic(), None
        while at < job.end:
            records, ended_at = self._sorted_out(_some(consumer, max(1, min(self._at_once(), job.end - at))))
            if records or ended_at is not None:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENT_SECONDS:
                raise self._failed(
                    f"for {SILENT_SECONDS:.0f} seconds the broker gave nothing"
                    if end_seen is None
                    else f"the log ends at {end_seen}, and it ended at {job.end} or above before"
                )
            if records:
                at = records[-1].offset() + 1
            if ended_at is not None:
                at, end_seen = max(at, ended_at), ended_at
            if records and (records[0].offset() < job.start or records[-1].offset() >= job.end):
                records = [one for one in records if job.start <= one.offset() < job.end]
            if records:
                yield records
            if job.seconds is not None and job.start < at < job.end and self._took() >= job.seconds:
                self.end = at
                return

    def _took(self) -> float:
        """Return for how long it reads already, s."""
        return time.monotonic() - self._began

    def count(self, messages: list[Any], size: int) -> None:
        """These are written. Waits where that was quicker than it may be."""
        self.records += len(messages)
        self.size += size
        self.tail = [*self.tail, *messages[-TAIL:]][-TAIL:]
        if self._job.awaited:
            self.seen |= self._job.awaited & {key_digest(one.key())[:DIGITS] for one in messages}
        for counter, more in zip(self._counted, (len(messages), size), strict=True):
            counter.add(more)
        most = self._job.bytes_per_second
        if most is not None:
            ahead = self.size / most - self._took()
            if ahead > 0:
                time.sleep(ahead)

    def last_record(self) -> LastRecord | None:
        """The last one of the range."""
        if not self.tail:
            return None
        last = self.tail[-1]
        kind, at = last.timestamp()
        digest = record_digest(last.key(), last.value(), at if kind else -1)
        return LastRecord(last.offset(), digest)

    def _at_once(self) -> int:
        """So many messages at once: no more than may be read within seconds, so that no wait between two is long."""
        most = self._job.bytes_per_second
        if most is None:
            return _AT_ONCE
        average = self.size // self.records if self.records else _USUAL_BYTES
        return min(_AT_ONCE, max(1, most * _WAIT_SECONDS // max(1, average)))

    def _sorted_out(self, messages: list[Any]) -> tuple[list[Any], int | None]:
        """Records, and the offset at which the log ended. Raises what the broker said instead."""
        if all(one is None for one in map(_ERROR, messages)):  # an error compares with nothing but errors
            return messages, None
        errors = [one for one in messages if one.error() is not None]
        from confluent_kafka import KafkaError

        ended = None
        for one in errors:
            code = one.error().code()
            if code == KafkaError._PARTITION_EOF:
                ended = one.offset()
            elif code == KafkaError._LOG_TRUNCATION:
                raise _AnotherLogError("the log was cut below the records that were read")
            elif code in (
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_TOPIC,
                KafkaError._UNKNOWN_PARTITION,
            ):
                raise self._failed(
                    "its topic no longer exists: it was deleted while it was read",
                    "the dump is unchanged: run the command again, which reads the topics that exist then",
                )
            elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise _BeginsLaterError
            elif code != KafkaError.GROUP_AUTHORIZATION_FAILED and not one.error().retriable():
                # The group is never used, so whether it may be is nobody's trouble.
                why, hint = one.error().str(), GRANTS if denied(one.error()) else None
                raise self._failed(f"the broker does not allow it: {why}" if hint else why, hint)
        return [one for one in messages if one.error() is None], ended

    def _failed(self, why: str, hint: str | None = None) -> RunFailed:
        return RunFailed(
            f"{self._job.shown} cannot be read: {why}",
            hint=hint or "the dump is as it was: see whether the broker is there, and run the command again",
        )


_LEAST_SECONDS: Final = 2.0
"""So long the first ranges of a call are read: a call that is ended soon has read something whole by then."""


@dataclass(frozen=True, slots=True)
class RangeJob:
    """Offsets of one partition that are to be read, each record into one file."""

    key: TopicPartition
    start: int
    end: int
    """Below this."""
    out: str
    """The dump, as ``DumpRequest.out``: a folder that this host and the driver both see, or a bucket."""
    generation: int
    run: str
    """What the names of all files of one run have in common, and no other run's have."""
    bootstrap: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    """Of the Kafka client: they may hold passwords."""
    awaited: frozenset[str] = frozenset()
    """Digests of keys that are looked for (:mod:`kstate_cli.dump_writer.identity`)."""
    bytes_per_second: int | None = None
    counters: tuple[Counter, Counter] | None = None
    """Records and bytes, where they can be counted on this host."""
    counted: tuple[int, int] = (0, 0)
    """Records and bytes that earlier jobs with the same counters have read."""
    seconds: float | None = None
    """After so long the reading ends, at a record; None: at ``end`` only."""

    @property
    def shown(self) -> str:
        """How messages call it."""
        return f"offsets {self.start} to {self.end - 1} of {self.key}"


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What an attempt made of a range. Only attempts that their engine has accepted are ever looked at."""

    file: GrownFile | None
    """None where the range has no records."""
    last: LastRecord | None
    records: int
    size: int
    """Bytes of keys, values and headers, as they came."""
    ended: BootTime
    """After its last record was read, by the host that read it."""
    another: str | None = None
    """Why this is another log than before: nothing was read then."""
    gone: bool = False
    """The log began above ``start`` by then: nothing was read."""
    tail: tuple[TailRecord, ...] = ()
    """Its last records."""
    seen: frozenset[str] = frozenset()
    """Those of the awaited keys that it has."""
    end: int | None = None
    """Below this it was read, if its time was over before ``end`` of the job was reached."""
    ended_ms: int = 0
    """The same in the time of the dump, as whoever has asked for it finds it."""


class RangeQueue:
    """Jobs that wait for a reader. A job whose time was over waits again, first of all, behind what was read.

    A job may take as long as the call has taken by then. So a call that is ended at any moment has read ranges whole
    for about half of its time, and all jobs but the first ones are read in one piece.
    """

    def __init__(self, jobs: Iterable[RangeJob]) -> None:
        self._waiting = deque(jobs)
        self._began = time.monotonic()

    def take(self) -> RangeJob | None:
        """Return the next job, with the time that it may take; None if none waits."""
        if not self._waiting:
            return None
        seconds = max(_LEAST_SECONDS, time.monotonic() - self._began)
        return replace(self._waiting.popleft(), seconds=seconds)

    def ended(self, job: RangeJob, result: RangeResult) -> RangeJob:
        """Return the job as far as it was read; what is left of it waits again."""
        if result.end is None:
            return job
        records, size = job.counted
        counted = records + result.records, size + result.size
        self._waiting.appendleft(replace(job, start=result.end, counted=counted))
        return replace(job, end=result.end)
