"""Open databases, few at a time: opening one costs milliseconds, keeping it open descriptors and memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.host import most_descriptors
from kstate_cli.rocks.shadow import Shadow

_IDLE = 16


@dataclass(slots=True)
class _Open:
    shadow: Shadow
    users: int = 0


class Databases:
    """Shadows that are shared while they are open. Those that nobody uses are closed, the longest unused first."""

    def __init__(self) -> None:
        # Each partition that is being read has its database open.
        most_descriptors()
        self._open: OrderedDict[Path, _Open] = OrderedDict()

    def take(self, path: Path) -> Shadow:
        """The database in ``path``, to be given back. Raises RocksError and OSError where it cannot be opened."""
        entry = self._open.get(path)
        if entry is None:
            entry = self._open[path] = _Open(Shadow(path).__enter__())
        entry.users += 1
        self._open.move_to_end(path)
        return entry.shadow

    def give_back(self, path: Path) -> None:
        """Ends one use of a database."""
        entry = self._open.get(path)
        if entry is None:
            return  # everything was closed meanwhile
        entry.users -= 1
        idle = [one for one, known in self._open.items() if not known.users]
        for one in idle[: max(0, len(idle) - _IDLE)]:
            self._open.pop(one).shadow.close()

    def close(self) -> None:
        """Closes all of them, used or not."""
        while self._open:
            self._open.popitem()[1].shadow.close()
