"""``kstate explain``: what a code means that any command has printed, and what to do about it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli.cli.options.shared import Output
from kstate_cli.cli.output import Format
from kstate_cli.cli.shell_completion import codes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.explain.model import Explanation

_INDENT: Final = "  "
_WIDEST: Final = 100
"""Columns that sentences fill on a terminal; elsewhere they are not broken."""


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="A finding, problem, state, failure or exit code; or GROUP:CODE, as exit:3. Without it: all.",
            autocompletion=codes,
        ),
    ] = None,
    output: Output = Format.table,
) -> int:
    """Say what a code means: what it is, which rule of Streams it follows, what Streams logs, what to do."""
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.explain.catalogue import explanations, find, groups

    asked_for = tuple(explanations()) if code is None else find(code)
    if code is not None and not asked_for:
        _refuse(code)
    if output is Format.json:
        _print_json(JsonLines(None), asked_for)
    elif code is None:
        _print("\n\n".join(_listed(group.title, group.name, group.explanations) for group in groups()))
    else:
        _print("\n\n".join("\n".join(_lines(one)) for one in asked_for))
    return 0


def _refuse(code: str) -> None:
    """Raises UsageError, with the codes that may be meant."""
    from kstate_cli.errors import UsageError
    from kstate_cli.explain.catalogue import in_the_log, meant
    from kstate_cli.texts import command

    near, printed = meant(code), in_the_log(code)
    details = [f"Streams prints that where it is {' or '.join(printed)}"] if printed else []
    if near and not printed:
        details = [f"did you mean {' or '.join(near)}?"]
    raise UsageError(
        f"there is no code {code!r}",
        details=details,
        hint=f"all codes: {command('explain')}",
    )


def _print_json(lines: JsonLines, asked_for: Sequence[Explanation]) -> None:
    for one in asked_for:
        first, *more = one.do
        lines.line(
            "explanation",
            {
                "group": one.group,
                "code": one.code,
                "level": one.level,
                "message": one.what,
                "rule": one.rule,
                "messages": None if one.log is None else list(one.log),
                "hint": first,
                "hint_details": more,
            },
        )
    lines.summary({"explanations": len(asked_for)})


def _print(text: str) -> None:
    from kstate_cli.cli.standard import showable

    sys.stdout.write(showable(text) + "\n")


def _listed(title: str, name: str, explained: tuple[Explanation, ...]) -> str:
    widest = max(len(one.code) for one in explained)
    lines = [line for one in explained for line in _filled(f"{one.code:{widest}}  {one.brief}", hanging=widest + 2)]
    return "\n".join([f"{title} ({name}:)", *lines])


def _lines(one: Explanation) -> Iterator[str]:
    """An explanation; what is to be copied is on lines that are never broken."""
    yield f"{one.full_name} ({one.level})" if one.level else one.full_name
    yield from _filled(one.what)
    if one.rule is not None:
        yield "rule:"
        yield from _filled(one.rule)
    if one.log is not None:
        yield "in the log of Streams:"
        yield from (f"{_INDENT}{sentence}" for sentence in one.log or ("nothing",))
    yield "what to do:"
    yield from (f"{_INDENT}{line}" for line in one.do)


def _filled(text: str, *, hanging: int = 0) -> list[str]:
    """A text, broken to the width of a terminal and nowhere else; lines after the first begin ``hanging`` later."""
    if not sys.stdout.isatty():
        return [f"{_INDENT}{text}"]
    from textwrap import TextWrapper

    from kstate_cli.cli.output import console

    wrapper = TextWrapper(min(console(stderr=False).width, _WIDEST), break_long_words=False, break_on_hyphens=False)
    wrapper.initial_indent, wrapper.subsequent_indent = _INDENT, _INDENT + " " * hanging
    return wrapper.wrap(text)
