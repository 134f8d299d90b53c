"""One task of a dump: its job, which travels between hosts, the reading of its range, and its result.

A task runs in Spark or in a process of this host; nothing here depends on Spark. The consumer gets its partition and
offset, so it never joins a group and never commits. librdkafka needs a ``group.id``, which is always the same.
"""

from __future__ import annotations

import gc
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Any, Final, Protocol

from kstate_cli.broker.client import GRANTS, denied
from kstate_cli.broker.tails import ReadFrom, assigned_consumer
from kstate_cli.clock import BootTime, boot_time
from kstate_cli.dump_reader.model import GrownFile, LastRecord, TailRecord
from kstate_cli.dump_reader.reader import key_digest, record_digest
from kstate_cli.dump_writer.identity import DIGITS, TAIL, tail_record, timestamp_of
from kstate_cli.dump_writer.stores import store_of
from kstate_cli.dump_writer.writing import RangeFile, batch_of, path_of, schema
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.parallel import Counter, Progress

GROUP: Final = "kstate-dump"
_AT_ONCE: Final = 20_000
"""Limit of messages in memory, because a message object of librdkafka is large."""
_AT_ONCE_BYTES: Final = 32 << 20
"""Limit of their values, because a record may be as large as its topic allows."""
_PORTION: Final = 100
"""The number of messages after which their bytes are counted: a batch exceeds the limit by at most so many."""
_POLL_SECONDS: Final = 0.25
SILENT_SECONDS: Final = 45.0
"""The broker counts as lost after so long without a record. A restart takes less and loses no records read."""
# The total of a counter that only counts: no share of it is ever printed.
_ENDLESS: Final = 1 << 62
_ERROR: Final = methodcaller("error")
_USUAL_BYTES: Final = 1_000
"""Assumed bytes of a record, until the first one was read."""
_WAIT_SECONDS: Final = 2


class _AnotherLogError(Exception):
    """The log is not the one that was read before; the text is the reason."""


class _BeginsLaterError(Exception):
    """The log now begins above the first offset of the range."""


def read_range(job: RangeJob) -> RangeResult:
    """Read a range, and write its file. Raises RunFailed if the broker fails, OSError if the file cannot be written."""
    attempt = secrets.token_hex(4)
    relative = path_of(job.key, job.start, job.end, job.generation, job.run, attempt)
    reading = _RangeMessages(job)
    try:
        with (
            _no_collector(),
            assigned_consumer(
                job.bootstrap, job.settings, GROUP, [ReadFrom(job.key, job.start)], committed=True
            ) as consumer,
            RangeFile(relative, reading.schema, new_file=store_of(job.out).new_file) as file,
        ):
            for messages in reading.messages(consumer):
                # Arrow copies keys and values, so that the messages of librdkafka can be freed before the next ones
                # come.
                batch = batch_of(job.key, messages, reading.schema)
                file.add(batch)
                reading.count(messages, batch.nbytes)
            file_of_range = file.finish(relative)
    except _AnotherLogError as error:
        return RangeResult(None, None, 0, 0, boot_time(), another=str(error))
    except _BeginsLaterError:
        return RangeResult(None, None, 0, 0, boot_time(), begins_later=True)
    return RangeResult(
        file_of_range,
        reading.last_record(),
        reading.records,
        reading.size,
        boot_time(),
        tail=tuple(map(tail_record, reading.tail)),
        awaited_keys=frozenset(reading.awaited_keys),
        end=reading.end,
    )


@contextmanager
def _no_collector() -> Iterator[None]:
    """Switch Python's cycle collector off: scanning the messages, which have no cycles, takes as long as reading."""
    # The worker process may have switched it off itself: then it stays off.
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _some(consumer: Any, most: int) -> list[Any]:
    """Return up to ``most`` messages within the memory limit; an empty list if none came during the poll."""
    messages: list[Any] = []
    size = 0
    while len(messages) < most and size < _AT_ONCE_BYTES:
        count = min(_PORTION, most - len(messages))
        batch = consumer.consume(count, _POLL_SECONDS)
        # Messages are requested in small portions, and their bytes added up, since one call of librdkafka has no limit
        # of bytes.
        messages += batch
        size += sum(map(len, batch))
        # The broker has no more at the moment: the messages so far are written now, not after another wait.
        if len(batch) < count:
            break
    return messages


class _RangeMessages:
    """The messages of a range, and their counts."""

    def __init__(self, job: RangeJob) -> None:
        self._job = job
        self.schema = schema()
        self.records = self.size = 0
        self.tail: list[Any] = []
        """The last messages of the range."""
        self.awaited_keys: set[str] = set()
        counters = job.counters or (None, None)
        self._counters = [Progress(counter, _ENDLESS) for counter in counters]
        for counter, before in zip(self._counters, job.counter_start, strict=True):
            counter.add(before)
        self._began = time.monotonic()
        self.end: int | None = None
        """Exclusive end of the reading, if the time limit of the job ended it."""

    def messages(self, consumer: Any) -> Iterator[list[Any]]:
        """Yield the messages of the range in order, up to the time limit of the job."""
        job = self._job
        at = job.start
        last_answer, log_end = time.monotonic(), None
        while at < job.end:
            records, ended_at = self._without_errors(_some(consumer, max(1, min(self._at_once(), job.end - at))))
            if records or ended_at is not None:
                last_answer = time.monotonic()
            elif time.monotonic() - last_answer > SILENT_SECONDS:
                raise self._silent(log_end)
            if records:
                # The position follows from the offset, not from the number of records: compaction and transactions
                # leave out offsets.
                at = records[-1].offset() + 1
            if ended_at is not None:
                # The markers of transactions have offsets but are no records. Only the reported end of the log shows
                # that they are passed.
                at, log_end = max(at, ended_at), ended_at
            records = self._within(records)
            if records:
                yield records
            # The time limit ends the range only once it has advanced. The rest of it becomes a job of its own.
            if job.seconds is not None and job.start < at < job.end and self._took() >= job.seconds:
                self.end = at
                return

    def _silent(self, log_end: int | None) -> RunFailed:
        if log_end is None:
            return self._failed(f"the broker sent no data for {SILENT_SECONDS:.0f} seconds")
        return self._failed(f"the log ends at {log_end}, but previously ended at {self._job.end} or above")

    def _within(self, records: list[Any]) -> list[Any]:
        """Return the records of the range. A batch of the broker may begin before it and end after it."""
        job = self._job
        if records and (records[0].offset() < job.start or records[-1].offset() >= job.end):
            return [record for record in records if job.start <= record.offset() < job.end]
        return records

    def _took(self) -> float:
        """Return the duration of the reading so far, s."""
        return time.monotonic() - self._began

    def count(self, messages: list[Any], size: int) -> None:
        """Count messages that were written, and wait if the reading is faster than its limit."""
        self.records += len(messages)
        self.size += size
        self.tail = [*self.tail, *messages[-TAIL:]][-TAIL:]
        if self._job.awaited:
            self.awaited_keys |= self._job.awaited & {key_digest(message.key())[:DIGITS] for message in messages}
        for counter, more in zip(self._counters, (len(messages), size), strict=True):
            counter.add(more)
        most = self._job.bytes_per_second
        if most is not None:
            ahead = self.size / most - self._took()
            # More bytes were read than the limit allows until now: waiting brings the average back to it.
            if ahead > 0:
                time.sleep(ahead)

    def last_record(self) -> LastRecord | None:
        """Return the last record of the range."""
        if not self.tail:
            return None
        last = self.tail[-1]
        digest = record_digest(last.key(), last.value(), timestamp_of(*last.timestamp()))
        return LastRecord(last.offset(), digest)

    def _at_once(self) -> int:
        """Return the number of messages to read at once: with a rate limit, so few that no wait between two is long."""
        most = self._job.bytes_per_second
        if most is None:
            return _AT_ONCE
        average = self.size // self.records if self.records else _USUAL_BYTES
        return min(_AT_ONCE, max(1, most * _WAIT_SECONDS // max(1, average)))

    def _without_errors(self, messages: list[Any]) -> tuple[list[Any], int | None]:
        """Return the records, and the offset of the end of the log if a message reports it. Raises for other errors."""
        if all(error is None for error in map(_ERROR, messages)):  # an error can be compared with errors only
            return messages, None
        from confluent_kafka import KafkaError

        ended = None
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                ended = message.offset()
            else:
                self._raise_unless_passing(error)
        return [message for message in messages if message.error() is None], ended

    def _raise_unless_passing(self, error: Any) -> None:
        """Raise the exception for an error of the consumer, unless it passes by itself."""
        from confluent_kafka import KafkaError

        code = error.code()
        # librdkafka detects a truncated log by the leader epoch of the last record that it read (KIP-320).
        if code == KafkaError._LOG_TRUNCATION:
            raise _AnotherLogError("the log was truncated below the records that kstate had read")
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise _BeginsLaterError
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
            raise self._failed(
                "its topic no longer exists, because it was deleted while kstate was reading it",
                "run the command again to read the topics that exist now. The dump is unchanged",
            )
        # The group is never used, so it does not matter if the user lacks the permission for it.
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED or error.retriable():
            return
        if denied(error):
            raise self._failed(f"the broker does not permit this: {error.str()}", GRANTS)
        raise self._failed(error.str())

    def _failed(self, why: str, hint: str | None = None) -> RunFailed:
        return RunFailed(
            f"kstate cannot read {self._job.label}: {why}",
            hint=hint or "check that the broker is up, then run the command again. The dump is unchanged",
        )


_LEAST_SECONDS: Final = 2.0
"""Time limit of the first ranges of a call, so that a call that is interrupted early has finished some of them."""


@dataclass(frozen=True, slots=True)
class RangeJob:
    """Offsets of one partition to read into one file."""

    key: TopicPartition
    start: int
    end: int
    """Exclusive."""
    out: str
    """The dump, as ``DumpRequest.out``: a folder that this host and the driver both see, or a bucket."""
    generation: int
    run: str
    """The part of a file name that all files of one run have, and those of no other."""
    bootstrap: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    """Settings of the Kafka client, which may contain passwords."""
    awaited: frozenset[str] = frozenset()
    """Digests of keys to look for (:mod:`kstate_cli.dump_writer.identity`)."""
    bytes_per_second: int | None = None
    counters: tuple[Counter, Counter] | None = None
    """Counters of records and bytes, if the task runs on this host."""
    counter_start: tuple[int, int] = (0, 0)
    """Records and bytes that earlier jobs with the same counters read."""
    seconds: float | None = None
    """Time limit after which the reading ends at a record; None: no limit."""

    @property
    def label(self) -> str:
        """The range in messages."""
        return f"offsets {self.start} to {self.end - 1} of {self.key}"


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The result of one attempt to read a range. Only attempts that the engine accepted count."""

    file: GrownFile | None
    """None if the range has no records."""
    last: LastRecord | None
    records: int
    size: int
    """Bytes of keys, values and headers in memory."""
    ended: BootTime
    """After its last record was read, by the clock of the host that read it."""
    another: str | None = None
    """Why this is another log than before; then nothing was read."""
    begins_later: bool = False
    """Whether the log began above ``start`` by then; then nothing was read."""
    tail: tuple[TailRecord, ...] = ()
    """Its last records."""
    awaited_keys: frozenset[str] = frozenset()
    """The awaited keys that the range has."""
    end: int | None = None
    """Exclusive end of the reading, if its time limit came before ``end`` of the job."""
    ended_ms: int = 0
    """``ended`` in the time of the dump, which the driver sets."""


class RangeQueue:
    """Jobs that wait for a reader. The rest of a job that reached its time limit comes first.

    The time limit of a job is the duration of the call so far. So a call that is interrupted at any moment has finished
    ranges for about half of its time, and only the first jobs are divided.
    """

    def __init__(self, jobs: Iterable[RangeJob]) -> None:
        self._waiting = deque(jobs)
        self._began = time.monotonic()

    def take(self) -> RangeJob | None:
        """Return the next job, with its time limit; None if none waits."""
        if not self._waiting:
            return None
        # The limit grows with the call, so that a long call divides its ranges only at the beginning.
        seconds = max(_LEAST_SECONDS, time.monotonic() - self._began)
        return replace(self._waiting.popleft(), seconds=seconds)

    def ended(self, job: RangeJob, result: RangeResult) -> RangeJob:
        """Return the part of the job that was read, and queue the rest."""
        if result.end is None:
            return job
        records, size = job.counter_start
        totals = records + result.records, size + result.size
        # First, so that ranges are finished in the order of offsets: a gap would make those behind it worthless.
        self._waiting.appendleft(replace(job, start=result.end, counter_start=totals))
        return replace(job, end=result.end)


OnProgress = Callable[[int, int], None]
"""Called with the records and bytes read so far, from another thread."""
OnResult = Callable[[RangeJob, RangeResult], None]
"""Called with each finished range, before :meth:`RangeRunner.run` returns or raises."""


class RangeRunner(Protocol):
    """An engine that reads ranges while it is open."""

    @property
    def slots(self) -> int:
        """The number of ranges that it reads at once."""

    def run(self, jobs: Sequence[RangeJob], on_progress: OnProgress, on_result: OnResult) -> None:
        """Read all ranges; those finished before an error or a signal count. Raises KstateError and OSError."""
