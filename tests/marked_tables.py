"""Tables within pages that people write, made from the code. `python -m tests.marked_tables` writes them anew.

A table stands between two comments, the first of which names it. A page's tables and the functions here are the same set:
a mark that nothing makes, and a table that no page has, are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kstate_cli.errors import ConditionNotMet, InUse
from kstate_cli.explain.catalogue import groups
from kstate_cli.explain.model import Explanation
from kstate_cli.query.result import FailureReason
from kstate_cli.releases import CONFLUENT, RELEASES
from kstate_cli.rows.errors import StoreUnreadable
from tests import json_lines
from tests.json_page import members_of
from tests.reference_pages import markdown, markdown_table

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
_MARKED: Final = re.compile(
    r"(<!-- table ([a-z-]+), from the code: [^\n]*-->\n)(.*?)(<!-- end of table -->\n)", re.DOTALL
)
_EXIT: Final = re.compile(r"(.*) \(exit (?:code )?(.*)\)")


def errors() -> str:
    """The codes of errors, as ``kstate explain`` has them."""
    rows = []
    for one in _explained("error"):
        said = _EXIT.fullmatch(one.brief)
        assert said, one.brief
        number = said[2] if said[2].isdigit() else "128+N"
        rows.append((f"`{one.code}`", number, markdown(f"{said[1]}. {one.more}".rstrip())))
    return markdown_table(("`code`", "`exit`", ""), rows)


def query_lines() -> str:
    """The lines of ``query -o json``, from the schema."""
    rows = [
        (f"`{kind}`", members_of(one), markdown(one["description"]))
        for kind, one in json_lines.types("query")
        if kind != "error"
    ]
    return markdown_table(("type", "members", "what it tells"), rows)


def query_failures() -> str:
    """Why a partition did not answer, from the catalogue of codes."""
    rows = []
    for one in _explained("query"):
        unreadable = one.code == FailureReason.STORE_EXCEPTION.value
        exits = (StoreUnreadable, InUse) if unreadable else (ConditionNotMet,)
        rows.append(
            (
                f"`{one.code}`",
                " or ".join(str(kind.exit_code) for kind in exits),
                markdown(one.what),
                "; ".join(_code(line) for line in one.do),
            )
        )
    return markdown_table(("failure", "exit", "what it means offline", "what to do"), rows)


def confluent(known: Mapping[str, str] = CONFLUENT) -> str:
    """Releases of Confluent Platform that have an Apache release which kstate knows."""
    names = {one.name for one in RELEASES}
    shown = {theirs: apache for theirs, apache in known.items() if apache in names}
    return markdown_table(("Confluent Platform", *shown), [("Apache Kafka, for `--to` and `--for`", *shown.values())])


TABLES: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "json.md": {"errors": errors},
    "query.md": {"lines": query_lines, "failures": query_failures},
    "how-to/confluent.md": {"confluent": confluent},
}
"""Page -> the tables that it has."""


def renewed(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with its tables as the code has them now. Raises KeyError for a mark that nothing makes."""
    return _MARKED.sub(lambda match: f"{match[1]}\n{tables[match[2]]()}\n\n{match[4]}", text)


def marked(text: str) -> list[str]:
    """The names of the tables that a page has."""
    return [match[2] for match in _MARKED.finditer(text)]


def _explained(group: str) -> Sequence[Explanation]:
    (found,) = (one for one in groups() if one.name == group)
    return found.explanations


def _code(line: str) -> str:
    """A line of what to do; the command at its end as code."""
    before, command, after = line.partition("kstate ")
    return f"{markdown(before)}`{command}{after}`" if command else markdown(line)


def write() -> None:
    """Writes all of them."""
    for name, tables in TABLES.items():
        path = DOCS / name
        path.write_text(renewed(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    write()
