"""Findings of ``check``: files of a task."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.explain.model import SILENT, Texts
from kstate_cli.formats.checkpoint import SAID_OF_MALFORMED
from kstate_cli.texts import command

_REBUILD = f"or rebuild it at once: {command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
_LOOK = f"what lies where: {command('ls', 'APP')}"

FILES: Final = {
    "malformed-checkpoint": Texts(
        "A .checkpoint cannot be read",
        "It is empty, cut off, of another version, or somebody has edited it. The start fails, in 4.3 even where "
        "another instance has the task, and fails again until the file is gone. Without the file the offsets of the "
        "task are gone too: under exactly-once it is wiped and restored.",
        (log.CHECKPOINT_NOT_LOADED, log.GLOBAL_CHECKPOINT_NOT_READ, log.CHECKPOINT_NOT_MIGRATED, *SAID_OF_MALFORMED),
        do=(_REBUILD,),
    ),
    "malformed-store-checkpoint": Texts(
        "A .checkpoint_STORE cannot be read",
        "4.3 keeps there the offset of a store that does not keep it itself: a grace buffer, a custom store. The start "
        "fails until it is gone.",
        (log.STORE_CHECKPOINT_NOT_LOADED, *SAID_OF_MALFORMED),
        do=(_REBUILD,),
    ),
    "malformed-position": Texts(
        "A STORE.position cannot be read",
        "It says up to which input record the store has come (IQv2). Rows and offsets are not touched by it, but the "
        "start fails, from 3.2 to 4.3.",
        (log.POSITION_NOT_READ, *SAID_OF_MALFORMED),
    ),
    "dropped-line": Texts(
        "A line of .checkpoint has a negative offset, and Streams passes over it",
        "The store counts as one without an offset: under exactly-once its task is wiped.",
        (log.LINE_DROPPED,),
    ),
    "foreign-in-segments": Texts(
        "Something that is no segment lies among the segments of a window or session store",
        "A backup, a folder of an editor, a file that was copied there. Up to 4.2 it keeps every segment from being "
        "opened: the store is empty, and its offset says that it is complete. 4.3 does not start.",
        (log.NO_SEGMENT_ID, log.SEGMENT_NAME_TOO_SHORT),
        do=(_LOOK,),
    ),
    "foreign-in-task": Texts(
        "A file that is none of Streams' lies in a task's directory",
        "Streams passes over it. But the task no longer counts as empty, so that one without offsets is wiped under "
        "exactly-once, the file with it.",
        SILENT,
    ),
    "lock-file-in-task": Texts(
        "A file whose name ends in .lock lies in a task's directory",
        "Very old releases locked tasks with such files. The next start deletes it.",
        SILENT,
    ),
    "leftover-file": Texts(
        "A .tmp that a crash has left",
        "Streams writes offsets to a .tmp, and renames it. It is written over at the next commit.",
        SILENT,
    ),
    "old-segment-name": Texts(
        "A segment has a name of a very old release",
        "It has a date or a colon in it. The next start renames the segment; its rows stay.",
        SILENT,
    ),
    "segment-off-grid": Texts(
        "The name of a segment is no multiple of the segment interval",
        "Streams computes which segment a time belongs to, and opens the directory of that name. This one it never "
        "opens, or opens under another name: its rows are missing without a word. Retention or segment interval were "
        "changed, or somebody has renamed it.",
        SILENT,
        do=(_REBUILD,),
    ),
    "shared-store-regrouped": Texts(
        "Several sub-topologies have a copy of one store",
        "Up to some patch releases, processors whose suppliers return one StoreBuilder are in sub-topologies of their "
        "own, each with a copy of the store; all copies write one changelog. 4.2.2 and 4.4.0 make one sub-topology "
        "with one store: numbers of tasks change, and Streams restores what moves. With both texts, rehome moves every "
        "other store and leaves the shared one to Streams, since no copy has the records of all.",
        (log.FROM_START, log.RESTORES_FROM_START),
        do=(_LOOK,),
    ),
    "store-in-two-subtopologies": Texts(
        "The same store lies in tasks of two subtopologies",
        "One of the directories is a copy that is named like a task, or a new topology has renumbered its "
        "subtopologies. 4.3 opens every task that it finds; with a global store it does not start.",
        (log.ANOTHER_TASK,),
        do=(_LOOK,),
    ),
}
