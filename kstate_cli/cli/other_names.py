"""Other names of an option: ``--dump`` works with every dump, and an unknown name leads to the right one.

The first is a rule for every command (:func:`accept_dump_names`): ``--dump DUMP`` and ``--from-changelog DUMP`` mean
the same. So do ``--out`` of ``dump``, and the argument of commands that take only a dump. The help shows one name.

The second is a table of words that mean one thing to different commands or tools (:data:`SAME`). Where a command does
not know an option, the error names what the command calls it (:func:`meant_names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

DUMP_NAMES: Final = ("--dump", "--from-changelog")
_OUT: Final = "--out"
_OTHER_NAMES: Final = {"dump": _OUT, "seed": "--from"}
"""Commands whose dump has an option of another name in the help."""
_DUMP_METAVAR: Final = "DUMP"
SAME: Final[tuple[frozenset[str], ...]] = tuple(
    map(
        frozenset,
        (
            (*DUMP_NAMES, _OUT, "--from-dump", "--output-dir", "--out-dir", "--target", "DUMP"),
            ("--for", "--to", "--release", "--target-release", "--streams-version", "--version"),
            ("--for-jar", "--to-jar", "--jar"),
            ("--spec", "--kstate-toml", "--config-file", "--stores"),
            ("--topology", "--new-topology", "--new", "--named-topology"),
            ("--from", "--old", "--old-topology", "--from-topology"),
            ("--from", "--time-from", "--start", "--since"),
            ("--to", "--time-to", "--end"),
            ("--until", "--up-to", "--as-of", "--at"),
            ("--app", "APP", "--application-id", "--application", "--state-dir", "--dir", "--directory"),
            ("--store", "STORE", "--stores", "--name"),
            ("--task", "--tasks", "--task-id"),
            ("--partition", "--partitions"),
            ("--topic", "--topics"),
            ("--bootstrap-server", "--bootstrap-servers", "--bootstrap", "--broker", "--brokers", "--broker-list"),
            ("--kafka-settings", "--command-config", "--consumer-config", "--consumer.config", "--properties"),
            ("--output", "--format", "--json"),
            ("--dry-run", "--dryrun", "--plan"),
            ("--workers", "--threads", "--jobs", "--parallel", "--processes"),
            ("--memory", "--mem", "--max-memory"),
            ("--engine", "--runner"),
            ("--master", "--spark-master"),
            ("--ignore", "--exclude", "--skip"),
            ("--guarantee", "--processing-guarantee"),
            ("--older-than", "--min-age"),
            ("--limit", "--max", "--head"),
            ("--subset", "--share", "--part"),
        ),
    )
)
"""Names for one thing. A word without dashes is the metavar of an argument."""


def accept_dump_names(parser: Any, path: str) -> None:
    """Have a command that reads or writes a dump accept every name of :data:`DUMP_NAMES` for it."""
    options = {name for parameter in parser.params if parameter.param_type_name == "option" for name in parameter.opts}
    documented = _documented(parser, path, options)
    # Names that the command has as an option of its own keep that meaning.
    others = {name for name in DUMP_NAMES if name not in options}
    # Most commands have nothing to translate, and their words are parsed unchanged.
    if documented is None or not others:
        return
    takes_value = {
        name
        for parameter in parser.params
        if parameter.param_type_name == "option" and not parameter.is_flag
        for name in parameter.opts
    }
    parser.documented_words = lambda words: [*_documented_words(words, others, documented, takes_value)]


def _documented(parser: Any, path: str, options: set[str]) -> str | None:
    """The option that the help shows; empty for an argument, None for a command without a dump."""
    name = next((name for name in DUMP_NAMES if name in options), None)
    if name is not None:
        return name
    if path in _OTHER_NAMES:
        return _OTHER_NAMES[path]
    is_argument = any(
        parameter.param_type_name == "argument" and parameter.metavar == _DUMP_METAVAR for parameter in parser.params
    )
    return "" if is_argument else None


def _documented_words(args: list[str], others: set[str], documented: str, takes_value: set[str]) -> Iterator[str]:
    """Yield the words of a command line with ``documented`` in the place of the other names."""
    before = ""
    for number, word in enumerate(args):
        if word == "--":
            yield from args[number:]
            return
        # An option and its value may be one word, as in --dump=DIR.
        name, equals, value = word.partition("=")
        if name not in others or before in takes_value:  # what follows such an option is its value
            yield word
        elif documented:
            yield f"{documented}{equals}{value}"
        elif equals:
            yield value
        before = word


def meant_names(option: str, parameters: Iterable[Any]) -> list[str]:
    """Return what a command calls an option that it does not know."""
    words = {word for names in SAME if option in names for word in names}
    names: list[str] = []
    for parameter in parameters:
        if parameter.param_type_name == "option":
            names += [name for name in parameter.opts if name in words]
        elif parameter.metavar in words:
            names.append(f"the argument {parameter.metavar}")
    return names
