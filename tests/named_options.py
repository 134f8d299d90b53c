"""The options that a command names in its messages, held against its own whenever a test runs one.

A hint that names an option of another command leads to a usage error. So each option must be one of the running command, or
stand in a line `kstate COMMAND …` that can be copied: then that command must have it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kstate_cli.cli.registry import COMMANDS, other_words
from tests.command_line import program

OPTION: Final = re.compile(r"(?<![\w./=-])--[a-z][a-z-]*[a-z](?![\w-])")
OF_OTHER_PROGRAMS: Final = re.compile(
    r"--format=posix|kafka-streams-groups\.sh --describe --topology|kafka-streams-application-reset .*"
)
"""What messages quote of GNU tar and of tools of Kafka."""
_NAMES: Final = "|".join(sorted(COMMANDS, key=len, reverse=True))
_HYPHENATED: Final = "|".join(name for name in COMMANDS if "-" in name)
_COMMAND: Final = re.compile(
    rf"\bkstate ((?:{_NAMES})\b(?: [a-z][a-z-]*)?)|(?<=\()({_NAMES})(?= --)|(?<![\w/.-])({_HYPHENATED})\b(?!-)"
)
"""A line that can be copied, what a run is called (`migrate --to 4.3`), or a name that is no other word."""
_ADVICE: Final = frozenset({"error", "warning"})
"""Lines that may advise in any member; of all others only the hint is read."""


def check(arguments: Sequence[object], out: str, err: str) -> None:
    """Fails if a message of a command names an option that the command it belongs to does not have."""
    words = other_words([str(argument) for argument in arguments])
    # `explain` describes what other commands print, and `maintain` passes it on.
    if not words or words[0] not in {*COMMANDS} - {"explain", "maintain"} or {"--help", "-h"} & {*words}:
        return
    own = _options_of(words) | {word.partition("=")[0] for word in words if word.startswith("--")}
    wrong = [fault for text in _messages(out, err) for fault in faults(text, own)]
    assert not wrong, f"kstate {' '.join(words)}: {wrong}"


def faults(text: str, own: frozenset[str]) -> Iterator[str]:
    """Yield each option that its command does not have, with the text; ``own`` has the running command."""
    text = OF_OTHER_PROGRAMS.sub("", text)
    for line in text.splitlines():
        commands = [*_COMMAND.finditer(line)]
        for name in OPTION.finditer(line):
            before = [match[1] or match[2] or match[3] for match in commands if match.end() <= name.start()]
            owner = _options_of(before[-1].split()) if before else own
            if name[0] not in owner:
                yield f"{name[0]}: {line}"


def _messages(out: str, err: str) -> Iterator[str]:
    for line in (*out.splitlines(), *err.splitlines()):
        document = _parse(line)
        if document is not None:
            yield from _texts(document if document.get("type") in _ADVICE else document.get("hint"))
    # Tables of results are the same as lines of JSON.
    yield from (line for line in err.splitlines() if line.startswith("warning: "))
    _, begin, message = f"\n{err}".partition("\nkstate: ")
    yield from (line for line in (begin + message).splitlines() if _parse(line) is None)


def _parse(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        document = json.loads(line)
    except ValueError:
        return None  # the last line of a command that was killed
    return document if isinstance(document, dict) else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            # Of an earlier run.
            if name != "command":
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _options_of(words: Sequence[str]) -> frozenset[str]:
    """Return the options of the command that the words begin with, and of its subcommand."""
    return _options(*[word for word in words[:2] if not word.startswith("-")])


@functools.cache
def _options(name: str, inner: str = "") -> frozenset[str]:
    command = program().commands.get(name)
    parsers = [program()] if command is None else [command]
    if inner in getattr(command, "commands", {}):
        parsers.append(command.commands[inner])
    parameters = [parameter for parser in parsers for parameter in parser.params]
    return frozenset(
        {"--help", *(text for parameter in parameters for text in (*parameter.opts, *parameter.secondary_opts))}
    )
