"""What no application of Streams has below its directory: FIFOs, sockets, devices, folders without an end.

A copy would wait for a FIFO for ever, make an empty file of a device, and never come to the end of the folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kstate_cli.errors import Refused
from kstate_cli.host import CHECK_THE_DISK, STORES_STAY, cannot_be_read, host_error
from kstate_cli.regular_files import is_special, is_utf8, kind_of
from kstate_cli.statedir.names import LOST_AND_FOUND
from kstate_cli.statedir.places import Place, Spelling
from kstate_cli.statedir.problems import Problem, ProblemCode
from kstate_cli.texts import first_lines

IGNORED = frozenset({LOST_AND_FOUND})
MOST_LEVELS = 100
"""Streams makes five: topology, task, store, segment, file. A custom store may have some of its own."""
_NAMED_LEVELS = 3


def special_entries(app: Path) -> Iterator[Problem]:
    """Everything below ``app`` that cannot be carried along; links are not followed.

    What a running application removes meanwhile is left out.
    """
    waiting = [(str(app), Place())]
    while waiting:
        folder, place_of_folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        except OSError as error:
            if (short := host_error(error)) is not None:
                raise short from None
            yield Problem(
                ProblemCode.UNREADABLE if cannot_be_read(error) else ProblemCode.SPECIAL,
                place_of_folder,
                f"cannot be listed: {error.strerror}",
                f"every directory is readable; {CHECK_THE_DISK}",
            )
            continue
        for entry in ordered:
            place = place_of_folder / entry.name
            if entry.name in IGNORED:
                continue
            if entry.is_dir(follow_symlinks=False):
                if len(place_of_folder.names) < MOST_LEVELS:
                    waiting.append((entry.path, place))
                else:
                    folder_above = Place(place.names[:_NAMED_LEVELS], Spelling.AND_BELOW)
                    rule = f"kstate follows {MOST_LEVELS} levels of directories"
                    yield _problem(folder_above, f"goes deeper than {MOST_LEVELS} levels", rule)
            elif not entry.is_file(follow_symlinks=False) and (problem := special_entry(entry.path, place)) is not None:
                yield problem


def special_entry(path: Path | str, place: Place) -> Problem | None:
    """What is wrong with a file that is none; None for files, directories and links, and where nothing is any more."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if not is_special(mode):
        return None
    return _problem(place, f"is {kind_of(mode)}", "below an application directory are files and directories only")


def _problem(place: Place, what: str, rule: str) -> Problem:
    return Problem(ProblemCode.SPECIAL, place, what, rule)


def refuse_special(app: Path) -> None:
    """Refuses to change a directory that cannot be carried along whole: before its lock is taken, nothing opened.

    Raises Refused, naming every such entry up to twenty. A directory that is not there passes, unless its path is one
    that RocksDB would not open.
    """
    if not is_utf8(app):
        raise Refused(f"the path {app} is not UTF-8: RocksDB cannot be given it", hint="rename what is not")
    if not app.is_dir() or app.is_symlink():
        return
    special = sorted(special_entries(app), key=lambda problem: problem.place.text)
    if special:
        raise Refused(
            "the directory cannot be changed as it is",
            where=str(app),
            details=first_lines([one.reasoned for one in special]),
            # What may not be read is a task as any other: nobody is told to move it away.
            hint=STORES_STAY
            if all(one.code is ProblemCode.UNREADABLE for one in special)
            else "move what is no file and no directory out of the application directory",
        )
