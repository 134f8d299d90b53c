"""Outcomes: what the next start does with a store, as ``check`` foretells it."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.check.outcome import Outcome
from kstate_cli.codes import SILENT
from kstate_cli.explain.model import Texts
from kstate_cli.texts import command
from kstate_cli.texts import internals as see

_FINDING = "look at the finding that it follows from: it says what to do"
_DUMP = (
    "to have it done before the start, from a dump: "
    f"{command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
)
_CHANGELOG = f"StoreChangelogReader ({see('changelogs.md#log-ends')})"
_WIPED = f"TaskCorruptedException, StateManagerUtil.closeStateManager ({see('start.md#wiped-tasks')})"

OUTCOMES: Final = {
    Outcome.OPENS: Texts(
        "The store opens as it is", "Nothing is restored.", (log.FROM_OFFSET,), _CHANGELOG, ("nothing",)
    ),
    Outcome.OPENS_EMPTY: Texts(
        "The store opens without its rows, all or some, and without a word",
        "Its offset says that it is complete, so nothing is restored. This is the worst of all: queries and joins give "
        "wrong answers, and nothing is printed.",
        (log.FROM_OFFSET,),
        f"AbstractSegments.openExisting; OffsetCheckpoint ({see('start.md#going-down')})",
        ("do not start the application", _FINDING),
    ),
    Outcome.RESTORES: Texts(
        "What lies between the offset and the end of the changelog is restored",
        "That is how Streams works.",
        (log.FROM_OFFSET, log.RESTORES_FROM_OFFSET, log.RESTORED),
        _CHANGELOG,
        (_DUMP,),
    ),
    Outcome.RESTORES_ALL: Texts(
        "The whole changelog is restored, over the rows that are there",
        "Keys that were deleted meanwhile may stay.",
        (log.FROM_START, log.RESTORES_FROM_START, log.RESTORED),
        _CHANGELOG,
        (_FINDING, _DUMP),
    ),
    Outcome.WIPED: Texts(
        "The directory of the task is deleted, then every store of it is restored from the beginning",
        "Streams calls a whole task corrupted, never a single store: for what is wrong with one, all of them pay.",
        (log.NO_OFFSETS, log.CORRUPTED, log.REVIVED, log.WIPED, log.RESTORES_FROM_START),
        _WIPED,
        (_FINDING, _DUMP),
    ),
    Outcome.LOST: Texts(
        "The task is wiped, and the store has no changelog: its rows are lost",
        "Nothing brings them back afterwards.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            "do not start the application",
            f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', '--out', 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.MAY_BE_LOST: Texts(
        "The task is wiped, and the store may have no changelog: without one its rows are lost",
        "A store that was not closed cleanly may have no offset yet although it has a changelog.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            "before the start, have the topics say it: --bootstrap-server, --dump or --offsets",
            f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', '--out', 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.FAILS: Texts(
        "The start fails, or a stream thread does: the client ends in ERROR",
        "It fails in the same way each time, until what it fails at is gone. check prints the exceptions, from the "
        "outermost on.",
        (log.STORE_NOT_OPENED, log.CHECKPOINT_NOT_LOADED, log.CHECKPOINT_NOT_MIGRATED, log.GLOBAL_FAILED),
        f"StateManagerUtil.registerStateStores ({see('start.md')})",
        (_FINDING,),
    ),
    Outcome.HANGS: Texts(
        "The client never leaves REBALANCING, and restores nothing",
        "With transactional stores, the first store that a task opens has status 1. Streams marks the stores opened "
        "before it as corrupted, which are none, so it wipes nothing and tries again without end. The order of the "
        "stores of a task is not on disk.",
        log.INVALID_STATE,
        f"TaskManager.closeDirtyAndRevive ({see('offsets.md#transactional-stores')})",
        (_FINDING,),
    ),
    Outcome.NOT_REACHED: Texts(
        "Another store of the task makes the start fail before this one is opened",
        "Nothing is known of what would become of it.",
        SILENT,
        "StateManagerUtil.registerStateStores: nothing follows a store that fails",
        ("look at the store that fails",),
    ),
    Outcome.UNKNOWN: Texts(
        "Unknown: the application runs, the broker lacks the log, or kstate does not read all of the task",
        "While the application runs, the files are those of its last flush, and how it closes the stores decides. What "
        "kstate does not read (a link, a database that its RocksDB refuses) never counts as missing.",
        SILENT,
        f"AbstractColumnFamilyAccessor.close, ProcessorStateManager.checkpoint ({see('start.md#clean-or-not')})",
        ("check again once the application is stopped", "the findings name what kstate does not read"),
    ),
    Outcome.IGNORED: Texts(
        "The release has no such store, or no such task",
        "The directory lies there until the cleaner deletes it.",
        SILENT,
        f"StateDirectory.cleanRemovedTasks ({see('layout.md#ages')})",
        ("move it out of the application directory, if it is wanted",),
    ),
}
