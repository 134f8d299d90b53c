"""Pages for users keep to the project's words, and their sentences are short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wording import LONGEST, faults, sentences

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {
    "docs/reference/commands.md": "the short help of the commands",
    "docs/codes.md": "the catalogue of codes",
    "docs/reference/exit-codes.md": "the docstrings of the errors",
    "docs/reference/kstate-toml.md": "the keys of kstate.toml",
    "docs/reference/metrics.md": "the texts of the metrics",
    "docs/reference/releases.md": "the table of releases",
    "docs/reference/states.md": "the table of states",
}
"""Pages that are made from texts of the code, with their source."""
FOLDERS = ("docs/reference/commands/", "docs/codes/")
"""Folders of pages that are made from the help of the commands, and from the catalogue of codes."""
NOT_YET: frozenset[str] = frozenset()
"""Pages that do not follow the rules yet. Once a page follows the rules, remove it from this list."""


def _pages() -> list[str]:
    paths = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def _faults_of(page: str) -> list[str]:
    return [str(fault) for fault in faults((ROOT / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "page",
    [page for page in _pages() if page not in GENERATED | dict.fromkeys(NOT_YET, "") and not page.startswith(FOLDERS)],
)
def test_a_page_keeps_to_the_words_of_the_style(page: str) -> None:
    """`python -m tests.wording PAGE` prints the same."""
    assert not _faults_of(page)


def test_an_exception_is_a_page_that_needs_it() -> None:
    assert {*NOT_YET, *GENERATED} <= {*_pages()}
    assert not [page for page in NOT_YET if not _faults_of(page)]


@pytest.mark.parametrize(
    "text",
    [
        "Made anew.",
        "The file says which stores exist.",
        "kstate tells you.",
        "check foretells it.",
        "It was put right.",
        "The file lies there.",
        "It needs room.",
        "Nobody knows.",
        "It fails without a word.",
        "Delete what is kept.",
        "It puts back the directory.",
        "Two fulls.",
        "It works beside a running application.",
        "The directory is gone.",
        "The task is left out.",
        "It is taken for another.",
        "The lock is let go.",
        "A folder of its own.",
        "Look at the plan.",
        "It stays as it is.",
        "A file half made.",
        "It goes on.",
        "By a rough figure.",
        f"A sentence {'of words ' * 15}ends.",
        "| cell | the worst first |",
        "- An item\n  that lies\n  here\n",
        "A [link that says](x.md) it.",
    ],
)
def test_a_fault_is_reported(text: str) -> None:
    assert [*faults(text)], text


@pytest.mark.parametrize(
    "text",
    [
        "```\nkstate says anew\n```\n",
        "    kstate says anew\n",
        "`says` is a word of code.",
        "Click go on the page.",
        "It prints a line as soon as it is known.",
        " ".join(["word"] * LONGEST) + ".",
        f"{'word ' * 20}end. kstate {'word ' * 20}end.",
    ],
)
def test_code_and_short_sentences_are_no_faults(text: str) -> None:
    assert not [*faults(text)], text


def test_a_cell_and_an_item_are_sentences() -> None:
    text = (
        "# Title\n\nOne sentence. Another one\nof two lines: `code`.\n\n| a | b |\n|---|---|\n| c | d |\n\n- x\n- y\n"
    )
    expected = ["# Title", "One sentence.", "Another one of two lines: CODE."]
    assert [*sentences(text)] == [*expected, "a", "b", "c", "d", "- x", "- y"]


def test_generated_parts_of_a_page_are_skipped() -> None:
    text = "<!-- table x, from the code: y -->\n\n| anew |\n\n<!-- end of table -->\n"
    assert not [*faults(text)]
