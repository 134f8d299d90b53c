"""An explanation: its texts, as they are written down, and the whole of it, as it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstate_cli.codes import Code


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a code without a catalogue of its own."""

    brief: str
    """The meaning, in one line, without a full stop."""
    more: str = ""
    """The consequences, in sentences."""
    log: tuple[str, ...] | None = None
    """Sentences of :mod:`kstate_cli.streams_log`; None if this is nothing that Streams could print."""
    rule: str | None = None
    """Class of Kafka Streams, KIP, section of docs/internals; None if the code's owner has it, or there is none."""
    do: tuple[str, ...] = ()
    """What to do, a line each. A command stands last on its line; ``APP`` and other words in capitals are filled in."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole explanation of one code."""

    group: str
    code: str
    level: str | None
    """How severe it is, if its group has levels."""
    brief: str
    more: str
    rule: str | None
    log: tuple[str, ...] | None
    """The messages of Kafka Streams, for people; empty if it prints nothing; None if it could not print anything."""
    do: tuple[str, ...]
    # Apart from ``log``: that is for people, with dots and releases, and matches no pasted text.
    sentences: tuple[str, ...] = ()
    """What Kafka Streams, RocksDB or kstate prints, as it is printed; ``{}`` where names and numbers come."""

    @property
    def full_name(self) -> str:
        """Return the code with its group: ``exit:3``."""
        return f"{self.group}:{self.code}"

    @property
    def meaning(self) -> str:
        """Return the meaning and the consequences, in sentences."""
        return f"{self.brief}. {self.more}".rstrip()


@dataclass(frozen=True, slots=True)
class CodeGroup:
    """Codes of one kind, in the order in which they are listed."""

    name: str
    title: str
    where: str
    """Where such codes are printed."""
    explanations: tuple[Explanation, ...]


def explanation(group: str, code: Code, level: str | None) -> Explanation:
    """Return the explanation of a code by its catalogue entry. The hint of the entry comes first."""
    do = code.do
    if code.hint:
        do = (code.instruction, *do)
    # An empty rule of a code means none, and None does in an explanation.
    return Explanation(group, code.name, level, code.brief, code.more, code.rule or None, code.log, do)


def plain(group: str, texts: Mapping[str, Texts]) -> tuple[Explanation, ...]:
    """Return the explanations of codes by their texts."""
    return tuple(
        Explanation(group, code, None, entry.brief, entry.more, entry.rule, entry.log, entry.do)
        for code, entry in texts.items()
    )
