"""Notes that commands print in passing: which they are, whom they concern, and whether anything has to be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kstate_cli.explain.model import Texts
from kstate_cli.texts import command
from kstate_cli.texts import internals as see


@dataclass(frozen=True, slots=True)
class Note:
    """A note: parts of its sentence, in their order, and what it means."""

    parts: tuple[str, ...]
    """As the command prints them; names and numbers come between."""
    texts: Texts


_LS_SPEC = command("ls", "APP", "--spec")

NOTES: Final = {
    "no-position": Note(
        ("no changelog record told a Position of",),
        Texts(
            "No record of the dump carried a Position: the restored stores begin with an empty one",
            "Only applications with bounded queries (IQv2, PositionBound) are concerned: such a query fails with "
            "NOT_UP_TO_BOUND until new input comes. Rows and offsets are complete. Kafka Streams' own restoration from "
            "a topic without Positions ends the same way.",
            rule=f"StoreQueryUtils: the Position comes from the header c of changelog records ({see('changelogs.md')})",
            do=("without bounded queries: nothing", "with them: send one record to each input partition"),
        ),
    ),
    "no-headers": Note(
        ("the dump has no record headers",),
        Texts(
            "The dump was written without record headers, so it has no Positions",
            "Only applications with bounded queries (IQv2, PositionBound) are concerned, until new input comes. "
            "Stores with headers cannot be restored from such a dump; kstate refuses that.",
            do=("dump the topics with their headers: "
                + command("dump", "--bootstrap-server", "HOST:PORT", "--app", "ID", "--out", "DUMP"),),
        ),
    ),
    "rows-not-read": Note(
        ("the rows of the dump were not read",),
        Texts(
            "The dry run has not read the rows, so the restoration may still refuse the dump",
            "Damaged bytes, and rows that do not fit their stores, show only when rows are read. Nothing would be "
            "changed then either.",
            do=("run the dry run without --no-verify-dump",),
        ),
    ),
    "topic-not-used": Note(
        ("is in the dump, and no store is restored from it",),
        Texts(
            "The dump has a topic that belongs to no store of this application or that you excluded",
            "It does not matter if the topic belongs to another application, or to a store that was removed.",
            do=("if a store is missing in the plan: describe it in kstate.toml, and name that with --spec",),
        ),
    ),
    "in-memory": Note(
        ("is in memory: Streams restores it at every start",),
        Texts(
            "An in-memory store has no files: kstate restores nothing for it",
            "Every start of the application reads its changelog, before and after kstate.",
            do=("nothing",),
        ),
    ),
    "null-keys": Note(
        ("records without a key, which Streams skips too",),
        Texts(
            "The changelog has records without a key, which belong to no row",
            "Kafka Streams skips them when it restores, so the restored store is the same.",
            do=("if the topic is a changelog of Kafka Streams, find out what else writes to it",),
        ),
    ),
    "past-the-dump": Note(
        ("already past the dump",),
        Texts(
            "The store has everything that the dump has, so the restoration leaves it unchanged",
            "This is the usual state of a healthy store. If the note says that the log was cut or recreated, the "
            "store may hold the only copy of its records.",
            do=("if the log may have been recreated, compare with the broker: "
                + command("check", "APP", "--for", "RELEASE", "--bootstrap-server", "HOST:PORT"),),
        ),
    ),
    "as-of-last-flush": Note(
        ("as of", "last flush"),
        Texts(
            "The application is running: kstate shows the files as RocksDB flushed them last",
            "Rows and offsets that are still in the application's memory are missing from the answer. Nothing is "
            "wrong.",
            do=("for the newest rows, stop the application, or ask the application itself",),
        ),
    ),
    "not-logged": Note(
        ("it counts as a store without logging",),
        Texts(
            "No offset is stored anywhere, so kstate treats the store as one without a changelog",
            "If the application calls withLoggingDisabled() for it, all is well: its rows exist in this directory "
            "only. Otherwise the specification has to say so, or a restoration skips the store.",
            do=(f"if it has a changelog, set logged = true in the specification of: {_LS_SPEC}",),
        ),
    ),
    "kind-not-certain": Note(
        ("not certain from",),
        Texts(
            "The rows fit several kinds of store, or there are none",
            "ls, verify and check do not need the kind. restore, query and export do, as soon as the store has rows.",
            do=(f"set kind in the specification: {_LS_SPEC}",),
        ),
    ),
    "retention-not-known": Note(
        ("the bytes do not tell the history retention",),
        Texts(
            "The retention of a versioned store is in the application's code only",
            "It concerns restore alone, which has to know which versions are too old.",
            do=(f"set retention_ms to the historyRetention of the store, in the specification of: {_LS_SPEC}",),
        ),
    ),
    "source-not-known": Note(
        ("the bytes do not tell a globalTable from addGlobalStore",),
        Texts(
            "A global store may be filled by a globalTable, or by a processor of the application",
            "It concerns restore alone: only the rows of a globalTable are the records of its topic.",
            do=(f'set source = "table" or "processor", in the specification of: {_LS_SPEC}',),
        ),
    ),
    "dump-never-verified": Note(
        ("dump verified: never",),
        Texts(
            "No command has read all files of this dump yet, so rot in it would be unknown",
            "check judges offsets by the manifest, and needs no rows.",
            do=(f"read all files once, or a part each night: {command('verify-dump', 'DUMP')}",),
        ),
    ),
    "left-over": Note(
        ("left over, no running application leaves it",),
        Texts(
            "A crash left a temporary file in a task directory",
            "Kafka Streams ignores it, and overwrites it the next time.",
            do=("nothing",),
        ),
    ),
    "segments-without-offset": Note(
        ("segments without an offset (", "while others have one"),
        Texts(
            "Some segments of the store were never flushed before the application was killed",
            "Rows may be missing from these segments. ls, query, export and diff exit with 1 for that reason.",
            rule=f"a Position or an offset holds only if every segment has come so far ({see('offsets.md')})",
            do=(f"what the next start makes of it: {command('check', 'APP', '--for', 'RELEASE')}",),
        ),
    ),
    "unproven": Note(
        ("unproven: no", "was ever started on what is restored for it"),
        Texts(
            "No real application of this release has opened what kstate writes for it",
            "kstate follows the rules of the release before it.",
            do=("try it on a copy first, and keep the backup until the application runs",),
        ),
    ),
}  # fmt: skip
"""Code -> note. ``tests/unit/cli/test_explained_texts.py`` finds the parts in the texts of the commands."""
