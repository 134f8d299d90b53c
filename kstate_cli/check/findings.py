"""What a finding of ``kstate check`` is. The entries of all codes are in ``check/codes``."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kstate_cli.codes import Code


class Level(Enum):
    """How severe a finding is."""

    EXPECTED = "expected"
    """How Streams works: nothing to do, and no reason for an exit code."""
    WARNING = "warning"
    """It costs a restoration, or may cost one later."""
    ERROR = "error"
    """The start fails, or rows are silently missing or wrong."""


@dataclass(frozen=True, slots=True)
class FindingCode(Code):
    """One kind of finding. Its rule names the class of Kafka Streams, the KIP and the section of docs/internals.

    The hint is a command, or an instruction if no command helps. kstate fills in ``APP``, ``TASK``, ``STORE``, ``NEW``
    (the topology), ``STARTED`` (the release), and ``RELEASE`` (the release with the options that writing needs).
    """

    level: Level = field(compare=False, kw_only=True)
    changes_at_close: bool = field(default=False, compare=False, kw_only=True)
    """Closing the application, or its next commit, brings the finding or removes it.

    A running application has its stores open, and states offsets and a status only when it commits or closes them. Up
    to 4.2, exactly-once has no ``.checkpoint`` while it runs. The offsets on disk are those of the last flush.
    """
    states_absence: bool = field(default=False, compare=False, kw_only=True)
    """The finding states that something does not exist, which a task that was read in part does not prove."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact in or about a directory that decides, or may decide, what a start does."""

    code: FindingCode
    level: Level
    """That of the code, unless the case is worse or better than usual."""
    hint: str
    text: str
    task: str | None = None
    store: str | None = None


# Templates of hints that several codes share.
MIGRATE: Final = "kstate migrate APP --to RELEASE"
RESTORE: Final = "kstate restore APP --from-changelog DUMP --for RELEASE"
RESTORE_STORE: Final = f"{RESTORE} --store STORE"
WIPE_TASK: Final = "kstate wipe APP --task TASK"
WIPE_GLOBAL: Final = "kstate wipe APP --global"
WIPE_STORE: Final = "kstate wipe APP --task TASK --store STORE"
REHOME: Final = "kstate rehome APP --topology NEW"
NOTHING: Final = "nothing to do"
EXPORT_FIRST: Final = (
    "do not start the application: it would restore from a log that has lost these records; export first: "
    "kstate export APP STORE --out DIR"
)
