"""Offsets are shown as they are typed, ``topic:partition=offset``, wherever people read them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.cli.options.shared import bound_of
from kstate_cli.formats.topic_partition import TopicPartition, offsets_text, typed_offsets
from tests import syntax

ROOT = Path(__file__).parents[2]
OWNER = "kstate_cli/formats/topic_partition.py"
PRINTED = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("tests/screens/*.txt")),
    *sorted(ROOT.glob("tests/frozen/golden/*.jsonl")),
]
KAFKA_SPELLING = re.compile(r"[a-zA-Z]-[0-9]+=-?[0-9]")
"""``orders-0=5``: of whole commands, and of nothing else that is printed."""
IN_FILES = {
    ("kstate_cli/formats/offsets.py", "kafka_name"),
    ("kstate_cli/restore/running/restoration.py", "kafka_name"),
}
"""Kafka's own spelling is for files: keys of the column family, the name of a folder, lines of a journal."""


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("kstate_cli", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), syntax.tree(path)


def _joined_by_a_dash(node: ast.JoinedStr) -> bool:
    """``{….topic}-{….partition}``, by the last words of what is put in."""
    for before, dash, after in zip(node.values, node.values[1:], node.values[2:], strict=False):
        if not (isinstance(before, ast.FormattedValue) and isinstance(after, ast.FormattedValue)):
            continue
        names = [ast.unparse(entry.value).rpartition(".")[2] for entry in (before, after)]
        joined = isinstance(dash, ast.Constant) and dash.value == "-"
        if joined and "topic" in names[0] and names[1] in ("p", "partition"):
            return True
    return False


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,60}", fullmatch=True), st.integers(0, 2**31 - 1), st.integers(0, 2**62))
def test_printed_offsets_can_be_typed(topic: str, partition: int, offset: int) -> None:
    text = offsets_text({TopicPartition(topic, partition): offset})
    assert text == f"{topic}:{partition}={offset}"
    assert [text] == typed_offsets(bound_of([text]).position.as_map())


@pytest.mark.parametrize("path", PRINTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_printed_files_spell_offsets_as_typed(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert not [f"line {number}: {line}" for number, line in enumerate(lines, 1) if KAFKA_SPELLING.search(line)]


def test_no_module_spells_it_otherwise() -> None:
    wrong, kafka = [], set()
    for name, tree in _sources():
        for node in syntax.nodes(tree):
            if name != OWNER and isinstance(node, ast.JoinedStr) and _joined_by_a_dash(node):
                wrong.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
            if isinstance(node, ast.Attribute) and node.attr == "kafka_name":
                kafka.add((name, node.attr))
    assert not wrong
    assert kafka == IN_FILES
