"""``_verified.json`` in a dump: when each part of it was last read in full.

The canonical shape is written by :func:`record`::

    {"format": 1, "place": "/backup/orders", "parts": 7,
     "verified": {"1": {"at_ms": …, "generation": 12, "files": 40, "damaged": 0}, …},
     "unfinished": {"2": {"began_ms": …, "files": {"topic=…/….parquet": "<SHA-256>", …}}}}

A copy of a dump brings the file along, but the copy was not read: ``place`` shows that. ``generation`` is that of the
manifest whose files were read, null of a dump that does not grow. ``unfinished`` has the files of a part that were
read whole, and are what the manifest states, before the reading was interrupted: the next one continues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kstate_cli.dump_reader.location import is_here, open_location, uri_text
from kstate_cli.dump_reader.manifest import VERIFIED
from kstate_cli.formats.binary import MAX_I64, parse_json
from kstate_cli.regular_files import replace_text

_FORMAT: Final = 1
# More is no record of kstate: others may write to the place of the file.
_MOST_BYTES: Final = 64 << 20
_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class VerifiedPart:
    """A part that was read in full. Time: ms since 1970."""

    at_ms: int
    """Every file was read then or later."""
    generation: int | None
    files: int
    damaged: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A part whose reading was interrupted. Time: ms since 1970."""

    began_ms: int
    files: Mapping[str, str]
    """Path of a file that was read whole -> its SHA-256."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What is known of all parts."""

    parts: int
    verified: Mapping[int, VerifiedPart]
    unfinished: Mapping[int, Unfinished] = field(default_factory=dict)

    def oldest_ms(self) -> int | None:
        """Return when the part was read that was read the longest ago; None where one was never read."""
        if len(self.verified) < self.parts:
            return None
        return min(part.at_ms for part in self.verified.values())


def read_verified(uri: str) -> Verified | None:
    """Return the record of what was verified in a dump; None if it is missing, of another place, or not legible.

    Raises OSError.
    """
    from pyarrow import fs

    filesystem, root = open_location(uri)
    path = f"{root.rstrip('/')}/{VERIFIED}"
    status = filesystem.get_file_info(path)
    # Without a record every part counts as never verified, which is the cautious answer.
    if status.type != fs.FileType.File or status.size > _MOST_BYTES:
        return None
    with filesystem.open_input_stream(path) as stream:
        data = bytes(stream.read())
    try:
        return _parsed(parse_json(data), _place(uri))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _parsed(content: Any, place: str) -> Verified | None:
    """Return the checked content of the file; None if it is of another place or format.

    Raises ValueError, KeyError, TypeError or AttributeError for anything malformed.
    """
    if content["format"] != _FORMAT or content["place"] != place:
        return None
    parts = _number(content["parts"])
    verified = {}
    for name, part in content["verified"].items():
        number = _number(int(name))
        if not 1 <= number <= parts:
            raise ValueError("a part")
        generation = part["generation"]
        verified[number] = VerifiedPart(
            _number(part["at_ms"]),
            None if generation is None else _number(generation),
            _number(part["files"]),
            _number(part["damaged"]),
        )
    unfinished = {
        _number(int(name)): Unfinished(
            _number(part["began_ms"]), {str(path): str(digest) for path, digest in part["files"].items()}
        )
        for name, part in content.get("unfinished", {}).items()
    }
    return Verified(parts, verified, unfinished) if parts else None


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_I64:
        raise ValueError("a number")
    return value


def record(uri: str, number: int, parts: int, part: VerifiedPart) -> Verified:
    """Record that a part was read. Other parts stay known as long as there are so many. Raises OSError."""
    before = _before(uri, parts)
    others = {name: files for name, files in before.unfinished.items() if name != number}
    return _write(uri, Verified(parts, dict(sorted({**before.verified, number: part}.items())), others))


def record_unfinished(uri: str, number: int, parts: int, unfinished: Unfinished) -> None:
    """Record which files of a part were read before the reading was interrupted. Raises OSError."""
    before = _before(uri, parts)
    _write(uri, replace(before, unfinished={**before.unfinished, number: unfinished}))


def _before(uri: str, parts: int) -> Verified:
    before = read_verified(uri)
    # With another number of parts each file belongs to another part, so nothing in the record counts any more.
    if before is None or before.parts != parts:
        return Verified(parts, {})
    return before


def _write(uri: str, verified: Verified) -> Verified:
    """Write the file of a dump, and return what it states."""
    content = {
        "format": _FORMAT,
        "place": _place(uri),
        "parts": verified.parts,
        "verified": {str(name): asdict(part) for name, part in verified.verified.items()},
        "unfinished": {str(name): asdict(files) for name, files in verified.unfinished.items()},
    }
    filesystem, root = open_location(uri)
    path, text = f"{root.rstrip('/')}/{VERIFIED}", json.dumps(content) + "\n"
    if is_here(filesystem):
        # Only the owner may read the file, since it shows which topics the dump has.
        replace_text(Path(path), text, mode=_MODE)
    else:
        # Every store replaces an object as a whole. If two processes write it, the last one counts.
        with filesystem.open_output_stream(path) as stream:
            stream.write(text.encode())
    return verified


def _place(uri: str) -> str:
    filesystem, root = open_location(uri)
    return os.path.realpath(root) if is_here(filesystem) else uri_text(uri).rstrip("/")
