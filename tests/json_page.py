"""The tables of docs/json.md, from the schemas. `python -m tests.json_page` writes both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kstate_cli.cli.registry import COMMANDS
from tests import json_lines, json_schemas

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "json.md"
BEGIN, END = "<!-- from the schemas: python -m tests.json_page -->\n", "<!-- end -->\n"
_ERROR: Final = "error"
"""The same in every command: told once."""


def page(text: str) -> str:
    """The page with its tables as the schemas have them now."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def tables() -> str:
    """What each command prints, and what the members mean."""
    schemas = json_lines.schemas()
    error = dict(json_lines.types("ls"))[_ERROR]
    parts = [f"`{_ERROR}`: {members_of(error)}. {error['description']}\n"]
    parts += [_command(f"`kstate {name}`", name) for name in COMMANDS if name in schemas]
    parts.append(_command("`kstate restore` on standard error", json_lines.PROGRESS))
    members = json_lines.schema("members")["$defs"]
    rows = [(f"`{name}`", _cell(entry["description"]), _kind(entry)) for name, entry in sorted(members.items())]
    return "\n".join([*parts, "## Members\n", _table(("member", "meaning", "value"), rows)])


def _command(title: str, name: str) -> str:
    rows = [
        (f"`{kind}`", _cell(entry["description"]), members_of(entry))
        for kind, entry in json_lines.types(name)
        if kind != _ERROR
    ]
    return f"### {title}\n\n{_table(('type', 'meaning', 'members'), rows)}"


def members_of(line: Any) -> str:
    """The members of a line: with ``?`` where it may be null, in parentheses where not every line has it."""
    names = []
    for name, property_ in line["properties"].items():
        if name not in json_lines.HEAD:
            text = f"`{name}`{'' if '$ref' in property_ else '?'}"
            names.append(text if name in line["required"] else f"({text})")
    return ", ".join(names)


def _kind(member: Any) -> str:
    """Its type, or the values that it may have."""
    if "const" in member:
        return f"`{member['const']}`"
    if "enum" in member:
        return ", ".join(f"`{entry}`" for entry in member["enum"])
    if "type" not in member:
        return "any"
    results = member["type"] if isinstance(member["type"], list) else [member["type"]]
    return " or ".join(results)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    json_schemas.write()  # before the page, which is made from the files
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
