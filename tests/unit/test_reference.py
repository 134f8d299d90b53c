"""The reference says what the code declares: all of it, and nothing else."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from kstate_cli.check.codes import CODES
from kstate_cli.check.findings import FindingCode, Level
from kstate_cli.cli.metrics import METRICS
from kstate_cli.errors import CommandEnd
from kstate_cli.maintain.measures import MEASURES
from kstate_cli.releases import RELEASES, OffsetsHome, Release
from kstate_cli.rows.serdes import NAMES
from kstate_cli.specification.toml_file import KEYS, TOP
from tests import json_lines, json_page, marked_tables, reference_pages
from tests.command_line import commands, groups
from tests.interop.check_table import DOCS, recorded_cells, render
from tests.reference_pages import FOLDER, Undocumented, documentation_of, endings, pages

INDEX = FOLDER / "index.md"


def test_reference_agrees_with_the_code() -> None:
    """KSTATE_WRITE_DOCS=1 writes it."""
    if os.environ.get("KSTATE_WRITE_DOCS"):
        reference_pages.write()
    written_pages = pages()
    wrong = [
        name
        for name, text in written_pages.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    assert not wrong, f"not as the code has it: {wrong}; KSTATE_WRITE_DOCS=1 writes docs/reference again"
    others = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.md")} - {*written_pages, INDEX.name}
    assert not others, f"pages that nothing generates: {others}"
    for name in written_pages:
        index = FOLDER / "commands.md" if name.startswith("commands/") else INDEX
        assert f"({name})" in index.read_text(encoding="utf-8"), f"{name} is missing in {index.name}"


@pytest.mark.parametrize("name", marked_tables.TABLES)
def test_tables_of_a_page_agree_with_the_code(name: str) -> None:
    """KSTATE_WRITE_DOCS=1 writes them."""
    path, tables = marked_tables.DOCS / name, marked_tables.TABLES[name]
    if os.environ.get("KSTATE_WRITE_DOCS"):
        path.write_text(marked_tables.with_tables(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert sorted(marked_tables.marked_names(text)) == sorted(tables)
    assert marked_tables.with_tables(text, tables) == text, "KSTATE_WRITE_DOCS=1 writes it again"


def test_no_other_page_has_a_mark() -> None:
    docs = marked_tables.DOCS
    having = {
        str(path.relative_to(docs))
        for path in docs.rglob("*.md")
        if marked_tables.marked_names(path.read_text(encoding="utf-8"))
    }
    assert having == {*marked_tables.TABLES}


def test_every_code_of_an_error_is_in_the_table() -> None:
    """That of every class that a command can end with, and those that are given where an error is raised."""
    codes = {ending.code for ending in endings()} | reference_pages.given_codes()
    assert codes and {code for code in codes if f"| `{code}` |" not in marked_tables.errors()} == set()


def test_every_serde_is_in_the_table() -> None:
    text = (marked_tables.DOCS / "query.md").read_text(encoding="utf-8")
    section = text[text.index("## Serdes") : text.index("## When a query fails")]
    assert {name for name in NAMES if f"`{name.replace('INNER', 'SERDE')}`" not in section} == set()


# --- something that was made up, of each kind -------------------------------------------------------------------------


def _option(text: str) -> str:
    tree = dict(commands())
    tree["ls"] = copy.copy(tree["ls"])
    made_up = copy.copy(next(parameter for parameter in tree["ls"].params if parameter.param_type_name == "option"))
    made_up.opts, made_up.help = ["--made-up"], text
    tree["ls"].params = [*tree["ls"].params, made_up]
    return reference_pages.command_pages([*groups(), *tree.items()])["commands/ls.md"]


def _metric(text: str) -> str:
    return reference_pages.metrics_page({**METRICS, "kstate_made_up": (text, ("application",))}, list(commands()))


def _ending(text: str) -> str:
    made_up = type("MadeUp", (CommandEnd,), {"__doc__": text, "code": "made-up", "__module__": __name__})
    return reference_pages.exit_codes_page([*endings(), made_up])


def _key(text: str) -> str:
    made_up = SimpleNamespace(expected="true or false", meaning=text)
    return reference_pages.toml_page(TOP, {**KEYS, "made-up": made_up})


def _release(text: str) -> str:
    return reference_pages.releases_page([*RELEASES, Release("made-up", (text,), 6, OffsetsHome.FILES)])


MADE_UP: dict[str, tuple[Callable[[str], str], str]] = {
    "option": (_option, "commands/ls.md"),
    "metric": (_metric, "metrics.md"),
    "ending": (_ending, "exit-codes.md"),
    "key": (_key, "kstate-toml.md"),
    "release": (_release, "releases.md"),
}


@pytest.mark.parametrize("part", MADE_UP)
def test_new_declarations_change_the_page(part: str) -> None:
    """One thing more in the code, and the page that is committed is not the one that the code gives."""
    page, name = MADE_UP[part]
    text = page("What it does.")
    assert text != (FOLDER / name).read_text(encoding="utf-8")
    assert "made-up" in text.replace("_", "-")


@pytest.mark.parametrize("part", sorted({*MADE_UP} - {"release"}))
def test_refuses_undocumented_declarations(part: str) -> None:
    with pytest.raises(Undocumented):
        MADE_UP[part][0]("")


def test_a_member_of_an_enumeration_without_a_text_is_refused() -> None:
    class Stated(Enum):
        FIRST = "one"
        """It is said."""

    class NotSaid(Enum):
        FIRST = "one"
        """It is said."""
        TWO = "two"

    assert documentation_of(Stated) == {"one": "It is said."}
    with pytest.raises(Undocumented, match=r"NotSaid\.TWO"):
        documentation_of(NotSaid)


def test_a_json_member_that_is_made_up_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = json_lines.schema

    def more(name: str) -> Any:
        schema = copy.deepcopy(real(name))
        if name == "members":
            schema["$defs"]["made_up"] = {"description": "Made up.", "type": "string"}
        if name == "ls":
            schema["$defs"]["store"]["properties"]["made_up"] = {"$ref": "members.json#/$defs/made_up"}
        return schema

    page = json_page.PAGE.read_text(encoding="utf-8")
    assert json_page.page(page) == page
    monkeypatch.setattr(json_lines, "schema", more)
    page_text = json_page.page(page)
    assert page_text != page
    assert page_text.count("`made_up`") == 2  # among the members of the line, and among all members


def test_a_finding_that_is_made_up_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert render(recorded_cells()) == page
    monkeypatch.setitem(
        CODES, "made-up", FindingCode("made-up", "Made up", level=Level.ERROR, source="KIP-1", hint="nothing to do")
    )
    assert "`made-up`" in render(recorded_cells())


def test_a_metric_that_is_not_declared_is_not_written(tmp_path: Any) -> None:
    """What is written is what METRICS has: the page cannot lack one."""
    from prometheus_client.parser import text_string_to_metric_families

    from kstate_cli.cli.metrics import Metrics

    (tmp_path / "app").mkdir()
    # Those with a label that is not of every command: of maintain, and of the stores of lag.
    further = {name: entry for name, entry in METRICS.items() if name in MEASURES or "store" in entry[1]}
    with Metrics(tmp_path / "out.prom", "check", tmp_path / "app") as metrics:
        metrics.records, metrics.warnings, metrics.held_back = 1, 2, 3
        metrics.findings = {("status-open", "warning"): 2}
        metrics.more = lambda: ((name, ("x",) * (len(labels) - 1), 1.0) for name, (_, labels) in further.items())
        metrics.finish(0)
    text = (tmp_path / "out.prom").read_text(encoding="utf-8")
    content = {family.name: tuple(family.samples[0].labels) for family in text_string_to_metric_families(text)}
    assert {name: tuple(sorted(labels)) for name, labels in content.items()} == {
        name: tuple(sorted(labels)) for name, (_, labels) in METRICS.items()
    }
