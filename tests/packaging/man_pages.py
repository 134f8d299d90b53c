"""Manual pages, from the commands as they are declared: one for each. `python -m tests.packaging.man_pages DIR` writes them.

They are made for a release (`scripts/release.sh`) and lie in `share/man/man1` of an installation. Nothing is written by
hand: what `--help` says is the page.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from kstate_cli import __version__
from kstate_cli.cli.app import app
from kstate_cli.cli.help_panels import panel_of
from kstate_cli.cli.registry import COMMANDS

_AS_IT_IS: Final = "\b"
"""Begins a paragraph whose lines are not to be filled."""
_EXIT_CODES: Final = re.compile(r"^Exit codes: ")


def pages() -> Iterator[tuple[str, str]]:
    """The name of each page, `kstate-query-key.1`, and its text."""
    root: Any = typer.main.get_command(app)
    yield from _below(root, root.context_class(root, info_name="kstate", **root.context_settings))


def _below(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    yield f"{context.command_path.replace(' ', '-')}.1", "".join(f"{line}\n" for line in _page(command, context))
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, inner.context_class(inner, info_name=name, parent=context))


def _page(command: Any, context: Any) -> Iterator[str]:
    path = context.command_path
    name = path.replace(" ", "-")
    text = _text(command.help or "")
    yield f'.TH "{_escape(name.upper())}" "1" "" "kstate {__version__}" "kstate"'
    yield ".SH NAME"
    yield f"{_escape(name)} \\- {_escape(_short(path, text))}"
    yield ".SH SYNOPSIS"
    yield f".B {_escape(path)}"
    yield _line(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    yield from _paragraphs(text)
    yield from _options(command, context)
    inner = getattr(command, "commands", {})
    if inner:
        yield ".SH COMMANDS"
        for entry in inner:
            yield ".TP"
            yield f".BR {_escape(name)}\\-{_escape(entry)} (1)"
            below = inner[entry]
            yield _line(_short(f"{path} {entry}", _text(below.help or "")))
    if command.epilog:
        yield ".SH EXIT STATUS" if _EXIT_CODES.match(command.epilog) else ".SH NOTES"
        yield from _paragraphs(_text(command.epilog))
    if context.parent is not None:
        yield ".SH SEE ALSO"
        yield f".BR {_escape(context.parent.command_path.replace(' ', '-'))} (1)"


def _options(command: Any, context: Any) -> Iterator[str]:
    """Arguments and options below the titles that they have in the help."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        row = parameter.get_help_record(context)
        if row is not None:
            panels.setdefault(panel_of(parameter), []).append(row)
    for title, rows in panels.items():
        yield f".SH {_escape(title.upper())}"
        for names, text in rows:
            yield ".TP"
            yield f".B {_escape(names)}"
            yield _line(text)


def _text(arguments: str) -> str:
    return textwrap.dedent(arguments.replace("\f", "")).strip("\n")


def _short(path: str, text: str) -> str:
    """As the list of commands has it, else the first sentence."""
    words = path.split()
    if len(words) == 2:
        return COMMANDS[words[1]].help.removesuffix(".")
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).partition(". ")[0].removesuffix(".")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip(" ") == _AS_IT_IS:
            yield ".nf"
            yield from map(_line, lines[1:])
            yield ".fi"
        else:
            yield _line(" ".join(" ".join(lines).split()))


def _line(text: str) -> str:
    """A line of text, never a request of troff's."""
    escaped = _escape(text)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escape(text: str) -> str:
    r"""A hyphen is one to copy, not one to print; a backslash is itself."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


def main(folder: Path) -> None:
    """Writes them all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
