"""What commands write outside of application directories, in versions: snapshots, exports and dumps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from kstate_cli.export.files import MANIFEST

from .cases import DOWN
from .dumps_of_topic import DumpsOfTopic
from .forked import Ended, Kstate
from .small import STORES, small


class Output(ABC):
    """A command that writes versions to a folder."""

    keeps_earlier = True
    """Whether a version leaves the earlier ones unchanged."""

    def __init__(self, kstate: Kstate, folder: Path, path: Path) -> None:
        """`folder`: for what the command reads. `path`: for the versions."""
        self.kstate = kstate
        self.folder = folder
        self.path = path
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Create what the command reads."""

    @abstractmethod
    def command(self, number: int) -> tuple[Path, tuple[str, ...]]:
        """Return the application and the command; there are two inputs, 0 and 1."""

    @abstractmethod
    def versions(self) -> tuple[int, list[str]]:
        """Verify each byte. Return the number of versions, and what is wrong."""

    @abstractmethod
    def close(self) -> None:
        """End what the command needs."""

    def write(self, number: int) -> Ended:
        """Write a version."""
        app, command = self.command(number)
        return self.kstate(app, command)


class Repository(Output):
    """Snapshots of two applications."""

    def prepare(self) -> None:
        """Create both applications."""
        self.apps = [
            small(DOWN.golden, self.folder / str(at) / "state", STORES[2 * at : 2 * at + 2]) for at in range(2)
        ]

    def command(self, number: int) -> tuple[Path, tuple[str, ...]]:
        """Take a snapshot."""
        return self.apps[number], ("snapshot", "--out", str(self.path), "--quiet")

    def versions(self) -> tuple[int, list[str]]:
        """Verify the repository."""
        count = len(list((self.path / "generations").glob("2*.json")))
        if not count:
            return 0, []
        ended = self.kstate(self.path, ("verify-snapshots",))
        return count, [] if ended.status == 0 else [f"verify-snapshots: exit {ended.status}: {ended.output[-800:]}"]

    def close(self) -> None:
        """Do nothing."""


class Export(Output):
    """Exports with two serdes of keys, each in place of the other: then no export is complete for a while."""

    keeps_earlier = False

    def prepare(self) -> None:
        """Create the application, and both exports in another place."""
        self.app = small(DOWN.golden, self.folder / "state", STORES[:1])
        self.contents: list[dict[str, bytes]] = []
        usual, self.path = self.path, self.folder / "elsewhere"
        for number in range(2):
            ended = self.write(number)
            assert ended.status == 0, ended.output
            self.contents.append(self._files())
        self.path = usual

    def command(self, number: int) -> tuple[Path, tuple[str, ...]]:
        """Export a store."""
        serde = ("bytes", "string")[number]
        options = ("--out", str(self.path), "--overwrite", "--key-serde", serde, "--quiet")
        return self.app, ("export", STORES[0], *options)

    def versions(self) -> tuple[int, list[str]]:
        """Return 1 or 2 for the export that is complete. If an export has a manifest, it must have its files."""
        if not (self.path / MANIFEST).exists():
            return 0, []
        files = self._files()
        if files in self.contents:
            return self.contents.index(files) + 1, []
        return 0, [f"the export with a manifest is incomplete: {sorted(files)}"]

    def close(self) -> None:
        """Do nothing."""

    def _files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.path.iterdir() if path.is_file()}


class Dump(Output):
    """Dumps of a topic that grows. The broker runs until the end, on another disk."""

    def prepare(self) -> None:
        """Start the broker."""
        self.dumps = DumpsOfTopic(self.folder / "broker", "dumped")
        self.kstate = self.dumps.kstate

    def command(self, number: int) -> tuple[Path, tuple[str, ...]]:
        """Produce, and dump."""
        self.dumps.produce()
        return self.folder / "broker" / "app", self.dumps.command(self.path)

    def versions(self) -> tuple[int, list[str]]:
        """Verify the dump."""
        return self.dumps.versions(self.path)

    def close(self) -> None:
        """End the broker."""
        self.dumps.close()
