"""A repository of snapshots below a prefix of a bucket: the same names and bytes as in a folder.

An object exists completely or not at all, and the store creates it only if its name is free (``If-None-Match: *``). No
writer needs the right to delete: it ends its intent by a third note, and cleaners remove all three. The clock of the
store alone decides how old a file is.

No lock spans hosts here, so a cleaner claims a condemned list by an exclusive creation. No other process ever deletes
by that list, also after the cleaner was killed. The list stays until the claim is so old that no request of the cleaner
can still be under way, and until then writers know it. Else a late removal could take what a later writer has stored.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, TypeVar, cast

from kstate_cli import option
from kstate_cli.deadline import leave
from kstate_cli.errors import KstateError, Refused, RunFailed, RunHalfway
from kstate_cli.s3_objects import NotAnsweredError, Objects, S3Place
from kstate_cli.snapshot.repository import (
    CLAIMED,
    CONDEMNED,
    INTENTS,
    JSON,
    MARKER_BYTES,
    OBJECTS,
    ChangedError,
    DamagedError,
    PutObject,
    Repository,
    StoredEntry,
    chunks_of,
    object_path,
    too_many,
)
from kstate_cli.statedir.names import SNAPSHOTS_MARKER as MARKER

_T = TypeVar("_T")
_PART_BYTES: Final = 16 << 20
"""A file up to so many bytes is one request. Each worker holds one part in memory."""
_PARTS_OF_A_SIZE: Final = 1000
"""After so many parts, parts are twice as large, because S3 allows at most 10,000 parts of an upload."""
_CLAIM_MS: Final = 2 * 86_400_000
"""After so long no request of a cleaner is under way: it stops itself after a tenth of that."""
_REMOVALS: Final = 100
"""After so many removals the age of the claim is checked again."""
_REMAINS: Final = f"files in the repository that no snapshot needs. A later run with {option.KEEP} deletes these files"


class BucketRepository(Repository):
    """Snapshots in a bucket."""

    def __init__(self, place: S3Place) -> None:
        self._place = place
        self._objects = Objects(place)
        self._run = secrets.token_hex(8)
        # What a request without an answer creates carries the run, so that this process knows it as its own.
        self._keeps_intent = False
        self._claimed_ms: int | None = None
        self._removals = 0
        self._sizes: dict[str, int] = {}

    @property
    def where(self) -> str:
        """The URI of the prefix."""
        return self._place.uri

    # --- the place ----------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the prefix has the marker. Raise Refused for one with other objects, or another format."""
        objects, folders = self._objects.root()
        names = [entry.path for entry in objects]
        if MARKER in names:
            self.check_marker()
            return True
        # A writer creates the marker first, so anything without it is foreign, or a copy that lost its marker.
        self.refuse_foreign([*names, *folders])
        return False

    def create(self) -> None:
        """Create the marker, which proves that the store heeds conditions. Raise Refused and RunFailed."""
        leave(_REMAINS)
        if not self._create(MARKER, MARKER_BYTES, self._run):
            return  # it exists, and the store has refused to replace it
        # A second creation by another run: a store that carries it out has replaced the marker by the same bytes.
        if self._create(MARKER, MARKER_BYTES, f"not {self._run}"):
            raise self._objects.without_conditions("it replaced an object")

    # --- objects ------------------------------------------------------------------------------------------------------

    def put(self, source: BinaryIO, condemned: Collection[str] = ()) -> PutObject:
        """Digest, upload what the store lacks, and name. The source is read twice: the first bytes need the name.

        Raise DamagedError if an object of that name has another size, ChangedError if the source has changed.
        """
        digest, size = hashlib.sha256(), 0
        for chunk in chunks_of(source):
            digest.update(chunk)
            size += len(chunk)
        sha256 = digest.hexdigest()
        name = sha256
        if name in condemned:
            # A cleaner deletes the object of that name, whatever a writer does: the bytes get another one.
            name = f"{name}-{secrets.token_hex(4)}"
        path = object_path(name)
        # Hosts often have the same SSTs, which may be large. The listing came after the intent of this writer, so no
        # cleaner deletes an object of it that is not condemned.
        present, is_new = self._sizes.get(name), False
        if present is None:
            source.seek(0)
            is_new = self._upload(source, path, sha256, size)
            present = size
            if not is_new:
                present = self._listed(path)
        if present != size:
            raise DamagedError(path, f"the object does not have the expected {size:,} bytes")
        # Two databases may have the same SST: the second one is not uploaded.
        self._sizes[name] = size
        return PutObject(sha256, name, size, is_new)

    def _upload(self, source: BinaryIO, path: str, sha256: str, size: int) -> bool:
        """Upload the bytes of a file; return False if another writer was faster. Raise ChangedError."""
        digest = hashlib.sha256()
        if size <= _PART_BYTES:
            part = next(_parts_of(source), b"")
            digest.update(part)
            if digest.hexdigest() != sha256:
                raise ChangedError
            return self._create(path, part, self._run)
        upload = self._objects.begin_upload(path)
        try:
            tags = []
            for number, part in enumerate(_parts_of(source), 1):
                digest.update(part)
                tags.append(self._objects.upload_part(path, upload, number, part))
            if digest.hexdigest() != sha256:
                raise ChangedError
            # Without a condition, because the bytes are those of the name: a replacement would change nothing.
            self._objects.complete_upload(path, upload, tags, size)
        except BaseException:
            # The store keeps the parts of an unfinished upload, and charges for them.
            with suppress(Exception):
                self._objects.abort_upload(path, upload)
            raise
        return True

    def objects(self) -> dict[str, StoredEntry]:
        """Return every object by its name."""
        objects = super().objects()
        self._sizes = {name: entry.size for name, entry in objects.items()}
        return objects

    def open_object(self, name: str) -> BinaryIO:
        """Open an object for reading."""
        path = object_path(name)
        reader = self._if_exists(path, lambda: self._objects.open(path))
        if reader is None:
            raise _missing(path)
        return cast("BinaryIO", reader)

    def misplaced(self) -> list[tuple[str, str]]:
        """Return nothing: a bucket has neither links nor folders."""
        return []

    # --- notes of writers and cleaners --------------------------------------------------------------------------------

    @contextmanager
    def intent(self, token: str, document: Mapping[str, Any]) -> Iterator[None]:
        """Create ``intents/<token>.begun``, and at the end of the block ``intents/<token>.ended``."""
        self.create_note(INTENTS, f"{token}.begun", document)
        try:
            yield
        finally:
            if not self._keeps_intent:
                # Without this note cleaners only wait longer: it must not hide the end of the writer.
                with suppress(KstateError, OSError):
                    self.create_note(INTENTS, f"{token}.ended", {})

    def keep_intent(self) -> None:
        """Write no note of an end: cleaners wait for this writer until the intent has expired."""
        self._keeps_intent = True

    def is_ended(self, token: str, document: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Return False: nothing shows here that a process of another host has died."""
        return False

    @contextmanager
    def only_cleaner(self) -> Iterator[bool]:
        """Yield True: :meth:`claim` keeps two cleaners from deleting by one list."""
        yield True

    def claim(self, condemned: str) -> bool:
        """Claim a condemned list. Remove it, and return False, if it was claimed long ago."""
        claim = f"{condemned}{CLAIMED}"
        self._claimed_ms = self.clock_ms()
        if self._create(f"{CONDEMNED}/{claim}{JSON}", b"{}\n", self._run):
            return True
        self._remove_settled(condemned, claim)
        return False

    def _remove_settled(self, condemned: str, claim: str) -> None:
        entry = self.notes(CONDEMNED).get(claim)
        if entry is not None and self.clock_ms() - entry.written_ms > _CLAIM_MS:
            # The list first: without its claim another cleaner would delete by it again.
            self.remove_note(CONDEMNED, condemned)
            self.remove_note(CONDEMNED, claim)

    def settle(self, condemned: str) -> None:
        """Do nothing: a removal without an answer may still be carried out, so writers must know the list."""

    def clock_ms(self) -> int:
        """Return the time of the store."""
        return self._objects.clock_ms(MARKER)

    def remove_drafts(self, older_ms: int) -> int:
        """Abort uploads of dead writers; return their number."""
        removed = 0
        for upload in self._objects.uploads():
            # Only those of objects, and only when their writer could not publish any more.
            if upload.path.startswith(f"{OBJECTS}/") and upload.age * 1000 > older_ms:
                self._objects.abort_upload(upload.path, upload.upload)
                removed += 1
        return removed

    # --- files --------------------------------------------------------------------------------------------------------

    def publish(self, name: str, data: bytes) -> None:
        """Create a generation. Raise RunHalfway if it is unknown whether the store has created it."""
        # Until the answer has come the generation may appear, so its objects must stay: also if a signal comes now.
        self.keep_intent()
        try:
            super().publish(name, data)
        except (Refused, FileExistsError):
            self._keeps_intent = False
            raise
        except RunFailed as error:
            raise RunHalfway(
                f"kstate does not know whether the object store has published snapshot {name}: {error.message}",
                where=self.where,
                hint="list the snapshots. If this one is missing, run the command again",
            ) from None
        self._keeps_intent = False

    def _create_file(self, relative: str, data: bytes) -> None:
        if not self._create(relative, data, self._run):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), relative)

    def _create(self, path: str, data: bytes, run: str) -> bool:
        try:
            return self._objects.create(path, data, run)
        except NotAnsweredError as error:
            raise RunFailed(
                str(error), where=self.where, hint="run the command again. No snapshot needs this object"
            ) from None

    def _entries(self, folder: str, most: int) -> dict[str, StoredEntry]:
        files: dict[str, StoredEntry] = {}
        for entry in self._objects.each_below(f"{folder}/"):
            if len(files) == most:
                raise too_many(f"{self.where}/{folder}", most)
            name = entry.path.rpartition("/")[2]
            # A copy of the same name elsewhere is another object: only the place of the layout counts.
            if entry.path == _path_of(folder, name):
                files[name] = StoredEntry(entry.size, entry.written_ms)
        return files

    def _read(self, relative: str, *, most: int) -> bytes:
        data = self._if_exists(relative, lambda: self._objects.read(relative, most))
        if data is None:
            raise _missing(relative)
        if len(data) > most:
            raise DamagedError(relative, f"it has more than {most:,} bytes, which is kstate's limit")
        return data

    def _if_exists(self, path: str, request: Callable[[], _T | None]) -> _T | None:
        """Return the answer to a request for an object; None if the object does not exist."""
        try:
            return request()
        except Refused:
            # S3 answers 403 for a missing object to a user who may list only this prefix: a listing tells them apart.
            if self._listed(path) is not None:
                raise
            return None

    def _listed(self, path: str) -> int | None:
        """Return the size of an object by a listing; None if it does not exist."""
        return next((entry.size for entry in self._objects.each_below(path) if entry.path == path), None)

    def _remove(self, relative: str) -> int:
        if self._claimed_ms is not None:
            self._check_claim(self._claimed_ms)
        self._objects.remove(relative)
        return 1

    def _check_claim(self, claimed_ms: int) -> None:
        """Raise RunFailed if the claim is so old that a writer may soon not know the list any more."""
        self._removals += 1
        # A host may have slept: only the store knows how old the claim is.
        if self._removals % _REMOVALS == 1 and self.clock_ms() - claimed_ms > _CLAIM_MS // 10:
            raise RunFailed(
                "kstate stopped deleting expired files, because deleting them took too long",
                where=self.where,
                hint="run the command again in three days to delete the rest. The remaining snapshots are complete",
            )


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _path_of(folder: str, name: str) -> str:
    if folder == OBJECTS:
        return object_path(name)
    return f"{folder}/{name}"


def _parts_of(source: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a file in parts of 16 MiB, which grow after each thousand."""
    part, number = bytearray(), 0
    for chunk in chunks_of(source):
        part += chunk
        if len(part) >= _PART_BYTES << number // _PARTS_OF_A_SIZE:
            number += 1
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)
