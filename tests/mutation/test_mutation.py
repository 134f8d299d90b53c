"""The fixed part of mutation testing: mutants of the record die again, and the changes are those that they should be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from .operators import Module
from .record import RECORD, Record

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = 20
SEED = 37

SOURCE = '''\
"""A module."""
LIMIT = 8 << 2
WORDS: dict[str, bytes] = {"a": b"xy"}


def parse(data: bytes, number: int = 3) -> tuple[int, bytes]:
    """Read."""
    assert number
    if not data or number > LIMIT:
        raise ValueError(f"{number + 1}")
    rest = [byte for byte in data[number:] if byte < 9]
    rest.reverse()
    return max(rest), bytes(rest)
'''
CHANGES = [
    ("LIMIT", "arithmetic", "8 << 2", "8 >> 2"),
    ("LIMIT", "constant", "8", "9"),
    ("LIMIT", "constant", "8", "7"),
    ("LIMIT", "constant", "2", "3"),
    ("LIMIT", "constant", "2", "1"),
    ("WORDS", "bytes", "b'xy'", "b'xx'"),
    ("parse", "constant", "3", "4"),
    ("parse", "constant", "3", "2"),
    ("parse", "negated condition", "not data or number > LIMIT", "not (not data or number > LIMIT)"),
    ("parse", "boolean operator", "not data or number > LIMIT", "not data and number > LIMIT"),
    ("parse", "removed not", "not data", "data"),
    ("parse", "comparison", "number > LIMIT", "number >= LIMIT"),
    ("parse", "removed raise", "raise ValueError(f'{number + 1}')", "pass"),
    ("parse", "negated condition", "byte < 9", "not byte < 9"),
    ("parse", "slice bound", "number:", ":"),
    ("parse", "comparison", "byte < 9", "byte <= 9"),
    ("parse", "constant", "9", "10"),
    ("parse", "constant", "9", "8"),
    ("parse", "removed statement", "rest.reverse()", "pass"),
    ("parse", "returned value", "return (max(rest), bytes(rest))", "return None"),
    ("parse", "swapped values", "(max(rest), bytes(rest))", "(bytes(rest), max(rest))"),
    ("parse", "opposite function", "max(rest)", "min(rest)"),
]


def test_changes_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE, encoding="utf-8")
    mutants = Module(tmp_path, "module.py").mutants
    assert [mutant.identity[1:5] for mutant in mutants] == CHANGES
    assert len({mutant.identity for mutant in mutants}) == len(mutants)
    for index in range(len(mutants)):
        # Each change is made in a tree of its own, and is valid Python that differs from the original.
        module = Module(tmp_path, "module.py")
        original = compile(module.tree, "module.py", "exec")
        assert module.mutants[index].code(module.tree, Path("module.py")) != original, mutants[index].identity


def test_an_identity_follows_its_function(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(SOURCE, encoding="utf-8")
    before = Module(tmp_path, "module.py").mutants
    path.write_text(SOURCE.replace("LIMIT = 8 << 2", "LIMIT = 8 << 2\nOTHER = 9"), encoding="utf-8")
    after = {mutant.identity: mutant.line for mutant in Module(tmp_path, "module.py").mutants}
    assert {identity for identity in after if identity.function != "OTHER"} == {mutant.identity for mutant in before}
    assert all(after[mutant.identity] == mutant.line + (mutant.line > 2) for mutant in before)


def test_verdicts_have_their_proof() -> None:
    entries = Record(RECORD).entries.values()
    assert {entry.verdict for entry in entries} <= {"killed", "survived", "equivalent"}
    assert [entry.identity for entry in entries if entry.verdict in {"killed", "equivalent"} and not entry.test] == []


def test_mutants_of_the_record_die_again() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "tests.mutation", "--replay", str(MUTANTS), "--seed", str(SEED)]
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    figures = re.search(r"(\d+) mutants, (\d+) survived", process.stdout)
    assert figures is not None, process.stdout + process.stderr
    mutants, survivors = map(int, figures.groups())
    assert mutants == MUTANTS
    # A change of a function that a mutant's function calls can make one of them harmless. More show that tests prove less.
    assert survivors <= 2, process.stdout
