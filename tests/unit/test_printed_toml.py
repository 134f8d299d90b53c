"""Lines of kstate.toml that kstate prints are TOML: those of screens and pages; ``tests/directories/support.py`` checks each command."""

from __future__ import annotations

from pathlib import Path

import pytest

import kstate_cli
from tests import printed_toml

ROOT = Path(kstate_cli.__file__).parent
TESTS = ROOT.parent / "tests"
OWNER = "specification/draft.py"
OF_FILES = "specification/toml_file.py"
"""Quotes the headers of a file that a user has written."""


@pytest.mark.parametrize(
    "text",
    [
        '    [stores.count] kind = "window"',
        "  what to do: specify [stores.count] subtopology = 1",
        "    [stores.count]\n    kind = window",
        '    [stores.count]\n    kind = "window" or its real kind',
        "add retention_ms = … to [stores.kv.1]",
    ],
)
def test_lines_that_cannot_be_pasted_are_rejected(text: str) -> None:
    with pytest.raises(AssertionError, match=r"TOML|header"):
        printed_toml.check(text)


@pytest.mark.parametrize(
    "text",
    [
        '    [stores.count]\n    kind = "window" # or its real kind\n    # partitions = 1 or 2\nnext',
        '    format = 1\n    [stores."kv.1"]\n    # kind = "timestamped-key-value"',
        "add retention_ms = … to [stores.count], and standby = … to [maintain]",
    ],
)
def test_lines_that_can_be_pasted_are_accepted(text: str) -> None:
    printed_toml.check(text)


def test_screens_pages_and_examples_are_toml() -> None:
    files = [*(TESTS / "screens").glob("*-plain.txt")]
    files += [*(ROOT.parent / "docs").rglob("*.md"), *(ROOT.parent / "examples").rglob("*.toml")]
    assert len(files) > 100
    for file in files:
        printed_toml.check(file.read_text(encoding="utf-8"))


def test_headers_of_stores_have_a_single_owner() -> None:
    """A name with dots is quoted there: a header that is put together elsewhere would name another table."""
    for path in ROOT.rglob("*.py"):
        name = str(path.relative_to(ROOT))
        if name not in (OWNER, OF_FILES):
            assert "[stores.{" not in path.read_text(encoding="utf-8"), name
