"""Where runs are kept until they are ingested: a folder that driver and executors share, or a URI that both reach.

RocksDB writes local files only: under a URI a run is made in a temporary folder of the executor and copied out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlparse

from kstate_cli.formats.json_text import parse_json

if TYPE_CHECKING:
    from kstate_cli.restore.jobs import SliceResult

STARTED, DONE = ".started", ".done"
_NOTED: Final[dict[str, dict[str, type]]] = {
    STARTED: {"slice": str, "pid": int},
    DONE: {"task": str, "store": str, "number": int, "records": int, "data_bytes": int, "files": list},
}
"""What every note holds, by kind."""


def is_local(target: str) -> bool:
    """True for a path or a file: URI."""
    return urlparse(target).scheme in ("", "file")


def local(target: str) -> str:
    """The path of a local target."""
    return urlparse(target).path if target.startswith("file:") else target


@dataclass(slots=True)
class Staging:
    """The staging folder as one task, or the driver, sees it."""

    target: str
    _private: str = ""
    _made: list[str] = field(default_factory=list)
    _read: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Notes by name. One never changes: it is renamed into place whole, and its name has the attempt's own id."""

    def new_file(self, name: str) -> str:
        """A local path for a new run."""
        if is_local(self.target):
            os.makedirs(local(self.target), exist_ok=True)
            path = os.path.join(local(self.target), name)
        else:
            self._private = self._private or tempfile.mkdtemp(prefix="kstate-runs-")
            path = os.path.join(self._private, name)
        self._made.append(path)
        return path

    def publish(self, path: str) -> str:
        """Makes a finished run visible to the driver; returns where."""
        if is_local(self.target):
            return path
        filesystem, folder = self._remote()
        filesystem.create_dir(folder, recursive=True)
        target = f"{folder}/{os.path.basename(path)}"
        with open(path, "rb") as source, filesystem.open_output_stream(target) as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        os.unlink(path)
        return f"{self.target.rstrip('/')}/{os.path.basename(path)}"

    def fetch(self, path: str, folder: Path) -> Path:
        """Driver: a run as a local file in ``folder``, the very file where it is local already."""
        if is_local(self.target):
            return Path(path)
        filesystem, remote = self._remote()
        target = folder / path.rsplit("/", 1)[1]
        with filesystem.open_input_stream(f"{remote}/{target.name}") as source, open(target, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        return target

    def discard(self, attempt: str) -> None:
        """Removes what a failed attempt has made here."""
        for path in self._made:
            if attempt in path:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        if self._private:
            shutil.rmtree(self._private, ignore_errors=True)

    def mark_started(self, slice_name: str, attempt: str) -> None:
        """Leaves a note that an attempt began; nothing is decided by it."""
        self._note(f"{slice_name}-{attempt}{STARTED}", {"slice": slice_name, "pid": os.getpid()})

    def mark_done(self, result: SliceResult, identity: str) -> None:
        """Leaves a note of a finished attempt: for progress, and for the run that resumes this one."""
        note = {k: v for k, v in asdict(result).items() if k not in ("files", "positions")}
        note["identity"] = identity
        note["files"] = [[f.segment, f.path, f.rows, f.deletes, f.size] for f in result.files]
        note["positions"] = [[segment, position.as_map()] for segment, position in result.positions]
        self._note(f"{result.task}-{result.store}-{result.number}-{result.attempt}{DONE}", note)
        if self._private:
            shutil.rmtree(self._private, ignore_errors=True)

    def _note(self, name: str, row: dict[str, Any]) -> None:
        if not is_local(self.target):
            return
        os.makedirs(local(self.target), exist_ok=True)
        path = os.path.join(local(self.target), name)
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(row, file)
        os.replace(path + ".tmp", path)

    def notes(self, suffix: str) -> list[dict[str, Any]]:
        """Driver: the notes of one kind, each with its ``name``; what is no such note is passed over.

        Asked for several times a second: only notes that are new are read.
        """
        if not is_local(self.target) or not os.path.isdir(local(self.target)):
            return []
        names = [name for name in sorted(os.listdir(local(self.target))) if name.endswith(suffix)]
        for name in names:
            if name not in self._read and (note := self._note_of(name, suffix)) is not None:
                self._read[name] = note
        return [self._read[name] for name in names if name in self._read]

    def _note_of(self, name: str, suffix: str) -> dict[str, Any] | None:
        try:
            with open(os.path.join(local(self.target), name), "rb") as file:
                note = parse_json(file.read())
        except (OSError, ValueError):
            return None
        if not isinstance(note, dict):
            return None
        if not _NOTED[suffix].items() <= {k: type(v) for k, v in note.items()}.items():
            return None
        return {**note, "name": name}

    def keep_finished(self) -> None:
        """Driver: removes all but the runs of finished slices and their notes; the folder too, where there are none."""
        folder = local(self.target)
        if not is_local(self.target) or not os.path.isdir(folder):
            return
        kept = set()
        for note in self.notes(DONE):
            files = [file for file in note["files"] if isinstance(file, list) and len(file) > 1]
            kept |= {note["name"], *(os.path.basename(str(file[1])) for file in files)}
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name not in kept:
                with contextlib.suppress(OSError):
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        if not kept:
            self.remove()

    def remove(self) -> None:
        """Driver: removes the whole staging folder, once Spark has stopped."""
        if is_local(self.target):
            shutil.rmtree(local(self.target), ignore_errors=True)
        else:
            filesystem, folder = self._remote()
            with contextlib.suppress(OSError):
                filesystem.delete_dir(folder)

    def _remote(self) -> tuple[Any, str]:
        from pyarrow.fs import FileSystem

        filesystem, folder = FileSystem.from_uri(self.target)
        return filesystem, str(folder).rstrip("/")
