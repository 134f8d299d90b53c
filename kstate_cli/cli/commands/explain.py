"""``kstate explain``: print the meaning of a code, and what to do about it."""

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
"""Width of sentences on a terminal; elsewhere they are not broken."""


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="A finding, problem, state, failure or exit code, or GROUP:CODE such as exit:3. Default: list all.",
            autocompletion=codes,
        ),
    ] = None,
    output: Output = Format.table,
) -> int:
    """Explain a code: its meaning, the rule of Streams behind it, what Streams logs, and what to do."""
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.explain.catalogue import explanations, find, groups

    explanations_of_code = tuple(explanations()) if code is None else find(code)
    if code is not None and not explanations_of_code:
        _refuse(code)
    if output is Format.json:
        _print_json(JsonLines(None), explanations_of_code)
    elif code is None:
        _print("\n\n".join(_index(group.title, group.name, group.explanations) for group in groups()))
    else:
        _print("\n\n".join("\n".join(_lines(entry)) for entry in explanations_of_code))
    return 0


def _refuse(code: str) -> None:
    """Raise UsageError with similar codes."""
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


def _print_json(lines: JsonLines, entries: Sequence[Explanation]) -> None:
    for entry in entries:
        first, *more = entry.do
        lines.line(
            "explanation",
            {
                "group": entry.group,
                "code": entry.code,
                "level": entry.level,
                "message": entry.meaning,
                "rule": entry.rule,
                "messages": None if entry.log is None else list(entry.log),
                "hint": first,
                "hint_details": more,
            },
        )
    lines.summary({"explanations": len(entries)})


def _print(text: str) -> None:
    from kstate_cli.cli.standard import showable

    sys.stdout.write(showable(text) + "\n")


def _index(title: str, name: str, explained: tuple[Explanation, ...]) -> str:
    widest = max(len(entry.code) for entry in explained)
    lines = [
        line for entry in explained for line in _filled(f"{entry.code:{widest}}  {entry.brief}", hanging=widest + 2)
    ]
    return "\n".join([f"{title} ({name}:)", *lines])


def _lines(entry: Explanation) -> Iterator[str]:
    """Yield the lines of an explanation; text to copy is never broken."""
    yield f"{entry.full_name} ({entry.level})" if entry.level else entry.full_name
    yield from _filled(entry.meaning)
    if entry.rule is not None:
        yield "rule:"
        yield from _filled(entry.rule)
    if entry.log is not None:
        yield "in the log of Streams:"
        yield from (f"{_INDENT}{sentence}" for sentence in entry.log or ("nothing",))
    yield "what to do:"
    yield from (f"{_INDENT}{line}" for line in entry.do)


def _filled(text: str, *, hanging: int = 0) -> list[str]:
    """Return a text, broken on a terminal only; lines after the first are indented by ``hanging``."""
    if not sys.stdout.isatty():
        return [f"{_INDENT}{text}"]
    from textwrap import TextWrapper

    from kstate_cli.cli.output import console

    wrapper = TextWrapper(min(console(stderr=False).width, _WIDEST), break_long_words=False, break_on_hyphens=False)
    wrapper.initial_indent, wrapper.subsequent_indent = _INDENT, _INDENT + " " * hanging
    return wrapper.wrap(text)
