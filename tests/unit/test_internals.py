"""docs/internals: what is cited anywhere resolves, and every proof that is named there exists."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.check.codes import CODES
from kstate_cli.check.findings import FindingCode
from kstate_cli.texts import INTERNALS
from tests import syntax
from tests.import_contracts import all_packages, command_packages, package_layers
from tests.interop.check_cases import CASES
from tests.interop.topology_cases import CHANGES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / INTERNALS).glob("*.md"))
SPECIFICATION = [
    page
    for page in PAGES
    if page.stem in {"layout", "offsets", "start", "stores", "changelogs", "rocksdb", "positions"}
]
TEXTS = [
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "kstate_cli/**/*.py", "tests/**/*.py")
    for path in sorted(ROOT.glob(pattern))
    if path != Path(__file__)
]

REFERENCE = re.compile(rf"{INTERNALS}/([\w-]+\.md)(?:#([\w-]*))?")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
PATH = re.compile(r"`([a-z_]+/[^`\s:#]*)[^`\s]*`")
MODULE = re.compile(r"\bpython -m ([a-z_]+(?:\.[a-z_]+)*)")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")
BARE_TEST = re.compile(r"`(test_\w+)`")
CASE_LIST = re.compile(r"\bcases? ((?:`[a-z][a-z0-9.-]*`(?:, | and )?)+)")
UNRESOLVED = re.compile(r"§|\b(?:formats|design),? traps?\b|\btraps? \d|\b(?:formats|design)\.md", re.IGNORECASE)
"""Citations of what is not in the repository."""
CLASS = re.compile(r"`[A-Z][a-z]+[A-Z]\w*[\w.]*`|\b(?:KIP|KAFKA)-\d+")
NOT_RUN = "not tried"


@functools.cache
def content(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as Markdown renderers make them."""
    return _anchors(page.read_text(encoding="utf-8"))  # other tests may have written the page


@functools.cache
def _anchors(text: str) -> frozenset[str]:
    lines = re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
    return frozenset(_anchor(line) for line in lines if re.match(r"#{1,6} ", line))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower()).replace(" ", "-")


@functools.cache
def functions(path: Path) -> frozenset[str]:
    """The names of a module's tests."""
    tree = syntax.tree(path)
    return frozenset(node.name for node in syntax.nodes(tree) if isinstance(node, ast.FunctionDef))


def wrong_references(text: str, where: str) -> Iterator[str]:
    """References to pages or headings that are not there."""
    for page, anchor in REFERENCE.findall(text):
        path = ROOT / INTERNALS / page
        if not path.is_file():
            yield f"{where}: there is no {INTERNALS}/{page}"
        elif anchor and anchor not in anchors(path):
            yield f"{where}: {INTERNALS}/{page} has no heading #{anchor}"


def test_every_citation_resolves() -> None:
    wrong = []
    for path in TEXTS:
        where = str(path.relative_to(ROOT))
        text = content(path)
        wrong += wrong_references(text, where)
        if UNRESOLVED.search(text):
            wrong += [f"{where}: {line.strip()}" for line in text.splitlines() if UNRESOLVED.search(line)]
    assert not wrong, "\n".join(wrong)


def test_every_rule_that_is_printed_resolves() -> None:
    wrong = [line for code in CODES.values() for line in wrong_references(code.rule, code.name)]
    wrong += [f"{code.name}: {code.rule}" for code in CODES.values() if UNRESOLVED.search(code.rule)]
    assert not wrong, "\n".join(wrong)
    # A rule that names neither a page nor a class or KIP explains itself to nobody.
    assert sum(INTERNALS in code.rule for code in CODES.values()) > len(CODES) // 2


@functools.cache
def is_there(path: str) -> bool:
    """Whether a path, or a pattern, names files of the repository, or of a package; True if it is of something else."""
    tops = [top for top in (ROOT, ROOT / "kstate_cli") if (top / path.partition("/")[0]).is_dir()]
    return not tops or any(any(top.glob(path)) for top in tops)


def missing_files(text: str, where: str) -> Iterator[str]:
    """Paths of the repository, or of a package of kstate, in backticks, and modules to be run, that are not there."""
    for path in PATH.findall(text):
        if "…" not in path and not is_there(path):
            yield f"{where}: there is no {path}"
    for module in MODULE.findall(text):
        path = ROOT / module.replace(".", "/")
        if (ROOT / module.partition(".")[0]).is_dir() and not (path.with_suffix(".py").is_file() or path.is_dir()):
            yield f"{where}: there is no {module}"


def test_every_path_that_is_named_is_there() -> None:
    wrong_name = "no_page"
    assert list(
        missing_files(f"`kstate_cli/restore/*.properties`, `cli/nothing.py`, `python -m tests.{wrong_name}`", "x")
    )[2:]
    texts = ((str(path.relative_to(ROOT)), content(path)) for path in TEXTS)
    wrong = [line for where, text in texts for line in missing_files(text, where)]
    assert not wrong, "\n".join(wrong)


def section(page: Path, anchor: str) -> str:
    """What is under a heading, to the next one of its level."""
    parts = re.split(r"(?m)^(?=#{1,2} )", content(page))
    return next(part for part in parts if part and _anchor(part.splitlines()[0]) == anchor)


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_a_finding_and_the_section_of_its_rule_name_each_other(code: FindingCode) -> None:
    """Who reads a finding is sent to a section; who reads the section sees which findings it is about."""
    for page, anchor in REFERENCE.findall(code.rule):
        assert f"`{code.name}`" in section(ROOT / INTERNALS / page, anchor), f"{page}#{anchor}"
    assert any(f"`{code.name}`" in content(page) for page in PAGES)


def test_links_between_pages_resolve() -> None:
    wrong = []
    for page in (*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md"))):
        for target, anchor in LINK.findall(re.sub(r"`[^`\n]*`", "", content(page))):
            path = (page.parent / target).resolve() if target else page
            if not path.exists():
                wrong.append(f"{page.name}: {target}")
            elif anchor and anchor not in anchors(path):
                wrong.append(f"{page.name}: {target}#{anchor}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_proof_exists(page: Path) -> None:
    text = content(page)
    wrong = []
    for path, test in TEST.findall(text):
        if not (ROOT / path).is_file():
            wrong.append(path)
        elif test and test not in functions(ROOT / path):
            wrong.append(f"{path}::{test}")
    facts = {case.name for case in CASES} | {change.name for change in CHANGES}
    names_ = [name for names in CASE_LIST.findall(text) for name in re.findall(r"`([^`]+)`", names) if name != "name"]
    wrong += [f"case {name}" for name in names_ if name not in facts]
    wrong += [f"{name}: of which file?" for name in BARE_TEST.findall(text)]
    assert not wrong, "\n".join(wrong)


def test_every_statement_has_a_proof() -> None:
    """Each row of a table with proofs, and each point of a list, in the pages that specify Kafka Streams."""
    wrong = []
    for page in SPECIFICATION:
        for paragraph in re.split(r"\n\n|\n(?=- )", content(page)):
            rows = paragraph.splitlines()
            if rows[0].startswith("|"):
                assert rows[0].endswith("| proof |"), f"{page.name}: {rows[0]}"
                cells = [row.strip("|").split(" | ")[-1] for row in rows[2:]]
            else:
                cells = [paragraph] if paragraph.startswith("- ") else []
            wrong += [
                f"{page.name}: {cell}"
                for cell in cells
                if not (TEST.search(cell) or CASE_LIST.search(cell) or CLASS.search(cell) or NOT_RUN in cell)
            ]
    assert not wrong, "\n".join(wrong)


def test_inputs_of_the_threat_model_have_proofs() -> None:
    """The table of inputs in docs/security.md; nothing limits the environment and the options."""
    page = ROOT / "docs" / "security.md"
    (table,) = [text for text in content(page).split("\n\n") if text.startswith("| the attacker can write to |")]
    header, _, *rows = table.splitlines()
    assert header.endswith("| proof |") and len(rows) == 8
    proofs = {row.split(" | ")[0].strip("| "): TEST.findall(row.split(" | ")[-1]) for row in rows}
    assert proofs.pop("the environment and the options") == []
    wrong = [name for name, tests in proofs.items() if not tests]
    for name, tests in proofs.items():
        for path, test in tests:
            if not (ROOT / path).is_file() or (test and test not in functions(ROOT / path)):
                wrong.append(f"{name}: {path}::{test}")
    assert not wrong, wrong
    # Each input of the table also has a row about its writers.
    (writers,) = [text for text in content(page).split("\n\n") if text.startswith("| input | users who can write")]
    assert len(writers.splitlines()) == 2 + 7


@pytest.mark.parametrize("heading", ["offset-through-migrate", "record-through-restore"])
def test_the_ways_go_through_functions_that_are_there(heading: str) -> None:
    text = section(ROOT / INTERNALS / "architecture.md", f"the-way-of-{'an' if heading[0] == 'o' else 'a'}-{heading}")
    modules = set()
    for dotted in re.findall(r"`([a-z_]+\.[a-z_]+\.[\w.]+)`", text):
        names, module = dotted.split("."), ROOT / "kstate_cli"
        while module.is_dir():  # packages may have packages
            module /= names.pop(0)
        body: ast.AST = syntax.tree(module.with_suffix(".py"))
        for name in names:
            inner = [node for node in ast.iter_child_nodes(body) if getattr(node, "name", None) == name]
            assert inner, dotted
            body = inner[0]
        modules.add(module)
    assert f"through {len(modules)} modules" in text


def test_every_package_has_its_duty() -> None:
    page = (ROOT / INTERNALS / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Packages")[2].partition("## ")[0]
    names = {name.removeprefix("kstate_cli.") for name in all_packages()}
    # The docstring of a package that implements a command states what it does.
    assert {name for name in names - command_packages() if f"`{name}`" not in table} == set()


def test_packages_stand_in_the_order_of_their_imports() -> None:
    """As import-linter holds it: a row is of one layer, and none of a layer that comes before the row above."""
    page = (ROOT / INTERNALS / "architecture.md").read_text(encoding="utf-8")
    number = {package: i for i, layer in enumerate(package_layers()) for package in layer}
    firsts = [
        row.split("|")[1]
        for row in page.partition("## Packages")[2].partition("## ")[0].splitlines()
        if row[:3] == "| `"
    ]
    rows = [[number[name] for name in re.findall(r"`(\w+)`", cell) if name in number] for cell in firsts]
    rows = [row for row in rows if row]  # `demo` has no code
    assert all(len(set(row)) == 1 for row in rows)
    assert sorted(row[0] for row in rows) == [row[0] for row in rows]
    assert {*number} - command_packages() <= {name for cell in firsts for name in re.findall(r"`(\w+)`", cell)}


def test_an_installation_has_the_pages_where_messages_name_them() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["data-files"]
    files = {
        f"{folder}/{path.name}": path for folder, globs in data.items() for glob in globs for path in ROOT.glob(glob)
    }
    for page in PAGES:
        assert files[f"share/doc/kstate/{INTERNALS}/{page.name}"] == page
