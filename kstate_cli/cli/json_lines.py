"""JSON Lines: how every command prints with ``-o json``, and how it says there that it has failed.

Each line is an object that begins with ``schema_version``, ``type`` and ``app``. A command that has come to its end
prints a ``summary``. One whose exit code is 2 or more has an ``error`` as its last line, whether it came to its end (a
question that was answered with no) or not. ``kstate_cli/schemas`` has a JSON Schema for each command, docs/json.md the
same for people. Lines are printed as they come; none is held back.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from kstate_cli.cli import subject

if TYPE_CHECKING:
    from kstate_cli.errors import CommandEnd

SCHEMA_VERSION: Final = 2
"""Of the whole output format: higher once a member is gone, or means something else. New members may come without."""
_JSON: Final = "json"
_FLAGS_BEFORE: Final = re.compile("-[qh]*o(.*)", re.DOTALL)
"""``-o json``, ``-ojson``, ``-qo json``."""


class JsonLines:
    """Lines about one application directory, on standard output or ``stream``."""

    def __init__(self, app: str | os.PathLike[str] | None, stream: TextIO | None = None) -> None:
        import json  # not at the start of every command

        self._encode = json.JSONEncoder().encode
        self._app = self._encode(None if app is None else os.fspath(app))
        self._stream = stream
        self._heads: dict[str, str] = {}

    def line(self, kind: str, members: dict[str, Any]) -> None:
        """One line of the type ``kind``; ``members`` are what ``json`` takes, and none of the first three."""
        head = self._heads.get(kind)
        if head is None:
            head = f'{{"schema_version": {SCHEMA_VERSION}, "type": {self._encode(kind)}, "app": {self._app}'
            self._heads[kind] = head
        # One write for a line: a signal must not leave half of one. Rows of a query come by the million.
        end = f", {self._encode(members)[1:]}\n" if members else "}\n"
        (self._stream or sys.stdout).write(head + end)

    def summary(self, members: dict[str, Any]) -> None:
        """The last line, unless an ``error`` follows."""
        self.line("summary", members)


def lines_about(app: Path) -> JsonLines:
    """Lines about the application directory that was found; an ``error`` will name the same one."""
    subject.set_app(app)
    return JsonLines(app)


# --- failures: whoever ends the process tells them --------------------------------------------------------------------


class _Command:
    """What is known of the command of this process."""

    wants_json = False
    words_say = False
    """Whether the words of the command line say anything of it."""
    has_failed = False


def begin(words: Sequence[str]) -> None:
    """A command begins: its words say whether JSON is wanted, until the parser has understood them."""
    subject.forget()
    _Command.has_failed = False
    as_json = _output_option(words)
    _Command.words_say = as_json is not None
    _want(as_json is True)


def _is_output(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and "--output" in parameter.opts


def notes_of(parameter: Any) -> Iterator[Callable[[Any], None]]:
    """Yield the function that takes the value of ``--output``."""
    if _is_output(parameter):
        yield _note


def note_variable(context: Any) -> None:
    """Note the format that the environment sets, before the parser can find an error in the command line."""
    for option in filter(_is_output, context.command.params):
        if not _Command.words_say and option.envvar:
            _want(os.environ.get(option.envvar) == _JSON)


def _note(output: Any) -> None:
    _want(getattr(output, "value", output) == _JSON)


def _want(as_json: bool) -> None:
    """JSON is wanted, or not. Its encoder is imported now: a failure may leave no descriptor to import it with."""
    _Command.wants_json = as_json
    if as_json:
        import json  # noqa: F401


def tell_failure(error: CommandEnd, code: int, more: Sequence[str] = ()) -> bool:
    """The line ``error``, where JSON is wanted and there is none yet: whether it is there now by this call.

    ``code`` is the exit code, ``more`` details.
    """
    if _Command.has_failed or not _Command.wants_json:
        return False
    _Command.has_failed = True
    JsonLines(subject.app_path()).line(
        "error",
        {
            "code": error.code_for(code),
            "exit": code,
            "message": error.headline,
            "where": error.where,
            "details": [*error.details, *more],
            "hint": error.hint,
            "hint_details": list(error.hint_details),
        },
    )
    return True


def _output_option(words: Sequence[str]) -> bool | None:
    """Whether the words ask for JSON, as far as that can be seen before anything is known of the options.

    None where they say nothing of a format.
    """
    as_json = None
    for word, following in zip_longest(words, words[1:]):
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
