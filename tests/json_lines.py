"""What commands print with `-o json`: read, and held against the JSON Schemas of the package whenever a test runs one."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Final

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from kstate_cli.cli.registry import other_words

Line = dict[str, Any]
HEAD: Final = ("schema_version", "type", "app")
PROGRESS: Final = "restore-progress"
"""What `restore`, and `rehome` with a dump, write to standard error."""
_TELLING: Final = ("restore", "rehome")
_ENDS: Final = ("summary", "error")
_LOST: Final = (137, 141)
"""Killed, or nobody reads any more."""
_MANY: Final = frozenset({"row", "difference"})
"""Of these, one of each shape is looked at: a query has thousands that differ in their values only."""
_OF_NO_RESULT: Final = ("warning: KSTATE_", "warning: --on-state-change ")
"""A variable that is no setting, and a command of the user's that failed: neither says anything of the result."""
_WITHOUT_JSON: Final = frozenset({"--help", "-h", "--version"})


def parse_lines(out: str) -> list[Line]:
    """Every line of an output that is JSON Lines and nothing else."""
    return [json.loads(line) for line in out.splitlines()]


def results(out: str) -> list[Line]:
    """The lines but for how it ended: what was asked for."""
    return [line for line in parse_lines(out) if line["type"] not in _ENDS]


def summary(out: str) -> Line:
    """The `summary`."""
    (results,) = (line for line in parse_lines(out) if line["type"] == "summary")
    return results


def error(out: str) -> Line:
    """The `error`."""
    (results,) = (line for line in parse_lines(out) if line["type"] == "error")
    return results


def check(arguments: Sequence[object], status: int, out: str, err: str = "") -> None:
    """Fails unless what a command has printed is as the schemas say; of commands without `-o json` nothing is known."""
    # Some commands have other words: what they print is of the command that they mean.
    words = other_words([str(argument) for argument in arguments])
    _check_warnings(words, status, out, err)
    if not _asks_for_json(words) or _WITHOUT_JSON & {*words}:
        return
    if status < 0 or status in _LOST:
        out = out[: out.rfind("\n") + 1]  # the last line may be half of one
    lines = parse_lines(out)
    for line in lines:
        check_line(words[0], line)
    for text in err.splitlines():
        if text.startswith("{") and words[0] in _TELLING:
            check_line(PROGRESS, json.loads(text))
    # Who keeps the lines in a file, as cron does, hears of nothing else. Warnings are lines.
    assert status <= 1 or status in _LOST or err.strip(), f"exit code {status}, and standard error is empty: {words}"
    kinds = [line["type"] for line in lines]
    assert not {*_ENDS} & {*kinds[:-2]}, kinds
    if 0 <= status <= 1:
        assert kinds and kinds[-1] == "summary" and kinds.count("summary") == 1, (status, kinds, err)
    elif status > 0 and status not in _LOST:
        assert kinds and kinds[-1] == "error" and kinds.count("error") == 1, (status, kinds, err)
        assert lines[-1]["exit"] == status, lines[-1]


def _check_warnings(words: Sequence[str], status: int, out: str, err: str) -> None:
    """Fails if a command warns and ends with exit code 0: whoever looks at that alone would hear of nothing."""
    if status != 0 or "--warnings-ok" in words or "--help" in words:
        return
    lines = [line for line in err.splitlines() if line.startswith("warning: ") and not line.startswith(_OF_NO_RESULT)]
    lines += [line for line in out.splitlines() if line.startswith("{") and json.loads(line).get("type") == "warning"]
    assert not lines, f"exit code 0, and warnings: {words}: {lines}"


def check_line(command: str, line: Line) -> None:
    """Fails unless a line is as the schema of a command says."""
    assert tuple(line)[: len(HEAD)] == HEAD, f"{command}: {line}"
    if line["type"] in _MANY:
        shape = (command, _shape(line))
        if shape in _names:
            return
        _names.add(shape)
    facts = validators(command)
    assert line["type"] in facts, f"{command}: no schema for {line}"
    wrong = [f"{entry.json_path}: {entry.message}" for entry in facts[line["type"]].iter_errors(line)]
    assert not wrong, f"{command}: {wrong}\n{line}"


@functools.cache
def schema(name: str) -> Any:
    """A schema of the package."""
    return json.loads(files("kstate_cli").joinpath(f"schemas/{name}.json").read_bytes())


def schemas() -> list[str]:
    """The names of all of them."""
    return sorted(path.name.removesuffix(".json") for path in files("kstate_cli").joinpath("schemas").iterdir())


def commands() -> list[str]:
    """The commands that have a schema, and :data:`PROGRESS`."""
    return [name for name in schemas() if name not in ("members", "lines")]


def types(command: str) -> Iterator[tuple[str, Any]]:
    """The types of line that a command prints, each with its schema."""
    for entry in schema(command)["oneOf"]:
        where, _, name = entry["$ref"].rpartition("#/$defs/")
        yield name, (schema(where.removesuffix(".json")) if where else schema(command))["$defs"][name]


@functools.cache
def validators(command: str) -> dict[str, Draft202012Validator]:
    """What looks at a line of a command, by its type."""
    registry: Registry[Any] = Registry().with_resources(
        (f"{name}.json", Resource.from_contents(schema(name))) for name in schemas()
    )
    return {name: Draft202012Validator(of_type, registry=registry) for name, of_type in types(command)}


_names: set[object] = set()


def _shape(value: Any) -> object:
    if isinstance(value, dict):
        return tuple((name, _shape(entry)) for name, entry in value.items())
    if isinstance(value, list):
        return ("list", *{_shape(entry) for entry in value})
    return type(value)


def _asks_for_json(words: Sequence[str]) -> bool:
    return any(pair in (("-o", "json"), ("--output", "json")) for pair in itertools.pairwise(words))
