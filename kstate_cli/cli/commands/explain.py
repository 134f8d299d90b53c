"""``kstate explain``: print the meaning of a code, and what to do about it."""

from __future__ import annotations

import sys
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import OutputFormat
from kstate_cli.cli.output import Format, console, output_of
from kstate_cli.cli.shell_completion import codes
from kstate_cli.cli.standard import showable
from kstate_cli.errors import UsageError
from kstate_cli.texts import command, documentation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstate_cli.cli.lines.dumps import ExplainLine
    from kstate_cli.cli.output import Output
    from kstate_cli.explain.model import Explanation

HELP_EXAMPLES: Final = {
    "explain": (
        Example("Explain a finding from check", "explain status-open"),
        Example("Explain an exit code", "explain exit:7"),
    ),
}

_INDENT: Final = "  "
_COMMAND: Final = "kstate "
_MOST_IN_FULL: Final = 3
_WIDEST: Final = 100
"""Width of sentences on a terminal; elsewhere they are not broken."""


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help=(
                "Text to explain: a code such as exit:3, a log line, an exception or a note from "
                "kstate. Pass - to read standard input. Without TEXT, kstate lists all codes."
            ),
            autocompletion=codes,
        ),
    ] = None,
    output: OutputFormat = Format.table,
) -> int:
    """Explain a code or pasted text: its meaning, the Kafka Streams rule behind it, and what to do.

    You can paste a line from a Kafka Streams log, an exception with its causes, or a note that kstate printed. kstate
    ignores timestamps, thread names, paths and line breaks. If the text contains quotes, pass it on standard input.
    """
    from kstate_cli.explain.catalogue import explanations, find, groups, shared_meaning

    sentences: tuple[str, ...] = ()
    meaning = None
    if not words:
        entries = tuple(explanations())
    else:
        # The shell has split a pasted line at its blanks, so the words are joined again.
        text = " ".join(words)
        if words == ["-"]:
            text = _standard_input()
        # Codes are looked up before sentences, since a word may be both.
        entries = find(text)
        if not entries:
            entries, sentences = _fitting(text)
            meaning = shared_meaning(text)

    def show() -> None:
        if not words:
            _print("\n\n".join(_index(group.title, group.name, group.explanations) for group in groups()))
        elif len(entries) > _MOST_IN_FULL:
            _print("\n".join(_choice(entries, sentences, meaning)))
        else:
            _print("\n\n".join("\n".join([*_lines(entry), *_where(entry, sentences)]) for entry in entries))

    results: Output[ExplainLine] = output_of(output, None)
    results.show(_json_lines(entries), show)
    return 0


def _standard_input() -> str:
    """Return the pasted text."""
    if sys.stdin is None:
        return ""
    # A log may be cut in the middle of a character.
    return sys.stdin.buffer.read().decode(errors="replace")


def _fitting(text: str) -> tuple[tuple[Explanation, ...], tuple[str, ...]]:
    """Return the explanations of a pasted text, and the sentences of it that they explain. Raise UsageError."""
    from kstate_cli.explain.catalogue import (
        best,
        explanations,
        match,
        mentions,
        message_of_exception,
        similar_codes,
    )

    matches = match(text, tuple(explanations()))
    # Sentences of Streams come first: they are better evidence than a word that resembles a code.
    if matches:
        return tuple(entry.explanation for entry in best(matches)), matches[0].sentences
    # The name of a class without its message, such as from an alert. The message is not in the text.
    if (message := message_of_exception(text)) is not None:
        return tuple(entry.explanation for entry in best(match(message, tuple(explanations())))), ()
    # Several words cannot be a code, so similar codes are not suggested.
    if len(text.split()) > 1 or not text.strip():
        raise UsageError(
            "kstate does not recognize this text",
            hint=(
                f"pass more of the log, with the causes of the exception, for example: {command('explain', '-')} < FILE"
            ),
            hint_details=[f"to check the directory itself: {command('check', 'APP', option.FOR, 'RELEASE')}"],
        )
    details = []
    if near := similar_codes(text) or mentions(text):
        details = [f"did you mean {' or '.join(near)}?"]
    raise UsageError(
        f"the code {text!r} does not exist",
        details=details,
        hint=f"to list all codes: {command('explain')}",
    )


def _choice(entries: Sequence[Explanation], sentences: Sequence[str], meaning: str | None) -> Iterator[str]:
    """Codes that share a sentence: the text does not tell which of them it is, the directory does."""
    if meaning is not None:
        yield "meaning:"
        yield from _filled(meaning)
    if sentences:
        yield from _in_text(sentences)
    yield "one of these is the cause:"
    # So that the explanations begin in one column.
    widest = max(len(entry.full_name) for entry in entries)
    for entry in entries:
        yield from _filled(f"{entry.full_name:{widest}}  {entry.brief}", hanging=widest + 2)
    yield "what to do:"
    yield f"{_INDENT}to find out which one it is: {command('check', 'APP', option.FOR, 'RELEASE')}"
    yield f"{_INDENT}to see what one of these codes means: {command('explain', entries[0].full_name)}"


def _where(entry: Explanation, sentences: Sequence[str]) -> Iterator[str]:
    """Yield the sentences of a pasted text that the explanation has, and its page; nothing for a code."""
    if sentences:
        yield from _in_text(sentences)
        yield "page:"
        yield f"{_INDENT}{documentation(f'docs/codes/{entry.group}.md')}"


def _in_text(sentences: Sequence[str]) -> Iterator[str]:
    yield "in the text:"
    for sentence in sentences:
        yield from _filled(sentence.replace("{}", "…"), hanging=len(_INDENT))


def _json_lines(entries: Sequence[Explanation]) -> Iterator[ExplainLine]:
    for entry in entries:
        first, *more = entry.do
        yield {
            "type": "explanation",
            "group": entry.group,
            "code": entry.code,
            "level": entry.level,
            "message": entry.meaning,
            "rule": entry.rule,
            "messages": None if entry.log is None else list(entry.log),
            "hint": first,
            "hint_details": more,
        }
    yield {"type": "summary", "explanations": len(entries)}


def _print(text: str) -> None:

    sys.stdout.write(showable(text) + "\n")


def _index(title: str, name: str, explained: tuple[Explanation, ...]) -> str:
    widest = max(len(entry.code) for entry in explained)
    lines = [
        line for entry in explained for line in _filled(f"{entry.code:{widest}}  {entry.brief}", hanging=widest + 2)
    ]
    return "\n".join([f"{title} ({name}:)", *lines])


def _lines(entry: Explanation) -> Iterator[str]:
    """Yield the lines of an explanation; a command is never broken."""
    if entry.level:
        yield f"{entry.full_name} ({entry.level})"
    else:
        yield entry.full_name
    yield from _filled(entry.meaning)
    if entry.rule is not None:
        yield "rule:"
        yield from _filled(entry.rule)
    if entry.log is not None:
        yield "in the Streams log:"
        for sentence in entry.log or ("nothing",):
            yield from _filled(sentence, hanging=len(_INDENT))
    yield "what to do:"
    for line in entry.do:
        # A command is to be pasted, and a terminal copies a line that it folds itself as one.
        if _COMMAND in line:
            yield f"{_INDENT}{line}"
        else:
            yield from _filled(line, hanging=len(_INDENT))


def _filled(text: str, *, hanging: int = 0) -> list[str]:
    """Return a text, broken on a terminal only; lines after the first are indented by ``hanging``."""
    if not sys.stdout.isatty():
        return [f"{_INDENT}{text}"]

    # Words and commands are never broken: they are to be copied.
    wrapper = TextWrapper(min(console(stderr=False).width, _WIDEST), break_long_words=False, break_on_hyphens=False)
    wrapper.initial_indent, wrapper.subsequent_indent = _INDENT, _INDENT + " " * hanging
    return wrapper.wrap(text)
