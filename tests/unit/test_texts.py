"""Texts that people read: commands that a shell takes as they are, and names that make no lines of their own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kstate_cli
from kstate_cli import texts
from kstate_cli.cli.output import error_lines
from kstate_cli.errors import Refused
from kstate_cli.texts import command, documentation, filled, first_lines, internals, printable, quoted
from tests import syntax

HOSTILE = (
    "two words", "it's", 'a "b"', "a\nkstate: forged", "\x1b[31mred\x1b[0m", "$(touch forged)", "`touch forged`", "-rf",
    "--help", "\u202eevil", "~root", "a;b&c|d", "*", "", "ü", "a\r\tb", "\udcff", "\x7f", "a\\b", "#x", "!x", "\u2028x",
)  # fmt: skip


def words(line: str) -> list[bytes]:
    """The words that a shell makes of a line; the first is replaced by one that prints them."""
    script = 'kstate() { printf "%s\\0" "$@"; }\n' + line
    process = subprocess.run(["bash", "-c", os.fsencode(script)], capture_output=True, check=True, cwd="/")
    assert process.stderr == b""
    return process.stdout.split(b"\0")[:-1]


def test_a_shell_takes_each_name_as_it_is() -> None:
    line = command(*HOSTILE)
    assert line.isprintable()
    assert words(line) == [os.fsencode(text) for text in HOSTILE]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=20))
@example(["\x80\xff", "\U0001f600", "\ue000"])
def test_a_shell_takes_any_text(texts: list[str]) -> None:
    line = command("x", *texts)
    assert line.isprintable()
    assert words(line) == [b"x", *(text.encode() for text in texts)]


def test_a_path_is_never_an_option() -> None:
    assert quoted(Path("-rf")) == "./-rf"
    assert quoted(Path("/a/-b")) == "/a/-b"


def test_values_are_filled_in_at_once() -> None:
    # One after another, STORE in a path would become the name of the store.
    values = {"APP": "/data/STORE1/APPS/x STORE", "STORE": "TASK", "TASK": None}
    assert filled("kstate wipe APP --task TASK --store STORE", values) == (
        "kstate wipe '/data/STORE1/APPS/x STORE' --task TASK --store TASK"
    )


def test_printable_text_is_a_single_line_without_control_characters() -> None:
    for text in HOSTILE:
        assert printable(text).isprintable()
    assert printable("a\nb\x1b") == "a\\nb\\x1b"


def test_lines_of_an_error_are_its_own_only() -> None:
    name = "a\n  what to do: rm -rf /"
    error = Refused(f"{name} is bad", where=name, details=[name, "b"], hint=f"look at {name}", hint_details=[name])
    lines = error_lines(error)
    assert len(lines) == 5 and all(line.isprintable() for line in lines)
    assert sum(line.startswith("  what to do: ") for line in lines) == 1


def test_some_of_many_lines() -> None:
    assert first_lines(["a", "b", "c"], 2) == ["a", "b", "… and 1 more"]
    assert first_lines(["a", "b"], 2) == ["a", "b"]


_SOURCE = Path(kstate_cli.__file__).parent
_REPOSITORY = Path(__file__).parents[2]
_MEND_WORDS = re.compile(r"\bmend(?:s|ed|ing)?\b", re.IGNORECASE)


@cache
def _errors() -> set[str]:
    """The names of all error classes, those of the standard library left out."""
    names = {"KstateError"}
    classes = [node for path in syntax.paths() for node in syntax.nodes(path) if isinstance(node, ast.ClassDef)]
    while more := {kind.name for kind in classes for base in kind.bases if getattr(base, "id", "") in names} - names:
        names |= more
    return names


@pytest.mark.parametrize("path", sorted(_SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(_SOURCE)))
def test_error_messages_are_a_single_line(path: Path) -> None:
    """A line break in a message is escaped with all that a name from outside may hold: further lines are details."""
    errors = _errors()
    for node in syntax.nodes(path):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in errors):
            continue
        for part in [*node.args, *(word.value for word in node.keywords if word.arg in ("hint", "where"))]:
            texts = [
                node.value for node in ast.walk(part) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
            assert not any("\n" in text for text in texts), f"line {node.lineno}"


def test_things_are_fixed() -> None:
    """Plain words: "fix", or what is to be done. ``mend`` was a member of the JSON of ``check``."""
    for path in _SOURCE.rglob("*.py"):
        for node in syntax.nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not _MEND_WORDS.search(node.value), f"{path.relative_to(_SOURCE)}:{node.lineno}: {node.value}"
    texts = [_REPOSITORY / "README.md", *(_REPOSITORY / "docs").rglob("*"), *(_REPOSITORY / "examples").rglob("*")]
    for path in texts:
        if path.suffix in (".md", ".yaml", ".toml", ".service", ".timer") or path.name == "crontab":
            assert not _MEND_WORDS.search(path.read_text(encoding="utf-8").replace("`finding`: `text`, `mend`", "")), (
                path
            )


_REPORTED = frozenset({"Refused", "InUse", "RunFailed", "RunHalfway"})
_SAYS_IT = {
    "change/clean.py": "the message ends with the reason, and with the command where there is one",
    "spark/engine.py": "its JVM ended: told by what it wrote, in _does_not_start",
}
"""Where the message itself says what to do next."""


def test_refusals_have_hints() -> None:
    missing = []
    for path in _SOURCE.rglob("*.py"):
        if str(path.relative_to(_SOURCE)) in _SAYS_IT:
            continue
        for node in syntax.nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _REPORTED:
                hint = next((word for word in node.keywords if word.arg == "hint"), None)
                if hint is None or (isinstance(hint.value, ast.Constant) and not hint.value.value):
                    missing.append(f"{path.relative_to(_SOURCE)}:{node.lineno}")
    assert not missing


@pytest.mark.parametrize("site", ["https://docs.example.com/kstate", "https://docs.example.com/kstate/"])
def test_pages_of_an_organization_that_hosts_them(monkeypatch: pytest.MonkeyPatch, site: str) -> None:
    assert (documentation("docs/how-to/fleet.md"), internals("start.md#going-down")) == (
        "docs/how-to/fleet.md",
        "docs/internals/start.md#going-down",
    )
    monkeypatch.setenv("KSTATE_DOCS_URL", site)
    assert documentation("docs/how-to/fleet.md") == "https://docs.example.com/kstate/how-to/fleet.html"
    assert internals("start.md#going-down") == "https://docs.example.com/kstate/internals/start.html#going-down"


def test_messages_name_pages_of_the_site() -> None:
    """The catalogue is read with the variable, by the command itself."""
    pages = {
        "offsets-in-column-family": "internals/start.html#going-down",
        "Unable to parse segment id as long from segmentName: x": "codes/finding.html",
    }
    explain_each = (
        "import sys\nfrom kstate_cli.cli.commands.explain import explain\n"
        "for text in sys.argv[1:]: assert explain([text]) == 0; print('\\0')"
    )
    output = subprocess.run(
        [sys.executable, "-c", explain_each, *pages],
        env={**os.environ, "KSTATE_DOCS_URL": "https://docs.example.com/kstate"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    *answers, rest = output.split("\0\n")
    assert rest == ""
    for page, answer in zip(pages.values(), answers, strict=True):
        assert f"https://docs.example.com/kstate/{page}" in "".join(answer.split())
        assert "docs/internals" not in answer and "docs/codes" not in answer


def test_a_suggestion_needs_options_of_the_command() -> None:
    texts.forget_options()
    assert texts.suggest("pass --x", "--x") == "pass --x", "outside of a command every option may exist"
    texts.declare_options(["--task", "--store"])
    assert texts.suggest("pass --task", "--task") == "pass --task"
    assert texts.suggest("pass --task and --x", "--task", "--x") == ""
    texts.forget_options()
