"""The SHA-256 of a file, taken as it is written from its beginning to its end."""

from __future__ import annotations

import hashlib
from typing import Final

_CHUNK: Final = 1 << 20


class DigestAsWritten:
    """Follows whoever writes the file. Later all would come from the disk: RocksDB keeps none in the page cache."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by finish, or with this
        self._digest = hashlib.sha256()

    def follow(self) -> None:
        """Takes what was written since; it is not written again. Raises OSError."""
        while chunk := self._file.read(_CHUNK):
            self._digest.update(chunk)

    def finish(self) -> str:
        """In hex, once all is written. Raises OSError."""
        self.follow()
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Nothing of it is wanted."""
        self._file.close()
