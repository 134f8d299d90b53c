"""Changes of the syntax tree of a module, each small enough to be a slip of the pen."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

_TEXT: Final = 160
"""Characters of the source in a record."""
_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_OPPOSITES: Final = {"all": "any", "any": "all", "min": "max", "max": "min"}
_UNSWAPPED: Final = {"isinstance", "issubclass", "getattr", "setattr", "hasattr", "cast", "range", "max", "min", "zip"}
"""Functions whose arguments have different types, so that a swap always raises, or where the order of arguments is no slip."""
_INVERTED: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""Comparisons whose change is their negation, so that the negated condition is no other mutant."""


class Identity(NamedTuple):
    """What names a mutant in a record, wherever the lines around it move."""

    module: str
    function: str
    operator: str
    before: str
    after: str
    number: int
    """Counts the equal changes of a function."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    identity: Identity
    line: int
    last_line: int
    in_function: bool
    """Functions that exist already can get the changed code; other code runs when the module is imported."""
    names: tuple[str, ...]
    """What the statement at the level of the module defines."""
    apply: Callable[[], None]

    def code(self, tree: ast.Module, path: Path) -> CodeType:
        """Return the changed module. The tree stays changed: a process compiles one mutant."""
        self.apply()
        code: CodeType = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
        return code


class Module:
    """A module with its syntax tree and all mutants."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.dotted = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self.path = root / name
        self.tree = ast.parse(self.path.read_text(encoding="utf-8"))
        self.mutants = list(_Mutants(name, self.tree))


class _Change(NamedTuple):
    operator: str
    node: ast.AST
    before: str
    after: str
    apply: Callable[[], None]


class _Mutants:
    """The mutants of a syntax tree, in the order of the source."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self._module = module
        self._tree = tree
        self._equal: Counter[tuple[str, ...]] = Counter()

    def __iter__(self) -> Iterator[Mutant]:
        for statement in self._tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)) or _is_type_checking(statement):
                continue
            names = _names(statement)
            if "__all__" not in names:
                yield from self._in(self._tree, statement, (), names, in_function=False)

    def _in(
        self, parent: ast.AST, node: ast.AST, scope: tuple[str, ...], names: tuple[str, ...], *, in_function: bool
    ) -> Iterator[Mutant]:
        for change in _changes(parent, node):
            function = ".".join(scope or names)
            texts = (function, change.operator, change.before[:_TEXT], change.after[:_TEXT])
            identity = Identity(self._module, *texts, self._equal[texts])
            self._equal[texts] += 1
            line = getattr(change.node, "lineno", 0)
            last = getattr(change.node, "end_lineno", line)
            yield Mutant(identity, line, last, in_function, names, change.apply)
        # Defaults of parameters are computed where the function is defined, its body where it is called.
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for default in (*node.args.defaults, *(default for default in node.args.kw_defaults if default)):
                yield from self._in(node.args, default, scope, names, in_function=in_function)
            own = (*scope, node.name) if not isinstance(node, ast.Lambda) else scope
            body: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
            for child in body:
                yield from self._in(node, child, own, names, in_function=True)
            return
        own = (*scope, node.name) if isinstance(node, ast.ClassDef) else scope
        for child in _children(node):
            yield from self._in(node, child, own, names, in_function=in_function)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Give the parts that can change: no types, decorators, docstrings, assertions, or texts of errors."""
    if isinstance(node, (ast.Raise, ast.Assert, ast.Delete, ast.Import, ast.ImportFrom, ast.FormattedValue)):
        return
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "decorator_list", "returns", "bases", "ctx", "type_params", "format_spec"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child) and not _is_type_checking(child):
                yield child


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _names(statement: ast.stmt) -> tuple[str, ...]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return (statement.name,)
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return (statement.target.id,)
    if isinstance(statement, ast.Assign):
        return tuple(target.id for target in statement.targets if isinstance(target, ast.Name))
    return ()


def _changes(parent: ast.AST, node: ast.AST) -> Iterator[_Change]:
    """Give the changes of one node, without those of its parts."""
    if isinstance(node, ast.Compare):
        yield from _comparisons(node)
    elif isinstance(node, ast.BoolOp):
        operator = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _set("boolean operator", node, "op", operator)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield _replace(
            "removed sign" if not isinstance(node.op, ast.Not) else "removed not", parent, node, node.operand
        )
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        yield from _arithmetic(node)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Slice):
        if node.lower is not None:
            yield _set("slice bound", node, "lower", None)
        if node.upper is not None:
            yield _set("slice bound", node, "upper", None)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield _set("returned value", node, "value", ast.Constant(None))
        if isinstance(node.value, ast.Tuple):
            yield from _swap("swapped values", node.value, node.value.elts)
    yield from _negations(node)
    yield from _removals(parent, node)


def _comparisons(node: ast.Compare) -> Iterator[_Change]:
    for index, operator in enumerate(node.ops):
        operators = list(node.ops)
        operators[index] = _COMPARISONS[type(operator)]()
        yield _set("comparison", node, "ops", operators)


def _arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[_Change]:
    operator = _ARITHMETIC.get(type(node.op))
    texts = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    # A text minus a text is an error of every run.
    if operator is not None and not any(isinstance(text, ast.JoinedStr) or _is_str(text) for text in texts):
        yield _set("arithmetic", node, "op", operator())


def _constants(node: ast.Constant) -> Iterator[_Change]:
    value = node.value
    if isinstance(value, bool):
        yield _set("constant", node, "value", not value)
    elif isinstance(value, (int, float)):
        yield _set("constant", node, "value", value + 1)
        yield _set("constant", node, "value", value - 1)
    elif isinstance(value, bytes):
        yield _set("bytes", node, "value", value[:-1] + bytes([value[-1] ^ 1]) if value else b"\0")


def _calls(node: ast.Call) -> Iterator[_Change]:
    name = ast.unparse(node.func)
    if name in _OPPOSITES:
        yield _set("opposite function", node, "func", ast.Name(_OPPOSITES[name], ast.Load()))
    if name not in _UNSWAPPED:
        yield from _swap("swapped arguments", node, node.args)


def _negations(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        conditions = [(node, "test", node.test)]
    elif isinstance(node, ast.comprehension):
        conditions = []
        for index, condition in enumerate(node.ifs):
            if _is_negated_elsewhere(condition):
                continue
            negated = list(node.ifs)
            negated[index] = ast.UnaryOp(ast.Not(), condition)
            yield _Change(
                "negated condition",
                condition,
                _unparse(condition),
                _unparse(negated[index]),
                lambda negated=negated: setattr(node, "ifs", negated),  # type: ignore[misc]
            )
    else:
        return
    for owner, field, condition in conditions:
        if not _is_negated_elsewhere(condition):
            yield _set("negated condition", owner, field, ast.UnaryOp(ast.Not(), condition), condition=condition)


def _is_negated_elsewhere(condition: ast.expr) -> bool:
    if isinstance(condition, ast.Compare):
        return len(condition.ops) == 1 and isinstance(condition.ops[0], _INVERTED)
    return isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not)


def _removals(parent: ast.AST, node: ast.AST) -> Iterator[_Change]:
    if (
        (isinstance(node, ast.Expr) and not _is_text(node))
        or isinstance(node, ast.AugAssign)
        or (isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)))
    ):
        yield _replace("removed statement", parent, node, ast.Pass())
    elif isinstance(node, ast.Raise):
        yield _replace("removed raise", parent, node, ast.Pass())
    elif isinstance(node, ast.Continue):
        yield _replace("removed continue", parent, node, ast.Pass())
    elif isinstance(node, ast.Break):
        yield _replace("removed break", parent, node, ast.Pass())


def _swap(operator: str, node: ast.expr, values: list[ast.expr]) -> Iterator[_Change]:
    """Swap the first two."""
    starred = any(isinstance(value, ast.Starred) for value in values[:2])
    if len(values) < 2 or starred or ast.dump(values[0]) == ast.dump(values[1]):
        return
    field = "elts" if isinstance(node, ast.Tuple) else "args"
    yield _set(operator, node, field, [values[1], values[0], *values[2:]])


def _set(operator: str, node: ast.AST, field: str, value: Any, *, condition: ast.AST | None = None) -> _Change:
    changed = copy.copy(node)
    setattr(changed, field, value)
    before, after = (condition, value) if condition is not None else (node, changed)
    return _Change(operator, condition or node, _unparse(before), _unparse(after), lambda: setattr(node, field, value))


def _replace(operator: str, parent: ast.AST, node: ast.AST, new: ast.AST) -> _Change:
    ast.copy_location(new, node)

    def apply() -> None:
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, new)
            elif isinstance(value, list) and any(child is node for child in value):
                setattr(parent, field, [new if child is node else child for child in value])

    return _Change(operator, node, _unparse(node), _unparse(new), apply)


def _unparse(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_str(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
