"""docs/codes.md: every code with its explanation, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kstate_cli.explain.catalogue import groups
from kstate_cli.explain.model import CodeGroup, Explanation
from kstate_cli.texts import INTERNALS, command

_HEAD = f"""# Every code that kstate prints

`{command("explain", "CODE")}` says what stands here, of any code below, in capitals or not; `{command("explain")}`
lists them. Where two groups have the same code both are explained; `GROUP:CODE`, such as `verify:not-understood`, says
which one is meant. In what Kafka Streams prints, `…` is what the case fills in; a test finds each sentence in the jars
of the releases.

This page is made from the catalogue of the command, and a test holds the two together:
`KSTATE_WRITE_DOCS=1 pytest tests/unit/cli/test_explain.py` writes it anew.
"""
_COMMAND = re.compile("(?:^|(?<=: ))kstate .*$")
"""What is to be pasted: it stands last on its line, alone or after a colon."""


def page() -> str:
    """The whole page."""
    contents = [f"- [{group.title}](#{_anchor(group.title)}) (`{group.name}:`)" for group in groups()]
    return "\n".join([_HEAD, *contents, "", *(line for group in groups() for line in _group(group))]).rstrip() + "\n"


def _group(group: CodeGroup) -> Iterator[str]:
    yield f"## {group.title}"
    yield ""
    yield f"Where they are printed: {group.where}."
    yield ""
    for one in group.explanations:
        yield from _explanation(one)


def _explanation(one: Explanation) -> Iterator[str]:
    level = f" ({one.level})" if one.level else ""
    yield f"### `{one.full_name}`{level}"
    yield ""
    yield _escaped(one.what)
    yield ""
    if one.rule is not None:
        yield f"- **Rule**: {_linked(_escaped(one.rule))}"
    if one.log is not None:
        yield "- **In Streams' log**:" + (" nothing" if not one.log else "")
        yield from (f"  - `{sentence}`" for sentence in one.log)
    yield "- **What to do**:"
    yield from (f"  - {_COMMAND.sub(_as_code, _escaped(line))}" for line in one.do)
    yield ""


def _as_code(pasted: re.Match[str]) -> str:
    return f"`{pasted[0]}`"


def _anchor(title: str) -> str:
    """The anchor of a heading that has letters and blanks only."""
    return title.lower().replace(" ", "-")


def _linked(rule: str) -> str:
    """A rule whose sections can be followed from the page."""
    return re.sub(rf"{INTERNALS}/([\w-]+\.md(?:#[\w-]+)?)", r"[\1](internals/\1)", rule)


def _escaped(text: str) -> str:
    """Without what Markdown takes for a mark of its own."""
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "\\<")
