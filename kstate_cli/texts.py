"""Texts of messages that several packages have in common, and commands that can be pasted into a shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kstate_cli.carried import carried

INTERNALS: Final = "docs/internals"
"""Where it is written down what Kafka Streams does, and what proves it: in the repository, and in an installation below
``share/doc/kstate``."""
EXAMPLES: Final = "examples"
"""The folder of the examples: in the repository, in the package, and where a message has them written to."""
_MOST_LINES = 20
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_WORD = re.compile(r"[A-Z]+")
_CLOSE = 0.7
"""How alike two names are, of 1, where one may be meant by the other: 0_1 is not by 2_1, count is by conut."""
_LONGEST_NAME = 250


def internals(section: str) -> str:
    """A section of the documentation, as messages name it: ``internals("start.md#going-down")``."""
    return f"{INTERNALS}/{section}"


def example(name: str) -> str:
    """A file of the examples, as messages name it, and the command that writes them there."""
    return f"{EXAMPLES}/{name}, which this writes: {command('examples', '--out', EXAMPLES)}"


def some(names: Sequence[str], at_most: int) -> str:
    """The first ``at_most`` names in a row, and how many more there are."""
    return ", ".join(names[:at_most]) + (f" and {len(names) - at_most} more" if len(names) > at_most else "")


def plural(count: int, noun: str) -> str:
    """``1 host``, ``2 hosts``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def closest(name: str, known: Iterable[str], at_most: int, at_least: float = _CLOSE) -> list[str]:
    """Known names that ``name`` was probably meant to be, the nearest first."""
    from difflib import get_close_matches  # every command imports this module, and few mistake a name

    by_form: dict[str, str] = {}
    for one in known:
        by_form.setdefault(_form(one), one)
    return [by_form[one] for one in get_close_matches(_form(name), by_form, at_most, at_least)]


def close_to(name: str, known: Iterable[str], at_least: float = _CLOSE) -> str | None:
    """The known name that ``name`` was probably meant to be; None where none is like it."""
    return next(iter(closest(name, known, 1, at_least)), None)


def did_you_mean(names: Iterable[str], known: Collection[str]) -> str:
    """``did you mean count? ``, for the beginning of a hint: of names that nobody knows, those that may be meant.

    Empty where there is nothing to say.
    """
    close = [close_to(name, known) for name in names if name not in known]
    return asked(list(dict.fromkeys(one for one in close if one is not None)))


def asked(meant: Sequence[str]) -> str:
    """``did you mean count? ``; empty where nothing may be meant."""
    return f"did you mean {', '.join(meant)}? " if meant else ""


def _form(name: str) -> str:
    """A name without what is easily mistaken: capitals, and which of the marks stands between its parts."""
    return re.sub("[-.,:/ ]", "_", name[:_LONGEST_NAME].casefold())


def first_lines(lines: Sequence[str], at_most: int = _MOST_LINES) -> list[str]:
    """The first of many lines, and how many more there are: for the ``details`` of an error."""
    rest = len(lines) - at_most
    return [*lines[:at_most], *([f"… and {rest} more"] if rest > 0 else [])]


def first_line(error: BaseException, at_most: int = 500) -> str:
    """The first line of what an error of somebody else's says that is not blank; empty where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:at_most]


def size_text(size: int) -> str:
    """A number of bytes as people read it, everywhere in the same units (IEC 80000-13): ``63 B``, ``353.9 MiB``.

    Where the very number is what a message is about, as of a file that has not the size that it should have, it is
    given as a number of bytes instead.
    """
    if size < 1024:
        return f"{size} B"
    amount, unit = size / 1024, 0
    while round(amount, 1) >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:,.1f} {_UNITS[unit]}"


def printable(text: object) -> str:
    """A text on one line, with everything that a terminal would act on, or that cannot be seen, escaped as in Python.

    What is not printable: line breaks, escapes, bytes that are not UTF-8, marks that turn the direction of writing.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def quoted(argument: str | os.PathLike[str]) -> str:
    r"""One word of a shell's command line that stands for ``argument``, on one line and printable.

    A path that begins with a dash gets a ``./`` before it: it is no option. What cannot be printed is written as
    ``$'\n'`` and ``$'\x1b'``, which bash, ksh and zsh (and POSIX since 2024) understand.
    """
    text = os.fspath(argument)
    if text.startswith("-") and not isinstance(argument, str):
        text = f"./{text}"
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_in_ansi(character) for character in text) + "'"


def command(*words: str | os.PathLike[str]) -> str:
    """A command line of kstate, from its words: ``command("undo", app)``.

    In a message it stands last on its line: whoever pastes it takes all from ``kstate`` to the end. What this command
    was told, and the next one has to be told again, is there too (:mod:`kstate_cli.carried`).
    """
    return shell("kstate", *words, *carried(words))


def shell(*words: str | os.PathLike[str]) -> str:
    """A command line of any program; as ``command``."""
    return " ".join(map(quoted, words))


Filling = str | os.PathLike[str] | tuple[str | os.PathLike[str], ...]
"""What may stand for a word of a template: one word, or several."""


def filled(template: str, values: Mapping[str, Filling | None]) -> str:
    """A command's template with values in place of the words in capitals that stand for them, all at once.

    ``filled("kstate wipe APP --task TASK", {"APP": path, "TASK": "0_1"})``. A value is never looked at for further
    words; one that is None leaves its word, and one that is a tuple stands for several words.
    """

    def value(placeholder: re.Match[str]) -> str:
        given = values.get(placeholder[0])
        if given is None:
            return placeholder[0]
        return " ".join(map(quoted, given)) if isinstance(given, tuple) else quoted(given)

    return _WORD.sub(value, template)


def _in_ansi(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
