"""What is said is for people: no module compares, searches, splits or looks up a text that another one has written.

Who has to know what is wrong asks a code, a place or a type. The texts of others (RocksDB, Spark) are read in one module
each, which makes a type of them.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

import pytest

from tests import syntax

MEMBERS = frozenset(
    {
        "what",
        "where",
        "message",
        "text",
        "reason",
        "hint",
        "why",
        "error",
        "headline",
        "details",
        "hint_details",
        "rule",
    }
    | {"note", "advice", "remark", "remarks", "strerror", "reasoned", "failure_message", "damage", "wrong"}
    | {"shown", "inferred_from", "file"}
)
"""Members, and keys of rows, that hold texts."""
NAMES = frozenset({"what", "where", "message", "reason", "hint", "why", "headline", "remark"})
"""Variables and parameters that are called after what they hold."""
ERRORS = frozenset({"error", "caught", "failed", "malformed", "cause", "short", "exc", "err"})
SEARCHES = frozenset(
    {"startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "index", "rindex", "rfind"}
    | {"splitlines", "removeprefix", "removesuffix", "count", "replace"}
)
PATTERNS = frozenset({"search", "match", "fullmatch", "findall", "finditer", "sub", "fnmatch", "fnmatchcase"})
AS_THEY_ARE = frozenset({"strip", "lower", "upper", "casefold", "replace", "format", "join"})
"""What gives a text back."""

EXCEPTIONS = {
    # Others' texts, each where it becomes a type, or the one line of it that is printed.
    "rocks/errors.py:real": "a private folder's path becomes that of the database; whether it was named is kept as a flag",
    "rocks/errors.py:read_message": "RocksDB's messages become codes",
    "rocks/errors.py:_meaning": "the same",
    "rocks/errors.py:_errno_in": "the same",
    "rocks/errors.py:plain": "RocksDB says some things twice",
    "broker/settings.py:refused_by_client": "librdkafka names the setting that it rejects only in its message",
    "texts.py:first_line": "what is printed of an error with many lines",
    "spark/context.py:_last_line": "what is printed of a Java error with a Python traceback in it",
    # A text with a meaning of its own.
    "check/findings.py:has_action": "the hint that nothing is to do is a constant of this module",
    # How something is printed.
    "cli/output.py:error_lines": "a place that the message has named is not printed behind it again",
    "cli/views/check.py:_show_hint": "a command, which ends its line, is printed on one of its own",
    "cli/commands/ls.py:_raise_problems": "places are printed sorted, each once",
}
"""Where it is right, with the reason. An entry that nothing needs any more fails the test."""


class _Function(ast.NodeVisitor):
    """What one function reads; ``texts`` are its variables that hold a text."""

    def __init__(self) -> None:
        self.texts = set(NAMES)
        self.lines: list[int] = []

    def is_text(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in MEMBERS
        if isinstance(node, ast.Name):
            return node.id in self.texts
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Constant) and node.slice.value in MEMBERS
        if isinstance(node, ast.JoinedStr):
            return any(isinstance(part, ast.FormattedValue) and self.is_text(part.value) for part in node.values)
        if isinstance(node, ast.BoolOp):
            return any(map(self.is_text, node.values))
        if isinstance(node, ast.BinOp):
            return self.is_text(node.left) or self.is_text(node.right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            converts = node.func.id in ("str", "repr", "printable", "safe") and len(node.args) == 1
            return converts and (_is_error(node.args[0]) or self.is_text(node.args[0]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in AS_THEY_ARE and self.is_text(node.func.value)
        return False

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if self.is_text(node.value):
            self.texts |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        typed = all(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
        if not typed and any(map(self.is_text, sides)):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in SEARCHES and self.is_text(node.value):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in PATTERNS and any(map(self.is_text, node.args)):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load) and self.is_text(node.slice):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        if self.is_text(node.elt):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        if self.is_text(node.key):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        if self.is_text(node.subject):
            self.lines.append(node.lineno)
        self.generic_visit(node)


def _is_error(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ERRORS


@functools.cache
def readers(tree: ast.Module) -> tuple[tuple[str, int], ...]:
    """Return (function, line) of everything in a module that reads a text."""
    return tuple(_readers(tree))


def _readers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in syntax.nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = _Function()
            function.generic_visit(node)
            yield from ((node.name, line) for line in function.lines)


def test_nobody_reads_prose() -> None:
    texts = [
        f"{module}:{function}: line {line}"
        for module, tree in syntax.modules()
        for function, line in readers(tree)
        if f"{module}:{function}" not in EXCEPTIONS
    ]
    assert not texts, "\n".join(texts)


def test_the_exceptions_are_needed() -> None:
    texts = {f"{module}:{function}" for module, tree in syntax.modules() for function, _ in readers(tree)}
    assert not set(EXCEPTIONS) - texts


def test_messages_of_rocksdb_are_read_where_they_become_errors() -> None:
    rows = {
        module
        for module, tree in syntax.modules()
        for node in syntax.nodes(tree)
        if isinstance(node, ast.Name) and node.id == "read_message"
    }
    assert rows == {"rocks/errors.py"}


@pytest.mark.parametrize(
    "source",
    [
        'return "No such file" in str(error)',
        'return problem.where.split("/")',
        'return f"{problem.where}/".startswith(folder)',
        "return any(map(problem.where.startswith, folders))",
        'return reason.what == "its status is open"',
        "return re.search(r'x', error.message)",
        "text = str(error)\n    return shown in text",
        "return [one for one in found if one.where not in {p.where for p in others}]",
        "return MARKS[found.what]",
        'return row["what"] != "different"',
        "return message.strip().lower().endswith('x')",
    ],
)
def test_the_sweep_sees(source: str) -> None:
    assert readers(ast.parse(f"def f(x):\n    {source}\n"))


@pytest.mark.parametrize(
    "source",
    [
        'return f"{one.where}: {one.what}"',
        "return problem.code is ProblemCode.SST",
        "return one.error is None",
        "return one.place.within(folder)",
        'return name.startswith("OPTIONS-")',
    ],
)
def test_the_sweep_passes_over(source: str) -> None:
    assert not readers(ast.parse(f"def f(x):\n    {source}\n"))
