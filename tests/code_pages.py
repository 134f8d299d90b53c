"""docs/codes.md and docs/codes: every code with its explanation, in Markdown, and an index by what Kafka Streams prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kstate_cli.explain.catalogue import explanations, groups
from kstate_cli.explain.model import CodeGroup, Explanation
from kstate_cli.texts import INTERNALS, command

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
_MARK: Final = "<!-- from the catalogue: KSTATE_WRITE_DOCS=1 pytest tests/unit/cli/test_explain.py -->"
_HEAD: Final = f"""# Codes

{_MARK}

This page helps you to look up a code that kstate printed, or a message that Kafka Streams printed. Each group of codes has a page with the
same text as `{command("explain", "CODE")}`. `{command("explain")}` lists all codes.

If two groups contain the same code, kstate explains both. To select one, pass `GROUP:CODE`, such as `verify:not-understood`.
"""
_MESSAGES: Final = """## By the message of Kafka Streams

Each message is a sentence in the jars of the releases. `…` stands for a name or a number.
"""
_COMMAND: Final = re.compile("(?:^|(?<=: ))kstate .*$")
"""A command to paste: it is at the end of its line, alone or after a colon."""


def pages() -> dict[str, str]:
    """Return the text of each page by its path below docs."""
    return {"codes.md": _index(), **{f"codes/{group.name}.md": _page(group) for group in groups()}}


def write() -> None:
    """Write every page."""
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _index() -> str:
    rows = [f"| [{group.title}](codes/{group.name}.md) | `{group.name}:` | {group.where} |" for group in groups()]
    messages: dict[str, list[str]] = {}
    for explanation in explanations():
        for sentence in explanation.log or ():
            messages.setdefault(sentence, []).append(_link(explanation))
    texts = [f"| `{sentence}` | {', '.join(links)} |" for sentence, links in sorted(messages.items())]
    contents = "\n".join(["```{toctree}", ":hidden:", "", *(f"codes/{group.name}" for group in groups()), "```"])
    table = ["| group | prefix | where kstate prints the codes |", "| --- | --- | --- |", *rows, ""]
    index = ["| message | codes |", "| --- | --- |", *texts, ""]
    return "\n".join([_HEAD, *table, _MESSAGES, *index, contents, ""])


def _link(explanation: Explanation) -> str:
    return f"[`{explanation.code}`](codes/{explanation.group}.md#{_anchor(_title(explanation))})"


def _page(group: CodeGroup) -> str:
    head = [
        f"# {group.title}",
        "",
        _MARK,
        "",
        f"This page explains the codes in {group.where}, and what to do about each of them.",
        "",
    ]
    return "\n".join([*head, *(line for row in group.explanations for line in _section(row))]).rstrip() + "\n"


def _section(explanation: Explanation) -> Iterator[str]:
    yield f"## {_title(explanation)}"
    yield ""
    yield _escape(explanation.meaning)
    yield ""
    if explanation.rule is not None:
        yield f"- **Rule**: {_link_sections(_escape(explanation.rule))}"
    if explanation.log is not None:
        yield "- **In Streams' log**:" + (" nothing" if not explanation.log else "")
        yield from (f"  - `{sentence}`" for sentence in explanation.log)
    yield "- **What to do**:"
    yield from (f"  - {_COMMAND.sub(_as_code, _escape(line))}" for line in explanation.do)
    yield ""


def _title(explanation: Explanation) -> str:
    return f"`{explanation.full_name}`" + (f" ({explanation.level})" if explanation.level else "")


def _as_code(command_line: re.Match[str]) -> str:
    return f"`{command_line[0]}`"


def _anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _link_sections(rule: str) -> str:
    """Return the rule with links to the sections that it names."""
    return re.sub(rf"{INTERNALS}/([\w-]+\.md(?:#[\w-]+)?)", r"[\1](../internals/\1)", rule)


def _escape(text: str) -> str:
    """Return the text without what Markdown would read as a mark."""
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "\\<")
