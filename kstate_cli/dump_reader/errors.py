"""The errors of dumps, and their hints."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from kstate_cli import option
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.texts import command

NOT_REACHED: Final = "check that the dump is reachable and that this user may read it"
"""The hint for a file that the system cannot read; its contents are unknown."""

NEW_DUMP: Final = "write a new dump to an empty folder"
"""The hint for a dump with contradicting files. No hint asks to remove files, which would lose records."""
FEWER_FILES: Final = "write the dump again with fewer and larger files, or divide it into several dumps"
"""The hint for a dump with more files than kstate reads."""
SMALLER_GROUPS: Final = "write the dump again with larger row groups and fewer columns, or with smaller files"
"""The hint for a file with a footer that kstate does not read."""
WHOLE_COPY: Final = f"copy the dump again from a complete copy, manifests last, or {NEW_DUMP}"


class DumpError(Refused):
    """A dump is contradictory or unreadable. kstate changed nothing."""

    code = "dump"
    usual_hint = "write the dump again or pass another dump"


class Damage:
    """The damaged partitions of a dump, for readers that need only some of its partitions."""

    def __init__(self, *, is_tolerated: bool) -> None:
        self._is_tolerated = is_tolerated
        self.partitions: dict[TopicPartition, str] = {}

    def add(self, keys: Iterable[TopicPartition], error: DumpError) -> None:
        """Record ``error`` for these partitions. Raise it if a whole dump is needed, or its partitions are unknown."""
        partitions = [*keys]
        # Without partitions it is unknown whether the reader needs the file. So it is treated as if the reader did.
        if not self._is_tolerated or not partitions:
            raise error
        text = error.message
        if error.where is not None:
            text += f" ({error.where})"
        for key in partitions:
            # One defect is enough to refuse a partition. The first one is kept, as in the message about a whole dump.
            self.partitions.setdefault(key, text)


class NoManifestError(DumpError):
    """A dump has no manifest. You did not pass ``option.DUMP_IS_COMPLETE``, or the command has no such option."""


class DumpRot(DumpError):
    """The bytes of a dump file have changed since kstate wrote the file."""

    code = "dump-rot"


def rot(path: str, message: str, *, growing: str | None = None) -> DumpRot:
    """Return the error of a file whose bytes have changed since it was written.

    ``growing`` is the path of the dump if it can grow: then a new full dump in it replaces the damaged one.
    """
    # A dump that was written at once cannot grow, so the topics are read into a new dump.
    out: tuple[str, ...] = ("NEW",)
    if growing is not None:
        out = (growing, option.FULL)
    return DumpRot(
        message,
        where=printable(path),
        hint=(
            "some bytes of this file have changed, so check the disk and the memory. Replace the file with the same "
            "file from another copy of the dump. If you have no other copy, write a new full dump while the broker "
            "still has the records:"
        ),
        hint_details=[command("dump", option.BOOTSTRAP_SERVER, "HOST:PORT", option.APP, "ID", option.OUT, *out)],
    )


def unreadable(path: str, error: Exception) -> DumpError:
    """Return the error of a file that the system cannot read, or whose pages cannot be decoded.

    pyarrow raises an OSError without errno both for damaged pages and for an object store that does not answer. This
    means damage only if the file is local and exists.
    """
    # An error with errno comes from the system: missing rights, a lost connection, a broken disk. It says nothing about
    # the bytes of the file.
    if not isinstance(error, OSError) or (error.errno is None and os.path.isfile(path)):
        return rot(path, f"the file is damaged. kstate cannot decode one of its pages: {error}")
    return DumpError(f"kstate cannot read the file: {error}", where=printable(path), hint=NOT_REACHED)


def printable(text: str) -> str:
    """Return ``text`` for a message: control characters, which names in a dump may have, are escaped."""
    return text if text.isprintable() else repr(text)
