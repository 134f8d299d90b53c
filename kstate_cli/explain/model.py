"""An explanation: its texts, as they are written down, and the whole of it, as it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstate_cli.codes import Code


@dataclass(frozen=True, slots=True)
class Texts:
    """What is said of one code, beside what its owner says: of a finding of ``check`` that is the rule and a hint."""

    brief: str
    """What it is, in one line, without a full stop."""
    more: str = ""
    """What follows from it, in sentences."""
    log: tuple[str, ...] | None = None
    """Sentences of :mod:`kstate_cli.check.streams_log`; None where this is nothing that Streams could print."""
    rule: str | None = None
    """Class of Kafka Streams, KIP, section of docs/internals; None where the code's owner has it, or there is none."""
    do: tuple[str, ...] = ()
    """What to do, a line each. A command stands last on its line; ``APP`` and other words in capitals are filled in."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is said of one code."""

    group: str
    code: str
    level: str | None
    """How bad it is, where findings have levels."""
    brief: str
    more: str
    rule: str | None
    log: tuple[str, ...] | None
    """What Kafka Streams prints, for people; empty where it prints nothing; None where it could print nothing."""
    do: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """``exit:3``: the code, and which group's."""
        return f"{self.group}:{self.code}"

    @property
    def what(self) -> str:
        """What it is, in sentences."""
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
    do = (code.hint, *code.do) if code.hint else code.do
    return Explanation(group, code.name, level, code.brief, code.more, code.rule or None, code.log, do)


def plain(group: str, texts: Mapping[str, Texts]) -> tuple[Explanation, ...]:
    """Explanations of codes of which nobody else says anything."""
    return tuple(
        Explanation(group, code, None, one.brief, one.more, one.rule, one.log, one.do) for code, one in texts.items()
    )
