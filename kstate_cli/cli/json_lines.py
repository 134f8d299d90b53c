"""Print JSON Lines for ``-o json``, including the error of a failed command.

Each line is an object that begins with ``schema_version``, ``type`` and ``app``. A completed command prints a
``summary``. With an exit code of 2 or more the last line is an ``error``, even if a ``summary`` came before (a question
answered with no). ``kstate_cli/schemas`` has a JSON Schema for each command, and docs/json.md describes them. Lines are
printed as they come.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, TextIO

from kstate_cli.cli import subject

if TYPE_CHECKING:
    from kstate_cli.cli.lines.shared import ErrorLine
    from kstate_cli.errors import CommandEnd

SCHEMA_VERSION: Final = 2
"""Version of the output format. It rises when a member is removed or changes its meaning, not for a new member."""
_JSON: Final = "json"
_FLAGS_BEFORE: Final = re.compile("-[qh]*o(.*)", re.DOTALL)
"""``-o json``, ``-ojson``, ``-qo json``."""


class JsonLines:
    """Lines about one application directory, on standard output or ``stream``."""

    def __init__(self, app: str | os.PathLike[str] | None, stream: TextIO | None = None) -> None:
        import json  # not at the start of every command

        self._encode = json.JSONEncoder().encode
        # Encoded here, not for each line: the path is the same in all of them, and may need escapes.
        self._app = self._encode(None if app is None else os.fspath(app))
        self._stream = stream
        self._heads: dict[object, tuple[str, int]] = {}

    def print(self, line: Mapping[str, object]) -> None:
        """Print a line: ``type`` first, then the members of its type (:mod:`kstate_cli.cli.lines`)."""
        kind = line["type"]
        head = self._heads.get(kind)
        if head is None:
            # The beginning of a line is encoded once for each type, since queries print millions of lines. Stored with
            # it is the length of the first member, which the beginning replaces.
            first = f'"type": {self._encode(kind)}'
            head = f'{{"schema_version": {SCHEMA_VERSION}, {first}, "app": {self._app}', len(first) + 1
            self._heads[kind] = head
        begin, length = head
        # A line is one write, so that a signal leaves no partial line.
        (self._stream or sys.stdout).write(f"{begin}{self._encode(line)[length:]}\n")


# --- failures: the code that ends the process prints them -------------------------------------------------------------


class _Command:
    """The output format of this process' command, and whether its error was printed."""

    wants_json = False
    words_say = False
    """Whether the command line sets the format."""
    has_failed = False


def begin(words: Sequence[str]) -> None:
    """Start a command: read the output format from its words, until the parser reports it."""
    # Tests, and kstate demo, run several commands in one process: the error of one must not name the directory of
    # another.
    subject.forget()
    _Command.has_failed = False
    as_json = _output_option(words)
    _Command.words_say = as_json is not None
    _want(as_json is True)


def _is_output(parameter: Any) -> bool:
    # By the option and not by a parameter's name: no command may print its errors in another format than its results.
    return parameter.param_type_name == "option" and "--output" in parameter.opts


def notes_of(parameter: Any) -> Iterator[Callable[[Any], None]]:
    """Yield the function that takes the value of ``--output``."""
    if _is_output(parameter):
        yield _note


def note_variable(context: Any) -> None:
    """Note the format that the environment sets, before the parser can find an error in the command line."""
    for option in filter(_is_output, context.command.params):
        # Click resolves variables after the words, and an error in a word ends it before that.
        if not _Command.words_say and option.envvar:
            _want(os.environ.get(option.envvar) == _JSON)


def _note(output: Any) -> None:
    _want(getattr(output, "value", output) == _JSON)


def _want(as_json: bool) -> None:
    """Store the format. Import the encoder of JSON now: after a failure no descriptor may be free for an import."""
    _Command.wants_json = as_json
    if as_json:
        import json  # noqa: F401


def print_error(error: CommandEnd, code: int, more: Sequence[str] = ()) -> bool:
    """Print the line ``error`` if the output is JSON and has none yet; return whether this call printed it.

    ``code`` is the exit code, ``more`` details.
    """
    # The last line is the error, so there must be only one.
    if _Command.has_failed or not _Command.wants_json:
        return False
    _Command.has_failed = True
    line: ErrorLine = {
        "type": "error",
        "code": error.code_for(code),
        "exit": code,
        "message": error.headline,
        "where": error.where,
        "details": [*error.details, *more],
        "hint": error.hint,
        "hint_details": list(error.hint_details),
    }
    JsonLines(subject.app_path()).print(line)
    return True


def _output_option(words: Sequence[str]) -> bool | None:
    """Return whether the words select JSON, without knowing the options of the command; None without a format."""
    as_json = None
    for word, following in zip_longest(words, words[1:]):
        # All words after "--" are arguments, even if they look like options.
        if word == "--":
            break
        short = _FLAGS_BEFORE.fullmatch(word)
        if short is not None:
            as_json = (short[1] or following) == _JSON
        elif word == "--output":
            as_json = following == _JSON
        elif word.startswith("--output="):
            as_json = word == f"--output={_JSON}"
    return as_json
