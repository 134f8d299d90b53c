"""docs/check.md lists the findings as they are."""

from __future__ import annotations

from tests.interop.check_table import DOCS, recorded_cells, render


def test_the_findings_are_documented_as_they_are() -> None:
    """Its cells are what real releases did; everything else follows from the code."""
    assert DOCS.read_text(encoding="utf-8") == render(recorded_cells())
