"""A number and its noun agree: ``plural`` writes both, and nothing else puts a number before a noun in the plural."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from tests import syntax

_NOUNS = (
    "applications|attempts|changes|columns|commands|copies|databases|directories|dumps|entries|errors|files|findings|folders|"
    "generations|hosts|instances|keys|lines|members|objects|offsets|partitions|parts|processes|records|requests|rounds|rows|"
    "runs|segments|slices|snapshots|steps|stores|tasks|topics|transactions|values|versions|warnings|workers"
)
_PLURAL = re.compile(rf" (?:[a-z]+ )?(?:{_NOUNS})\b(?!/s)")
_SEVERAL = {
    "cli/commands/diff.py": ("compared.unread", "compared.differing"),
    "cli/views/barrier.py": ("self._hosts",),
    "cli/views/diff.py": ("hidden",),
    "cli/views/restore.py": ("without",),
    "cli/views/status.py": ("older",),
    "cli/commands/verify_dump.py": ("plural(",),
    "cli/commands/verify_snapshots.py": ("plural(",),
    "fleet/judge.py": ("len(hosts)",),
    "formats/parquet_footer.py": ("len(leaves)",),
    "formats/kind_inference.py": ("len(sampled)",),
    "snapshot/generation_file.py": ("len(databases)",),
    "snapshot/places.py": ("len(fitting)",),
}
"""Numbers that are not 1 where they are printed, by the expression: a branch before them, or a limit, excludes 1; or a remark in brackets."""


def _counts(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield each expression that an f-string puts before a plural, with the text after it and its line."""
    for node in ast.walk(syntax.tree(path)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in itertools.pairwise(node.values):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            following = str(text.value)
            if _PLURAL.match(following):
                yield ast.unparse(value.value), following, value.lineno


def test_numbers_and_nouns_agree() -> None:
    """All texts of the command line, and elsewhere the lengths of collections."""
    faults, needed = [], set()
    for path in syntax.paths():
        module = path.relative_to(syntax.ROOT).as_posix()
        for expression, text, line in _counts(path):
            if not (module.startswith("cli/") or expression.startswith("len(")):
                continue
            exception = next((part for part in _SEVERAL.get(module, ()) if expression.startswith(part)), None)
            if exception is None:
                faults.append(f"{module}:{line}: {{{expression}}}{text[:40]!r}: call plural()")
            needed.add((module, exception))
    assert not faults, "\n".join(faults)
    assert {(module, part) for module, parts in _SEVERAL.items() for part in parts} <= needed


def test_a_number_before_a_plural_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        'a = f"{n:,} rows"\nb = f"{n} sorted files"\nc = f"{rate:.0f} records/s"\nd = f"{plural(n, \'row\')}"\n'
    )
    assert [line for _, _, line in _counts(path)] == [1, 2]
