"""``.checkpoint``, ``.checkpoint_<store>`` and ``<store>.position``: one text format (``OffsetCheckpoint``).

UTF-8 lines: the format version ``0``, the number of entries, then ``<topic> <partition> <offset>`` per entry. What an
offset means is not in the file: the last applied changelog record for a task store, the next record to read for a
global store, the last applied input record in a ``.position``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.binary import MAX_I32, MAX_I64, MIN_I32, MIN_I64, MalformedBytesError
from kstate_cli.formats.topic_partition import TopicPartition

OFFSET_UNKNOWN: Final = -4
"""A consistent store without a known offset (``OffsetCheckpoint.OFFSET_UNKNOWN``)."""

MOST_ENTRIES: Final = 1 << 14
"""So many lines are read: a task has one for each store, or each partition that its stores were fed from."""

_VERSION: Final = 0
_FIELDS: Final = 3
# BufferedReader.readLine ends a line at any of these; str.splitlines knows more and would cut lines that Java keeps.
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
# Java's \s without UNICODE_CHARACTER_CLASS.
_BLANKS: Final = re.compile(r"[ \t\n\x0b\f\r]+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS: Final = 19
_MESSAGES: Final = {
    "EOFException": "File ended prematurely.",
    "IllegalArgumentException": "Unknown offset checkpoint version: ",
    "IOException": "entries but found only ",
    "MalformedInputException": "Input length = ",
    "NumberFormatException": "For input string: ",
}
_MALFORMED_LINE: Final = "Malformed line in offset checkpoint file: "
MALFORMED_FILE_MESSAGES: Final = (*_MESSAGES.values(), _MALFORMED_LINE)
"""How the messages of Java's exceptions begin, for files that ``OffsetCheckpoint.read`` does not take."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the reader of Streams takes from a file.

    ``entries`` holds offsets >= 0 or :data:`OFFSET_UNKNOWN`; ``dropped`` the lines with any other negative offset,
    which Streams leaves out with a warning.
    """

    entries: Mapping[TopicPartition, int]
    dropped: tuple[str, ...] = ()


def parse(data: bytes) -> Checkpoint:
    """Read a file the way ``OffsetCheckpoint.read`` does.

    Accepted as there: CRLF, several blanks or tabs between fields, trailing blanks of an entry, and a repeated
    topic-partition (the last one wins, and counts once). Refused as there, as :class:`MalformedBytesError`:

    ====================================================== ============================
    no first or second line                                ``EOFException``
    version other than 0                                   ``IllegalArgumentException``
    a line that is not three fields, also an empty one     ``IOException``
    count other than the number of distinct kept entries   ``IOException``
    a number that ``parseInt`` / ``parseLong`` refuse      ``NumberFormatException``
    not UTF-8                                              ``MalformedInputException``
    more than :data:`MOST_ENTRIES` lines                   none: Streams reads them
    a line that begins with a blank                        none: Streams reads a topic ""
    ====================================================== ============================

    Each dropped line lowers the expected count by one. Digits other than ASCII, which Java accepts, are refused.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"the file is not UTF-8 at byte {error.start}", "MalformedInputException") from None
    # The number of lines is bounded, since a file of another kind may have millions of them.
    lines = _LINE_END.split(text, maxsplit=MOST_ENTRIES + _FIELDS)
    if len(lines) > MOST_ENTRIES + _FIELDS:
        raise MalformedBytesError(f"the file has more than {MOST_ENTRIES:,} lines")
    if lines[-1] == "":
        # The text after the last newline is empty: it is no line.
        lines.pop()
    version = _header(lines, 0, "version")
    if version != _VERSION:
        raise _malformed(
            f"the version of the offset checkpoint is {version}, which is unknown", "IllegalArgumentException"
        )
    expected = _header(lines, 1, "number of entries")
    entries: dict[TopicPartition, int] = {}
    dropped: list[str] = []
    for number, line in enumerate(lines[2:], start=3):
        topic_partition, offset = _entry(line, number)
        # ``OffsetCheckpoint.read`` skips other negative offsets with a warning, and expects as many entries less.
        if offset >= 0 or offset == OFFSET_UNKNOWN:
            entries[topic_partition] = offset
        else:
            dropped.append(line)
    expected -= len(dropped)
    # The count reveals a file that lost its end. Otherwise the stores of the lost lines would silently count as without
    # offset, and Streams restores those from the beginning.
    if len(entries) != expected:
        raise _malformed(f"the file should have {expected} entries, but has {len(entries)}", "IOException")
    return Checkpoint(entries, tuple(dropped))


def render(entries: Mapping[TopicPartition, int]) -> bytes:
    r"""Return the bytes of a file with ``entries``, sorted by topic and partition, lines ended by ``\\n``.

    :class:`ValueError` for what ``OffsetCheckpoint.write`` refuses (a negative offset other than
    :data:`OFFSET_UNKNOWN`), for what its reader could not take back (a blank in a topic, a number out of range), and
    for no entries at all: Streams then deletes the file instead of writing one.
    """
    if not entries:
        raise ValueError("a checkpoint without entries must be deleted, not left empty")
    lines = [str(_VERSION), str(len(entries))]
    for topic_partition, offset in sorted(entries.items()):
        topic, partition = topic_partition.topic, topic_partition.partition
        if (offset < 0 and offset != OFFSET_UNKNOWN) or offset > MAX_I64:
            raise ValueError(f"a checkpoint cannot contain the offset {offset} of {topic_partition}")
        # Blanks separate the fields, so a topic with a blank would be read back as two fields.
        if not topic or _BLANKS.search(topic) is not None:
            raise ValueError(f"a checkpoint cannot contain the topic {topic!r}")
        if not MIN_I32 <= partition <= MAX_I32:
            raise ValueError(f"partition {partition} of {topic} is out of range")
        lines.append(f"{topic} {partition} {offset}")
    return ("\n".join(lines) + "\n").encode("utf-8")


def _header(lines: list[str], index: int, field: str) -> int:
    if index >= len(lines):
        raise _malformed(f"the file ends before the {field} (line {index + 1})", "EOFException")
    return _number(lines[index], MIN_I32, MAX_I32, f"{field} in line {index + 1}")


def _entry(line: str, number: int) -> tuple[TopicPartition, int]:
    """Return topic-partition and offset of a line; ``number`` is that of the line, for messages."""
    fields = _BLANKS.split(line)
    # Pattern.split drops empty trailing strings but keeps an empty leading one: blanks may end a line, not start it.
    while fields and not fields[-1]:
        fields.pop()
    if len(fields) != _FIELDS:
        text = f"line {number} does not have three fields: {line[:80]!r}"
        raise MalformedBytesError(text, "IOException", streams_message=_MALFORMED_LINE)
    # Java reads a line that begins with a blank as an empty topic. No log has that name, and kstate could not write it.
    if not fields[0]:
        raise MalformedBytesError(f"line {number} does not contain a topic: {line[:80]!r}")
    partition = _number(fields[1], MIN_I32, MAX_I32, f"partition in line {number}")
    offset = _number(fields[2], MIN_I64, MAX_I64, f"offset in line {number}")
    return TopicPartition(fields[0], partition), offset


def _number(text: str, low: int, high: int, field: str) -> int:
    # Java accepts any number of leading zeros. They are not part of the pattern: a second repetition beside that of the
    # digits would try every division of a long line into the two.
    digits = text.lstrip("+-").lstrip("0") or "0"
    # The length is looked at first: int() refuses thousands of digits with an error of its own.
    if _NUMBER.fullmatch(text) is not None and len(digits) <= _MAX_DIGITS:
        number = int(digits)
        if text.startswith("-"):
            number = -number
        if low <= number <= high:
            return number
    raise _malformed(f"the {field} is not a number in range: {text[:80]!r}", "NumberFormatException")


def _malformed(reason: str, exception: str) -> MalformedBytesError:
    return MalformedBytesError(reason, exception, streams_message=_MESSAGES[exception])
