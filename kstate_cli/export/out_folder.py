"""The folder of an export: its owner, the files that it may have before, and the naming of the new ones.

An export writes its files in the sub-folder ``_incomplete``, which Spark and pyarrow skip. When all of them are on disk
it renames them, ``_manifest.json`` last: an export with that file is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kstate_cli.errors import InUse, Refused, UsageError
from kstate_cli.formats.json_text import parse_json
from kstate_cli.regular_files import MOST_GIVEN_BYTES, read_small
from kstate_cli.statedir.names import OWN_FOLDER
from kstate_cli.texts import quoted

MANIFEST: Final = "_manifest.json"
INCOMPLETE: Final = "_incomplete"
_OWNER: Final = "export.json"
_NAMES: Final = "renaming.json"
_PART: Final = re.compile(r"part-.+-\d{5,}\.parquet")


def check_out(out: Path, app: Path) -> Path:
    """Return the absolute path of ``out``. Raise UsageError in an application directory or in kstate's own folder."""
    absolute = Path(os.path.realpath(out))
    for forbidden in (app, app.parent / OWN_FOLDER):
        if absolute == forbidden or forbidden in absolute.parents:
            raise UsageError(f"--out {quoted(out)} is within {forbidden}", hint="name a folder elsewhere")
    if absolute.exists() and not absolute.is_dir():
        raise UsageError(f"--out {quoted(out)} is not a directory", hint="name a folder, or one that is not there yet")
    return absolute


class OutFolder:
    """``out`` during an export. A context manager: without :meth:`publish` nothing of the export remains.

    ``owner`` distinguishes an interrupted export of the same store from another one. Raises Refused if ``out`` has
    other files, InUse if another export writes to it.
    """

    def __init__(self, out: Path, owner: Mapping[str, Any], *, overwrite: bool) -> None:
        self.out = out
        self.folder = out / INCOMPLETE
        self._owner = dict(owner)
        self._overwrite = overwrite
        self._lock: int | None = None
        self._created: list[Path] = []

    def __enter__(self) -> OutFolder:
        self._make(self.out)
        try:
            self._lock = os.open(self.out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUse(f"another export writes to {self.out}", hint="wait for it, or name another --out") from None
            self._refuse_others()
            self._drop_interrupted()
            self.folder.mkdir()
            (self.folder / _OWNER).write_text(json.dumps(self._owner), encoding="utf-8")
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._leave()

    def publish(self, names: Mapping[str, str], manifest: Mapping[str, Any]) -> None:
        """Give each complete file its name (name -> name in ``folder``), and write the manifest."""
        _write(self.folder / MANIFEST, manifest)
        _write(self.folder / _NAMES, sorted(names))
        _sync(self.folder)
        before: list[str] = []
        if self._overwrite:
            before = sorted(name for name in os.listdir(self.out) if _PART.fullmatch(name))
        renamed: list[str] = []
        try:
            # The manifest first: without it the old export is incomplete, and no reader takes its files for whole.
            for name in [MANIFEST] * (MANIFEST in os.listdir(self.out)) + before:
                os.unlink(self.out / name)
            for name, attempt in names.items():
                renamed.append(name)
                os.rename(self.folder / attempt, self.out / name)
            # The names must be durable before the manifest that lists them.
            _sync(self.out)
            os.rename(self.folder / MANIFEST, self.out / MANIFEST)
        except BaseException:
            for name in renamed:
                (self.out / name).unlink(missing_ok=True)
            raise
        _sync(self.out)
        self._created.clear()

    def _make(self, out: Path) -> None:
        for parent in reversed([out, *out.parents]):
            if not parent.exists():
                parent.mkdir()
                self._created.append(parent)

    def _leave(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        for folder in reversed(self._created):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _refuse_others(self) -> None:
        names = set(os.listdir(self.out))
        own = {name for name in names if name in (INCOMPLETE, MANIFEST) or _PART.fullmatch(name)}
        if foreign := sorted(names - own):
            raise Refused(f"{self.out} is not empty: it holds {foreign[0]}", hint="name a new folder")
        if not names or self._overwrite:
            return
        if INCOMPLETE not in names or MANIFEST in names or own - {INCOMPLETE} - self._renamed():
            raise Refused(f"{self.out} holds an export", hint="name a new folder, or --overwrite")
        # Without that file the export was interrupted before it wrote anything.
        if self._read(_OWNER) not in (None, self._owner):
            raise Refused(
                f"{self.out} holds an interrupted export of something else", hint="name a new folder, or --overwrite"
            )

    def _drop_interrupted(self) -> None:
        if self.folder.exists():
            if MANIFEST not in os.listdir(self.out):
                for name in self._renamed():
                    (self.out / name).unlink(missing_ok=True)
            shutil.rmtree(self.folder)

    def _renamed(self) -> set[str]:
        """Return the names that an interrupted export may have given to files already."""
        names = self._read(_NAMES)
        return {str(name) for name in names if _PART.fullmatch(str(name))} if isinstance(names, list) else set()

    def _read(self, name: str) -> Any:
        try:
            return parse_json(read_small(self.folder / name, MOST_GIVEN_BYTES))
        except (OSError, ValueError):
            return None


@contextlib.contextmanager
def _descriptor_of(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    with _descriptor_of(path) as descriptor:
        os.fsync(descriptor)


def _write(path: Path, content: Mapping[str, Any] | Sequence[str]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    _sync(path)
