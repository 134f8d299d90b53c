"""Stores that are to be read whole, and whether they stay as they are meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.errors import InUse
from kstate_cli.rocks.files import CURRENT
from kstate_cli.rocks.health import current as read_current
from kstate_cli.rows.databases import Databases
from kstate_cli.rows.open import open_store
from kstate_cli.rows.segment import Segment
from kstate_cli.rows.store import ReadAs, StoreReader
from kstate_cli.statedir.model import Application, Store, Task


def open_whole(
    task: Task, store: Store, others: Sequence[Store], databases: Databases, *, kind: str | None = None
) -> StoreReader:
    """The reader of a store of which every row is wanted, as bytes; raises and takes what ``open_store`` does."""
    return open_store(task, store, others, databases, ReadAs(kind))


def others_of(app: Application, task: Task, store: Store) -> list[Store]:
    """The stores of that name in all tasks of the topology: what its own rows do not tell of its kind, theirs may."""
    return [one for of in app.tasks if of.topology == task.topology for one in of.stores if one.name == store.name]


def filled(reader: StoreReader, store: Store) -> list[Segment]:
    """The databases of a store that have rows."""
    with_rows = {database.path for database in store.databases if not database.empty}
    return [segment for segment in reader.segments if segment.path in with_rows]


def refuse_running(app: Application, *, last_flush: bool) -> None:
    """Raises InUse beside a running application, unless what was flushed last is asked for."""
    if app.running and not last_flush:
        holder = f"process {app.pid}" if app.pid else "another process"
        raise InUse(
            f"{app.path} is open in {holder}: its newest rows are not on disk",
            hint="stop the application, or take what was flushed last (--last-flush)",
        )


@dataclass(frozen=True, slots=True)
class Steady:
    """What databases look like that nobody writes to."""

    app: Path
    seen: tuple[tuple[Path, tuple[object, ...]], ...]

    @classmethod
    def of(cls, app: Application, stores: Iterable[Store]) -> Steady:
        """As they are now."""
        return cls(app.path, tuple((one.path, _look(one.path)) for store in stores for one in store.databases))

    def check(self) -> None:
        """Raises InUse where one of them has been opened or written to since: its parts may not fit together."""
        for path, before in self.seen:
            if _look(path) != before:
                raise InUse(
                    f"{path.relative_to(self.app)} has changed while it was read",
                    hint="stop the application, and run the command again",
                )


def _look(path: Path) -> tuple[object, ...]:
    """RocksDB replaces CURRENT when it opens a database for writing, and writes the MANIFEST when files change."""
    try:
        current = (path / CURRENT).stat()
        if (name := read_current(path).meant) is None:
            return ()
        manifest = (path / name).stat()
    except (OSError, ValueError):
        return ()
    return current.st_mtime_ns, current.st_ino, manifest.st_mtime_ns, manifest.st_size
