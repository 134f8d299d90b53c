"""What differs between the patch releases of one release of Kafka Streams, as far as its state is concerned.

Every patch release from 3.2.0 on was compared with the one before it, class by class (``javap -c -p``), for what reads
or writes state or gives sub-topologies their numbers. A difference is one entry of ``DIFFERENCES``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LAST_EXAMINED: Final = {
    "3.2": 3, "3.3": 2, "3.4": 1, "3.5": 2, "3.6": 2, "3.7": 2, "3.8": 1, "3.9": 2, "4.0": 2, "4.1": 2, "4.2": 2,
    "4.3": 1, "4.4": 0,
}  # fmt: skip
"""The last patch release of each release that was compared."""


@dataclass(frozen=True, slots=True)
class PatchDifference:
    """One change of behaviour that came with a patch release."""

    name: str
    issue: str
    """The issue of Apache Kafka; empty where the change has none that names it."""
    source: str
    """The class and method of Kafka Streams."""
    old: tuple[tuple[str, str], ...]
    """The patch releases that behave the old way: first and last of each stretch, both included."""
    before: str
    after: str
    proof: str
    """The test that asks real releases, or how the bytecode was read."""
    decides_start: bool
    """Whether the same directory has another next start: then options keep the patch release."""


SHARED_STORE_BUILDER: Final = PatchDifference(
    "shared-store-builder",
    "KAFKA-20464",
    "InternalTopologyBuilder.addStateStore",
    (("2.6.0", "4.2.1"), ("4.3.0", "4.3.1")),
    "if the suppliers of several processors return the same StoreBuilder, Streams puts these processors into "
    "separate sub-topologies. Each has its own copy of the store, and all copies write to one changelog",
    "Streams puts these processors into one sub-topology with one store. The task numbers change, and Streams "
    "restores every store that moves",
    "tests/interop/test_patch_releases.py::test_store_builder_shared_by_two_suppliers",
    decides_start=True,
)
NEWEST_SEGMENT: Final = PatchDifference(
    "newest-segment",
    "",
    "AbstractSegments.committedOffset",
    (("4.3.0", "4.3.0"),),
    "a segmented store has the offset of its oldest segment that has one",
    "the store has the offset of its newest segment that has one",
    "bytecode: TreeMap.values of 4.3.0, TreeMap.descendingMap of 4.3.1",
    decides_start=True,
)
BOUNDED_RESTORE: Final = PatchDifference(
    "bounded-restore",
    "",
    "StoreChangelogReader.seekNewPartitions",
    (("2.6.0", "4.2.1"), ("4.3.0", "4.3.1")),
    "Streams restores a window or session store without an offset from the beginning of its changelog",
    "if Streams can read the last record's time, it restores such a store from that time minus the retention",
    "tests/interop/test_killed.py::test_at_least_once with 4.2.2 and 4.4.0",
    decides_start=True,
)
BACKWARD_PROBE: Final = PatchDifference(
    "backward-probe",
    "",
    "StoreChangelogReader.runBackwardProbe, shouldProbePastStoredOffset",
    (("2.6.0", "4.2.1"), ("4.3.0", "4.4.0")),
    (
        "Streams reads the time only from the record right before the log end. If this record is a transaction "
        "marker, Streams reads all records. A store with an offset is restored from this offset"
    ),
    (
        "Streams uses the highest time in the last 128, 512 or 2,048 offsets, even if they end with markers. In an "
        "active task, it also skips expired records if the store's offset is 16,384 or more before the log end"
    ),
    "tests/interop/test_patch_releases.py::test_a_windowed_store_far_behind",
    decides_start=True,
)
GLOBAL_OFFSETS: Final = PatchDifference(
    "global-offsets",
    "KAFKA-18168",
    "GlobalStateUpdateTask.close",
    (("3.7.1", "3.9.1"), ("4.0.0", "4.0.1")),
    "a global store that has received fewer than 10,000 records writes no offset, so the next start reads its whole "
    "topic",
    "Streams writes the offset when it opens and closes the store",
    "tests/interop/test_restore_kinds.py with 3.7.2, 3.8.1 and 3.9.1",
    decides_start=False,
)
DIFFERENCES: Final = (SHARED_STORE_BUILDER, NEWEST_SEGMENT, BOUNDED_RESTORE, BACKWARD_PROBE, GLOBAL_OFFSETS)
"""All of them. Beside these 4.0.1, 4.1.1 and 4.2.0 brought ``__enable.process.processValue.fix__``, off by default."""


def is_new(difference: PatchDifference, line: str, patch: int | None) -> bool | None:
    """Return whether a release behaves the new way; None if an unnamed or unknown patch release decides.

    ``line``: the release, ``4.2``; ``patch``: 2 of 4.2.2, None if it is not named.
    """
    last_examined = LAST_EXAMINED.get(line)
    if last_examined is None:
        # A release that was not examined keeps a change that an earlier release brought. Nothing else is certain.
        if _numbers(f"{line}.0") > max(_numbers(last) for _, last in difference.old):
            return True
        return None
    if patch is None:
        # The user names the minor release only: certain is what all of its patch releases do.
        answers = {_is_new(difference, line, number) for number in range(last_examined + 1)}
        return answers.pop() if len(answers) == 1 else None
    # A later patch release may have brought the change; none takes one back.
    if _is_new(difference, line, min(patch, last_examined)):
        return True
    return None if patch > last_examined else False


def decides(line: str) -> bool:
    """Return whether patch releases of a release have different next starts on one directory."""
    return any(change.decides_start and is_new(change, line, None) is None for change in DIFFERENCES)


def behaviour(line: str, patch: int | None) -> tuple[bool | None, ...]:
    """Return the behaviour of a patch release for each difference that a start depends on."""
    return tuple(is_new(change, line, patch) for change in DIFFERENCES if change.decides_start)


def old_releases(difference: PatchDifference) -> str:
    """Return the patch releases that behave the old way, as text: ``up to 4.2.1, 4.3.0 and 4.3.1``."""
    texts = []
    for first, last in difference.old:
        line, patch = last.rsplit(".", 1)
        if first == last:
            texts.append(last)
        elif first == f"{line}.{int(patch) - 1}":
            texts += [first, last]
        # 3.2 is the oldest release that kstate knows: the first patch release before it means nothing to a reader.
        elif _numbers(first) < _numbers("3.2.0"):
            texts.append(f"up to {last}")
        else:
            texts.append(f"{first} to {last}")
    *others, last_text = texts
    if not others:
        return last_text
    return f"{', '.join(others)} and {last_text}"


def _is_new(difference: PatchDifference, line: str, patch: int) -> bool:
    # Numbers, not texts: 3.10 is after 3.9.
    version = _numbers(f"{line}.{patch}")
    return not any(_numbers(first) <= version <= _numbers(last) for first, last in difference.old)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
