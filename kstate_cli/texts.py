"""Texts that messages of several packages share, and commands that users can paste into a shell.

A printed command must work when it is pasted. Some options state a fact about the directory, so every later command
about it needs them again: the user vouches that the application is stopped on every host, or specifies transactional
stores. :func:`command` adds those that the current command was called with.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Final

from kstate_cli import option

INTERNALS: Final = "docs/internals"
"""The pages about Kafka Streams with their proofs: in the repository, and below ``share/doc/kstate`` if installed."""
DOCS_URL: Final = "KSTATE_DOCS_URL"
"""The variable with the address of the documentation site, for organizations that host it."""
EXAMPLES: Final = "examples"
"""The folder of the examples: in the repository, in the package, and in the command that writes them."""
_MOST_LINES = 20
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))
_WORD = re.compile(r"[A-Z]+")
_CLOSE = 0.7
"""The least similarity, of 1, of a mistyped name and the intended one: ``conut`` and ``count``, but not 2_1 and 0_1."""
_LONGEST_NAME = 250
"""Longer names are compared by their beginning: difflib takes quadratic time."""

_options: dict[str, frozenset[str]] = {}
"""The options of the current command that later commands need again, each with the commands that have it."""
_declared: set[str] = set()
"""Every option that the current command has; empty outside of a command."""


def forget_options() -> None:
    """Forget the options of the previous command, as a new one begins."""
    _options.clear()
    _declared.clear()


def declare_options(names: Iterable[str]) -> None:
    """Remember options that the current command has."""
    _declared.update(names)


def suggest(text: str, *names: str) -> str:
    """Return a part of a message that suggests these options; empty if the current command lacks one of them.

    Several commands share a planner: ``rehome`` also restores stores from a dump, and has no option to rebuild one.
    """
    if _declared and not _declared.issuperset(names):
        return ""
    return text


def carry_option(name: str, commands: frozenset[str], value: object) -> None:
    """Remember an option for printed ``commands`` if the current command was called with it (``value`` is True)."""
    if value is True:
        _options[name] = commands


def lacking_options(words: Sequence[object]) -> list[str]:
    """Return the remembered options that a command line lacks. ``words`` begin with the name of the command."""
    if not words or option.HELP in words:
        return []
    lacking = _options.keys() - set(map(str, words))
    # A command that lacks the option would end with a usage error: only those that have it repeat it.
    return sorted(name for name in lacking if words[0] in _options[name])


def documentation(name: str) -> str:
    """Return where a page of the documentation is, for messages: ``documentation("docs/how-to/fleet.md")``.

    Without KSTATE_DOCS_URL it is the path in the repository and below the installed documentation. With it, it is the
    URL of the page on the site that ``scripts/docs.sh`` builds, where pages end in ``.html``.
    """
    site = os.environ.get(DOCS_URL)
    if not site:
        return name
    path, anchor, section = name.removeprefix("docs/").partition("#")
    return f"{site.rstrip('/')}/{path.removesuffix('.md')}.html{anchor}{section}"


def internals(section: str) -> str:
    """Return where a section of the internals is, for messages: ``internals("start.md#going-down")``."""
    return documentation(f"{INTERNALS}/{section}")


def example(name: str) -> str:
    """Return the name of an example file for messages, with the command that writes it."""
    return f"{EXAMPLES}/{name}, which this command writes: {command('examples', option.OUT, EXAMPLES)}"


def some(names: Sequence[str], at_most: int) -> str:
    """Return the first ``at_most`` names in a row, and how many more there are."""
    rest = len(names) - at_most
    text = ", ".join(names[:at_most])
    if rest > 0:
        text += f" and {rest} more"
    return text


def plural(count: int, noun: str) -> str:
    """Return ``1 host``, ``2 hosts``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def closest(name: str, candidates: Iterable[str], at_most: int, at_least: float = _CLOSE) -> list[str]:
    """Return the candidates that a mistyped ``name`` probably means, the nearest first."""
    from difflib import get_close_matches  # every command imports this module, and few mistake a name

    by_form: dict[str, str] = {}
    for candidate in candidates:
        by_form.setdefault(_form(candidate), candidate)
    return [by_form[form] for form in get_close_matches(_form(name), by_form, at_most, at_least)]


def close_to(name: str, candidates: Iterable[str], at_least: float = _CLOSE) -> str | None:
    """Return the candidate that a mistyped ``name`` probably means; None if none resembles it."""
    return next(iter(closest(name, candidates, 1, at_least)), None)


def did_you_mean(names: Iterable[str], candidates: Collection[str]) -> str:
    """Return ``did you mean count? `` for the beginning of a hint about mistyped names; empty without a suggestion."""
    close = [close_to(name, candidates) for name in names if name not in candidates]
    return suggestion(list(dict.fromkeys(candidate for candidate in close if candidate is not None)))


def suggestion(names: Sequence[str]) -> str:
    """Return ``did you mean count? ``; empty without names."""
    if not names:
        return ""
    return f"did you mean {', '.join(names)}? "


def hint_with_suggestion(suggested: str, hint: str) -> str:
    """Return a hint, in a sentence of its own after what :func:`did_you_mean` returned unless that is empty."""
    if not suggested:
        return hint
    return suggested + hint[:1].upper() + hint[1:]


def _form(name: str) -> str:
    """Return a name in lower case, with ``_`` between its parts: people confuse capitals and punctuation."""
    return re.sub("[-.,:/ ]", "_", name[:_LONGEST_NAME].casefold())


def first_lines(lines: Sequence[str], at_most: int = _MOST_LINES) -> list[str]:
    """Return the first of many lines, and how many more there are, for the ``details`` of an error."""
    rest = len(lines) - at_most
    if rest <= 0:
        return [*lines]
    return [*lines[:at_most], f"… and {rest} more"]


def first_line(error: BaseException, at_most: int = 500) -> str:
    """Return the first non-blank line of an error of another library; empty if it has no text."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:at_most]


def moment(milliseconds: int) -> str:
    """Return a time, in milliseconds since 1970, as ``2026-11-26 12:00:00 UTC``, for sentences."""
    text = datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(" ", "seconds")
    return text.removesuffix("+00:00") + " UTC"


def span_text(duration_ms: int) -> str:
    """Return a duration as text, in the largest unit of which it has at least two."""
    for size, name in _SPANS:
        if duration_ms >= 2 * size:
            return f"{duration_ms // size} {name}"
    return f"{duration_ms} ms"


def size_text(size: int) -> str:
    """Return a number of bytes in units of IEC 80000-13, rounded: ``63 B``, ``353.9 MiB``.

    A message about the exact size, such as a file that is a byte too short, prints the number of bytes instead.
    """
    if size < 1024:
        return f"{size} B"
    amount, unit = size / 1024, 0
    # Rounded before the comparison: 1,023.96 KiB would be printed as 1,024.0 KiB.
    while round(amount, 1) >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:,.1f} {_UNITS[unit]}"


@contextmanager
def relative_paths(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Print paths in ``folder`` relative to it: names of temporary folders are longer than a line of a terminal."""
    _base.append(os.fspath(folder))
    try:
        yield
    finally:
        _base.pop()


_base: list[str] = []
"""The folder of :func:`relative_paths`, if there is one."""


def printable(text: object) -> str:
    """Return a text on one line, with every unprintable character escaped as in Python.

    Unprintable are line breaks, terminal escapes, bytes that are not UTF-8, and marks that turn the direction of text.
    """
    line = str(text)
    for folder in _base:
        line = line.replace(f"{folder}/", "")
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def quoted(argument: str | os.PathLike[str]) -> str:
    r"""Return ``argument`` as one printable word of a shell's command line.

    A path that begins with a dash gets a ``./`` before it, since it is no option. Unprintable characters become
    ``$'\n'`` and ``$'\x1b'``, which bash, ksh and zsh (and POSIX since 2024) understand.
    """
    text = os.fspath(argument)
    # Only paths: a word such as an option is given as a text.
    if text.startswith("-") and not isinstance(argument, str):
        text = f"./{text}"
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_in_ansi(character) for character in text) + "'"


def command(*words: str | os.PathLike[str]) -> str:
    """Return a command line of kstate, from its words: ``command("undo", app)``.

    In a message it is last on its line, so that users can copy from ``kstate`` to the end. It repeats the options of
    the current command that the next one needs too.
    """
    return shell("kstate", *words, *lacking_options(words))


def shell(*words: str | os.PathLike[str]) -> str:
    """Return a command line of any program, quoted for a shell."""
    return " ".join(map(quoted, words))


Filling = str | os.PathLike[str] | tuple[str | os.PathLike[str], ...]
"""The value of a placeholder in a template: one word, or several."""


def filled(template: str, values: Mapping[str, Filling | None]) -> str:
    """Return a command's template with values in place of its words in capitals.

    ``filled("kstate export APP STORE", {"APP": path, "STORE": "count"})``. All words are replaced at once: a value
    that contains such a word is not replaced again. None keeps the word, a tuple becomes several words.
    """

    def value(placeholder: re.Match[str]) -> str:
        filling = values.get(placeholder[0])
        if filling is None:
            return placeholder[0]
        return " ".join(map(quoted, filling)) if isinstance(filling, tuple) else quoted(filling)

    return _WORD.sub(value, template)


def _in_ansi(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
