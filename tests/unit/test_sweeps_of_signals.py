"""No thread is started, and no signal is swallowed, but where this file says so: the source itself is looked at."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstate_cli
from kstate_cli.change.journal import JournalError
from kstate_cli.errors import CommandEnd, Interrupted, KstateError, OutputLost, SeveralApplicationsError
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.restore.running.states import IllegalTransition
from kstate_cli.rocks.errors import RocksCode, RocksError, RocksMessage
from kstate_cli.rows.errors import StoreUnreadable
from kstate_cli.snapshot.repository import DamagedError
from tests import syntax

SOURCE = Path(kstate_cli.__file__).parent
STARTERS = {"start", "submit", "map_async", "apply_async"}
THREADS = {"Thread", "Timer", "ThreadPoolExecutor"}
GOES_ON = {
    ("cli/app.py", "main"): "the one place where a command ends",
    (
        "spark/context.py",
        "run",
    ): "runs in a thread of its own, where no signal is raised; hands over what it caught",
    ("signals.py", "signals_held"): "raises what it caught once every handler is back",
    ("change/engine.py", "execute"): "raises what _failed makes of it: a signal itself",
}
"""Who handles a signal without raising it again at once."""


def called_name(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)


def names(kind: ast.expr | None) -> set[str]:
    """The exceptions that a handler names; BaseException where it names none."""
    if kind is None:
        return {"BaseException"}
    parts = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return {part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "?") for part in parts}


def test_only_signals_py_starts_threads() -> None:
    """Whatever has a thread (a progress bar has one) is started with signals held back, by ``signals.start``."""
    results = []
    for name, tree in syntax.modules():
        for node in syntax.nodes(tree):
            # match.start() is a value that somebody uses; whoever starts a thread uses none.
            statement = isinstance(node, ast.Expr) and called_name(node.value) == "start"
            started = statement and isinstance(node.value.func, ast.Attribute)  # type: ignore[attr-defined]
            pooled = isinstance(node, ast.Call) and called_name(node) in STARTERS - {"start"}
            # Thread(…).start(), and executor.map(…) of concurrent.futures, whatever becomes of the value.
            on = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            direct = on is not None and called_name(on) in THREADS
            if (started or pooled or direct) and name != "signals.py":
                results.append(f"{name}:{node.lineno}")  # type: ignore[attr-defined]  # all three kinds have it
    assert not results


def test_whoever_catches_a_signal_raises_it_again() -> None:
    swallowing, functions = [], set()
    for name, tree in syntax.modules():
        for function in syntax.nodes(tree):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for node in own_nodes(function):
                if isinstance(node, ast.ExceptHandler) and names(node.type) & {
                    "BaseException",
                    "Interrupted",
                    "KeyboardInterrupt",
                    "CommandEnd",
                    "?",
                }:
                    where = (name, function.name)
                    if where in GOES_ON:
                        functions.add(where)
                    elif not raises(node.body):
                        swallowing.append(f"{name}:{node.lineno}")
                elif isinstance(node, ast.Call) and called_name(node) == "suppress":
                    wide = {"BaseException", "Interrupted", "KeyboardInterrupt", "CommandEnd"}
                    swallowing += [f"{name}:{node.lineno}" for node_ in node.args if names(node_) & wide]
                elif isinstance(node, ast.Try):
                    leaving = [inner for node_ in node.finalbody for inner in ast.walk(node_) if leaves(inner)]
                    swallowing += [f"{name}:{node_.lineno}" for node_ in leaving]  # type: ignore[attr-defined]
            if function.name == "__exit__":
                returns = [
                    node_ for node_ in own_nodes(function) if isinstance(node_, ast.Return) and node_.value is not None
                ]
                swallowing += [f"{name}:{node_.lineno}" for node_ in returns]
    assert not swallowing
    assert functions == GOES_ON.keys(), "this file names a place that is gone"


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What belongs to a function itself, and to no function in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from own_nodes(child)


def raises(body: list[ast.stmt]) -> bool:
    """Whether it ends in a ``raise``, or raises whatever is not of a kind that it names."""
    if not body:
        return False
    if any(isinstance(node_, ast.If) and not_an_instance(node_.test) and raises(node_.body) for node_ in body):
        return True
    last = body[-1]
    if isinstance(last, ast.If):
        return raises(last.body) and raises(last.orelse)
    return isinstance(last, ast.Raise)


def not_an_instance(test: ast.expr) -> bool:
    """``not isinstance(error, …)`` of exceptions proper."""
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and called_name(test.operand) == "isinstance"


def leaves(node: ast.AST) -> bool:
    """A ``return`` amid ``finally`` drops what is being raised."""
    return isinstance(node, ast.Return)


def test_a_signal_is_no_exception_as_others_are() -> None:
    assert not issubclass(Interrupted, Exception)
    assert issubclass(Interrupted, CommandEnd)
    assert issubclass(KstateError, Exception)


def kinds(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for below in kind.__subclasses__():
        yield below
        yield from kinds(below)


def test_every_error_of_ours_crosses_a_process_boundary() -> None:
    """Whatever can be raised in a worker, or in a task of Spark, comes out here as what it was."""
    for module in pkgutil.walk_packages(kstate_cli.__path__, "kstate_cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {kind for kind in kinds(BaseException) if kind.__module__.startswith("kstate_cli.")}
    calls_ = [
        Interrupted(15),
        OutputLost(OSError(28, "No space left on device")),
        OutputLost(BrokenPipeError(32, "Broken pipe")),
        SeveralApplicationsError(Path("/data"), [Path("/data/orders"), Path("/data/payments")]),
        StoreUnreadable("what", hint="hint", hint_details=("c",), by_host=True),
    ]
    calls_ += [
        kind("what", where="where", hint="hint", details=("a", "b"), hint_details=("c",))
        for kind in ours
        if issubclass(kind, KstateError) and "__init__" not in vars(kind)
    ]
    assert {Interrupted, OutputLost} <= ours
    unmade = {kind for kind in ours if issubclass(kind, KstateError)} - {type(error) for error in calls_}
    assert not unmade, "made of other things than their words: make one of each"
    for error in calls_:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
        assert again.exit_code == error.exit_code
    malformed = MalformedBytesError("too short", "SerializationException", streams_message="Size of")
    again = pickle.loads(pickle.dumps(malformed))
    assert (str(again), vars(again)) == (str(malformed), vars(malformed))
    rocks = RocksError("what", RocksMessage(RocksCode.FORMAT, "000009.sst", 7), names_database=True)
    again = pickle.loads(pickle.dumps(rocks))
    assert (str(again), vars(again)) == (str(rocks), vars(rocks))
    assert again.code is RocksCode.FORMAT
    damaged = DamagedError("objects/ab", "is missing")
    again = pickle.loads(pickle.dumps(damaged))
    assert (type(again), str(again), vars(again)) == (DamagedError, str(damaged), vars(damaged))
    # Its message is cut once, and not again where it comes out.
    journal = JournalError("x" * 10_000)
    again = pickle.loads(pickle.dumps(journal))
    assert (type(again), str(again)) == (JournalError, str(journal)) and len(str(journal)) < 10_000
    # A transition that is not in the table is a defect of the driver, which raises and handles it in one process.
    others = {
        kind
        for kind in ours
        if not issubclass(
            kind, (CommandEnd, DamagedError, JournalError, MalformedBytesError, RocksError, IllegalTransition)
        )
    }
    for kind in others:
        if "__init__" in vars(kind) or "__new__" in vars(kind):
            pytest.fail(f"{kind.__name__} is made of other things than its words: pickle it here")
        again = pickle.loads(pickle.dumps(kind(5, "what")))
        assert (type(again), again.args) == (kind, kind(5, "what").args)
