"""Start offsets of input topics that the user states: where kstate cannot derive an offset from that of the source.

With fewer partitions the new application reads another topic. On another cluster a record may be gone or there twice.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.partitions import PartitionMetadata
from kstate_cli.formats.topic_partition import MOST_PARTITIONS, TopicPartition, legal_topic
from kstate_cli.regular_files import read_given
from kstate_cli.seed.cluster import Connection
from kstate_cli.seed.emitted_windows import decoded_metadata, emitted_ends
from kstate_cli.texts import first_lines, plural

_FORM: Final = "topic,partition,offset"


def read_start_offsets(path: Path) -> dict[TopicPartition, int]:
    """Read ``topic,partition,offset`` of each line, the format in which ``kafka-consumer-groups.sh`` exports offsets.

    Raises UsageError with the line.
    """
    try:
        text = read_given(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{option.START_OFFSETS}: kstate cannot read {path}: {error}", hint="pass a text file"
        ) from None
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = next(csv.reader([line]), [])
        key, offset = _row(fields, path, number)
        if key in offsets:
            raise UsageError(f"{path}, line {number}: {key} already has an offset", hint="remove one of the lines")
        offsets[key] = offset
    if not offsets:
        raise UsageError(f"{path} contains no offsets", hint=f"write {_FORM} in each line")
    return offsets


def _row(fields: list[str], path: Path, number: int) -> tuple[TopicPartition, int]:
    problem = UsageError(f"line {number} of {path} does not have the form {_FORM}", hint=f"write one {_FORM} per line")
    if len(fields) != len(_FORM.split(",")):
        raise problem
    topic, partition, offset = fields
    # int() also takes signs, spaces and underscores.
    if not legal_topic(topic) or not all(text.isascii() and text.isdigit() for text in (partition, offset)):
        raise problem
    if int(partition) >= MOST_PARTITIONS or int(offset) > MAX_I64:
        raise problem
    return TopicPartition(topic, int(partition)), int(offset)


def stated_offsets(
    target: Connection,
    stated: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, CommittedOffset],
    moved: Collection[str],
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets that the user states, with metadata. Raises Refused and RunFailed.

    ``committed``: the offsets of the source in its input topics. A partition that the source has read keeps its
    metadata, unless its topic is one of ``moved``. Any other gets the ends of emitted windows that all tasks of the
    source have reached. Kafka Streams learns the partition time from the first record.
    """
    if not stated:
        return {}
    logs = ask_broker(target.bootstrap, target.settings, group=None, topics=sorted({key.topic for key in stated}))
    problems = [*_problems(stated, logs)]
    if problems:
        raise Refused(
            f"kstate cannot commit {plural(len(problems), 'start offset')}",
            details=first_lines(problems),
            hint=f"correct the {option.START_OFFSETS} file",
        )
    unmoved = {key: place for key, place in committed.items() if key.topic not in moved}
    other = b""
    if not stated.keys() <= unmoved.keys():
        other = _metadata_of_others(committed)
    offsets = {}
    for key, offset in stated.items():
        metadata = other
        if key in unmoved:
            metadata = unmoved[key].metadata
        offsets[key] = CommittedOffset(offset, metadata)
    return offsets


def _metadata_of_others(committed: Mapping[TopicPartition, CommittedOffset]) -> bytes:
    """Return the metadata for a partition that the source did not read; empty if no window was emitted."""
    ends = emitted_ends({key: decoded_metadata(key, place.metadata) for key, place in committed.items()})
    if not ends:
        return b""
    return PartitionMetadata(processors=ends).encode()


def _problems(stated: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogFacts]) -> list[str]:
    """Return which offsets do not exist, and which partitions have none: their start would be left to a default."""
    problems = []
    for key, offset in sorted(stated.items()):
        log = logs.get(key)
        if log is None:
            problems.append(f"{key}: the target does not have this partition")
        elif not log.start <= offset <= log.end:
            problems.append(f"{key}: {offset} is not between the log start {log.start} and the log end {log.end}")
    problems += [f"{key}: the file has no offset for this partition" for key in sorted(logs) if key not in stated]
    return problems
