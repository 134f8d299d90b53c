"""Lay rows out in columns: names are never broken, and without a terminal each row is one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kstate_cli.cli.list_of_commands import TEXT as LIST_OF_COMMANDS

_GAP = 2
_LEAST = 16
"""Least width of a folded column: a narrower one cannot be read."""
_INDENT = " " * 4
_LONGEST_RULE: Final = 160
"""Columns of the rule below the header if standard output is not a terminal."""


class Fold(Enum):
    """How a cell that is too wide for its column is folded."""

    NEVER = "never"
    WORDS = "words"
    """At spaces: sentences. A word, which may be a name or a path, is never broken."""
    ANYWHERE = "anywhere"
    """After any character: keys and values."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    right: bool = False
    """Align right: numbers."""
    fold: Fold = Fold.NEVER
    spare: int = 0
    """A narrow terminal drops the column with the highest number first, and never one with 0."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A table as lines without their ends; the first two are the names of the columns, and a rule."""

    lines: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Names of columns for which the terminal has no space, in their order."""


def width_of(text: str) -> int:
    """Return the terminal columns of a text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    # Only for names that are not ASCII: the table of widths takes longer to load than most commands run.
    from rich.cells import cell_len

    return cell_len(text)


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[Sequence[str]]], *, width: int | None, rule: str
) -> Laid:
    """Return the lines of a table; a cell is one text, or several below each other.

    ``width`` is that of a terminal, or None for a pipe: then each row is one line, and nothing is left out. For a
    terminal, columns that can be spared are left out first, then sentences are folded. If that is not enough, the
    columns at the right end become lines below their row. Names are never broken.
    """
    if width is None:
        # Each row is one line, since awk and grep read lines.
        joined = [[(" ".join(cell),) for cell in row] for row in rows]
        header, line, *others = _lines(columns, joined, _natural(columns, joined), rule)
        # A cell with a sentence makes the table hundreds of columns wide, and a viewer would wrap the rule.
        return Laid((header, line[:_LONGEST_RULE], *others))
    natural = _natural(columns, rows)
    visible = _visible(columns, natural, width)
    left_out = tuple(column.name for at, column in enumerate(columns) if at not in visible)
    visible_columns = [columns[at] for at in visible]
    cells = [[row[at] for at in visible] for row in rows]
    widths = _folded(visible_columns, cells, [natural[at] for at in visible], width)
    if _total(widths) <= width:
        return Laid(_lines(visible_columns, cells, widths, rule), left_out)
    return Laid(_records(visible_columns, cells, [natural[at] for at in visible], width, rule), left_out)


def _visible(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Return the indexes of the columns to print: those with the highest ``spare`` go first, while it is too wide."""
    visible = list(range(len(columns)))
    while _total([natural[at] for at in visible]) > width and any(columns[at].spare for at in visible):
        visible.remove(max(visible, key=lambda at: columns[at].spare))
    return visible


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[Sequence[str]]]) -> list[int]:
    widths = [width_of(column.name) for column in columns]
    for row in rows:
        for at, cell in enumerate(row):
            widths[at] = max(widths[at], *(width_of(line) for line in cell), 0)
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * max(len(widths) - 1, 0)


def _folded(
    columns: Sequence[Column], rows: Sequence[Sequence[Sequence[str]]], widths: Sequence[int], width: int
) -> list[int]:
    """Return the widths after the widest foldable columns have been narrowed until the table fits, or not further."""
    narrowed = list(widths)
    # The widest first, since it loses least by being folded.
    for at in sorted(range(len(narrowed)), key=lambda at: -narrowed[at]):
        too_much = _total(narrowed) - width
        if too_much > 0 and columns[at].fold is not Fold.NEVER:
            # A column narrower than its own name would be wider than it says.
            least = max(_LEAST, width_of(columns[at].name))
            if columns[at].fold is Fold.WORDS:
                # A word is not broken, so a column that is narrower than one would be wider than it says.
                least = max(least, *(width_of(word) for row in rows for line in row[at] for word in line.split(" ")), 0)
            narrowed[at] = max(narrowed[at] - too_much, min(narrowed[at], least))
    return narrowed


def _lines(
    columns: Sequence[Column], rows: Sequence[Sequence[Sequence[str]]], widths: Sequence[int], rule: str
) -> tuple[str, ...]:
    """Return the lines of a table with a header; ``rule`` is the character of the line below the header."""
    lines = [_line(columns, [column.name for column in columns], widths), rule * _total(widths)]
    for row in rows:
        cells = [
            [piece for line in cell for piece in _pieces(line, width, column.fold)]
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        lines += [
            _line(columns, [cell[number] if number < len(cell) else "" for cell in cells], widths)
            for number in range(max(map(len, cells), default=0))
        ]
    return tuple(lines)


def _records(
    columns: Sequence[Column], rows: Sequence[Sequence[Sequence[str]]], widths: Sequence[int], width: int, rule: str
) -> tuple[str, ...]:
    """Return the lines of rows whose last cells do not fit: each of these is a line below its row."""
    count = max(1, next((n for n in range(len(columns), 0, -1) if _total(widths[:n]) <= width), 1))
    head = _lines(columns[:count], [row[:count] for row in rows], widths[:count], rule)
    lines = list(head[:2])
    for row in rows:
        lines += _lines(columns[:count], [row[:count]], widths[:count], rule)[2:]
        for column, cell in zip(columns[count:], row[count:], strict=True):
            if not any(cell):
                continue
            label = f"{_INDENT}{column.name}: "
            for line in cell:
                for piece in _pieces(line, max(width - len(label), _LEAST), column.fold):
                    lines.append(f"{label}{piece}")
                    label = " " * len(label)
    return tuple(lines)


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        blanks = " " * (width - width_of(cell))
        parts.append(f"{blanks}{cell}" if column.right else f"{cell}{blanks}")
    return (" " * _GAP).join(parts).rstrip()


def _pieces(text: str, width: int, fold: Fold) -> list[str]:
    """Return a text in pieces of at most ``width`` columns, as far as ``fold`` allows."""
    if fold is Fold.NEVER or width_of(text) <= width:
        return [text]
    if fold is Fold.ANYWHERE:
        from rich.cells import chop_cells

        return chop_cells(text, width)
    return fold_words(text, width)


def fold_message(text: str, width: int) -> list[str]:
    """Return a message in lines of at most ``width`` columns, further lines indented by two more than the first.

    A command to paste stays in one piece, however long it is: a shell runs each line of a pasted text, and a wipe that
    has lost its ``--task`` is one of the whole application. Lines of a kstate.toml stay in one piece as well, since the
    second half of a comment is not TOML.
    """
    sentence = text.lstrip(" ")
    indent = " " * (len(text) - len(sentence))
    if width_of(text) <= width or _COMMAND.match(sentence) or _TOML.match(sentence):
        return [text]
    begin = _COMMAND.search(sentence)
    at = len(sentence)
    if begin is not None:
        at = begin.start() - 1
    lines = fold_words(sentence[:at], max(width - len(indent) - _GAP, _LEAST))
    command = sentence[at + 1 :]
    if command and len(indent) + _GAP + width_of(f"{lines[-1]} {command}") <= width:
        lines[-1] += f" {command}"
    elif command:
        lines.append(command)
    return [f"{indent}{' ' * _GAP if number else ''}{line}" for number, line in enumerate(lines)]


_OTHER_PROGRAMS = ("pip", "python", "python3", "uv", "sudo", "mv", "cp", "rm", "chown", "chmod", "setfacl")
_OWN_COMMANDS = re.findall(r"^  ([a-z][a-z-]*) {2,}", LIST_OF_COMMANDS.partition("Commands:")[2], re.MULTILINE)
_COMMAND = re.compile(
    rf"(?:(?<= )|^)(?:(?:{'|'.join(_OTHER_PROGRAMS)}) "
    rf"|kstate (?:-|(?:{'|'.join(map(re.escape, _OWN_COMMANDS))})(?: |$)))"
)
"""The beginning of a command in a message. In a sentence, kstate is a subject: "kstate assumes that …"."""
_TOML = re.compile(r"\[\w+\.[^\]]+\]$|(?:# )?[a-z_]+ = ")
"""The header of a table of kstate.toml, or the beginning of a line in it."""


def fold_words(text: str, width: int) -> list[str]:
    """Return a sentence in lines of at most ``width`` columns; a wider word is not broken."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and width_of(lines[-1]) + 1 + width_of(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
