"""
What a power failure leaves of recorded operations: unsynced ones may be lost, and unsynced bytes torn.

The model of durability is the weakest that POSIX permits and file systems with a journal have:

- ``fsync`` and ``fdatasync`` of a file make its bytes and size durable, but not its name. ``fsync`` of a folder makes the
  names in it durable, but not the folder's own name. ``syncfs`` makes everything durable.
- A rename, also one that exchanges, happens completely or not at all. It is durable when both folders are synced.
- Of unsynced names, a file system with one journal (ext4, xfs) keeps a prefix (`JOURNAL`). Otherwise each may be lost
  alone (`UNORDERED`): only changes of the same name, or of names of the same file or folder, keep their order.
- Unsynced bytes may be lost completely, in part, or in single sectors of 512 bytes. A file may have its new size and zeros
  instead of its bytes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .file_operations import Bytes, Names, Operation, Recording, Size, Sync, Tree

JOURNAL, UNORDERED = "journal", "unordered"
ORDERS = (JOURNAL, UNORDERED)
SECTOR_BYTES = 512
LOST, COMPLETE, CUT_OFF, SCATTERED, ZEROS = range(5)
"""What becomes of the unsynced bytes of a file."""
_NEAR = 3
"""Operations around the rename or the synchronization to which a moment is near."""
_END_SHARE, _NEAR_SHARE, _LATE_SHARE = 0.1, 0.3, 0.3
_LATE = 0.85
"""From this part of a command on it makes its result durable, switches, and records that."""


@dataclass(frozen=True)
class PowerFailure:
    """A power failure after so many operations."""

    moment: int
    order: str
    seed: int

    def remains(self, recording: Recording) -> Tree:
        """Return the directory that the next start finds."""
        generator = random.Random(f"{self.moment} {self.order} {self.seed}")
        operations = recording.operations[: self.moment]
        durable = _durable(operations)
        tree = recording.before.copy()
        for at in sorted(_surviving_names(operations, durable, self.order, generator)):
            tree.apply(operations[at])
        pending: dict[int, list[tuple[int, Bytes | Size]]] = defaultdict(list)
        for at, operation in enumerate(operations):
            if isinstance(operation, Bytes | Size):
                pending[operation.file].append((at, operation))
        fate = generator.choice((None, LOST, COMPLETE, ZEROS))
        for writes in pending.values():
            choice = generator.randrange(5) if fate is None else fate
            _apply_writes(tree, writes, durable, choice, generator)
        return tree


def durable_part(recording: Recording) -> Tree:
    """Return the directory that every power failure after the last operation leaves at least."""
    durable = _durable(recording.operations)
    names = [at for at, operation in enumerate(recording.operations) if isinstance(operation, Names)]
    tree = recording.before.copy()
    for at in sorted(durable | _with_earlier(recording.operations, names, durable.intersection(names))):
        tree.apply(recording.operations[at])
    return tree


def draw(recording: Recording, order: str, generator: random.Random) -> PowerFailure:
    """Draw a moment: the end, next to a rename or a synchronization, in the last part of the command, or any."""
    count = len(recording.operations)
    kind = generator.random()
    if kind < _END_SHARE:
        moment = count
    elif kind < _END_SHARE + _NEAR_SHARE:
        places = [
            at
            for at, operation in enumerate(recording.operations)
            if isinstance(operation, Sync) or (isinstance(operation, Names) and len(operation.changes) > 1)
        ]
        moment = generator.choice(places or [count]) + generator.randint(-_NEAR, _NEAR)
    elif kind < _END_SHARE + _NEAR_SHARE + _LATE_SHARE:
        moment = generator.randint(int(_LATE * count), count)
    else:
        moment = generator.randint(0, count)
    return PowerFailure(min(max(moment, 0), count), order, generator.randrange(1 << 32))


def without_syncs(recording: Recording, removed: set[int]) -> Recording:
    """Return the recording of a command that lacks some calls: `removed` are indices of operations."""
    operations = []
    for at, operation in enumerate(recording.operations):
        if at in removed:
            assert isinstance(operation, Sync), operation
            # It stays as the synchronization of nothing, so that indices are the same.
            operation = Sync(_NOTHING, operation.begun)
        operations.append(operation)
    return Recording(recording.before, tuple(operations))


_NOTHING = -1


def _durable(operations: Sequence[Operation]) -> set[int]:
    """Return the indices of the operations that a later synchronization has made durable."""
    last: dict[int | None, int] = {}
    for operation in operations:
        if isinstance(operation, Sync):
            last[operation.number] = max(last.get(operation.number, 0), operation.begun)
    everything = last.get(None, 0)
    durable = set()
    for at, operation in enumerate(operations):
        if isinstance(operation, Sync):
            continue
        owners = operation.folders if isinstance(operation, Names) else {operation.file}
        if at < everything or all(at < last.get(owner, 0) for owner in owners):
            durable.add(at)
    return durable


def _surviving_names(
    operations: Sequence[Operation], durable: set[int], order: str, generator: random.Random
) -> set[int]:
    """Return the indices of the changes of names that the disk has."""
    names = [at for at, operation in enumerate(operations) if isinstance(operation, Names)]
    fixed = [at for at in names if at in durable]
    if order == JOURNAL:
        first = fixed[-1] + 1 if fixed else 0
        later = [at for at in names if at >= first]
        return {at for at in names if at < first} | set(
            later[: generator.choice((0, generator.randint(0, len(later)), len(later)))]
        )
    chance = generator.choice((0.0, 0.2, 0.5, 0.8, 1.0))
    required = _with_earlier(operations, names, set(fixed))
    broken: set[object] = set()
    surviving = set()
    for at in names:
        operation = operations[at]
        assert isinstance(operation, Names)
        keys = _keys(operation)
        if at in required or (not keys & broken and generator.random() < chance):
            surviving.add(at)
        else:
            broken |= keys
    return surviving


def _with_earlier(operations: Sequence[Operation], names: list[int], durable: set[int]) -> set[int]:
    """Add the earlier changes of the same names, files and folders: those that follow cannot reach the disk without them."""
    required = set(durable)
    keys: set[object] = set()
    for at in reversed(names):
        operation = operations[at]
        assert isinstance(operation, Names)
        if at in required or keys & _keys(operation):
            required.add(at)
            keys |= _keys(operation)
    return required


def _keys(operation: Names) -> set[object]:
    return {(folder, name) for folder, name, _ in operation.changes} | set(operation.subjects)


def _apply_writes(
    tree: Tree, writes: list[tuple[int, Bytes | Size]], durable: set[int], choice: int, generator: random.Random
) -> None:
    """Write what the disk has of the bytes of one file."""
    pending = []
    for at, operation in writes:
        if at in durable:
            tree.apply(operation)
        else:
            pending.append(operation)
    if choice == COMPLETE:
        for operation in pending:
            tree.apply(operation)
    elif choice == CUT_OFF and pending:
        count = generator.randrange(len(pending))
        for operation in pending[:count]:
            tree.apply(operation)
        if isinstance(cut := pending[count], Bytes):
            # The first sector of the write ends where the file's sector does.
            sectors = (cut.at + len(cut.data)) // SECTOR_BYTES
            end = generator.randint(cut.at // SECTOR_BYTES, sectors) * SECTOR_BYTES
            tree.apply(Bytes(cut.file, cut.at, cut.data[: max(0, end - cut.at)]))
    elif choice == SCATTERED:
        for operation in pending:
            _scatter(tree, operation, generator)
    elif choice == ZEROS and pending:
        file = pending[0].file
        ends = (entry.size if isinstance(entry, Size) else entry.at + len(entry.data) for entry in pending)
        tree.apply(Size(file, max(len(tree.entries[file].content), *ends)))


def _scatter(tree: Tree, operation: Bytes | Size, generator: random.Random) -> None:
    """Apply a change of the size or not, and of written bytes some sectors."""
    if isinstance(operation, Size):
        if generator.random() < 0.5:
            tree.apply(operation)
        return
    at = operation.at
    while at < operation.at + len(operation.data):
        end = min((at // SECTOR_BYTES + 1) * SECTOR_BYTES, operation.at + len(operation.data))
        if generator.random() < 0.5:
            tree.apply(Bytes(operation.file, at, operation.data[at - operation.at : end - operation.at]))
        at = end
