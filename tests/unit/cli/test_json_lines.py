"""The emitter of JSON: what every line begins with, how a command ends, and what the schemas of the package promise."""

from __future__ import annotations

import ast
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import kstate_cli
from kstate_cli import errors
from kstate_cli.change.commits_made import forget_commits, note_commit
from kstate_cli.cli import json_lines as emitter
from kstate_cli.cli import subject
from kstate_cli.cli.ending import exit_code_of, print_json_error
from kstate_cli.cli.output import Format, Output, output_of
from kstate_cli.cli.registry import COMMANDS
from kstate_cli.errors import CommandEnd, Interrupted, InUse, KstateError, OutputLost, Refused, RunFailed, UsageError
from kstate_cli.rocks.errors import RocksError
from tests import json_lines, json_page, json_schemas, syntax
from tests.directories.support import kstate_here
from tests.unit.cli.test_usage_errors import HOSTILE

CLI = Path(kstate_cli.__file__).parent / "cli"
NO_SCHEMA = {"demo"}
NEEDS_NOTHING = {"explain", "warm-up"}
"""Without an argument these are no wrong command lines."""
"""Commands without -o json."""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    forget_commits()
    yield
    forget_commits()
    emitter.begin([])


# --- lines ------------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(kind=st.text(), app=st.none() | st.text(), members=st.dictionaries(st.text(min_size=1), VALUES))
def test_line_equals_the_encoded_object(kind: str, app: str | None, members: dict[str, Any]) -> None:
    """Put together from parts, for the rows of queries: not a byte is other than of the object as a whole."""
    members = {name: member for name, member in members.items() if name not in json_lines.HEAD}
    out = _Stream()
    lines = emitter.JsonLines(app, out)  # type: ignore[arg-type]
    lines.print({"type": kind, **members})
    lines.print({"type": kind, **members})
    whole = {"schema_version": emitter.SCHEMA_VERSION, "type": kind, "app": app, **members}
    assert out.written == [json.dumps(whole) + "\n"] * 2


def test_integers_have_all_their_digits() -> None:
    out = _Stream()
    emitter.JsonLines("app", out).print({"type": "row", "offset": 2**63 - 1})  # type: ignore[arg-type]
    assert '"offset": 9223372036854775807}' in out.written[0]


def test_an_output_evaluates_only_its_own_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other part may read a directory or print, and its result would mix with the format that was chosen."""

    def unread() -> Iterator[Any]:
        yield pytest.fail("lines, and a table was chosen")

    def unprinted() -> None:
        pytest.fail("a text, and JSON was chosen")

    table: Output[Any] = output_of(Format.table, tmp_path)
    table.show(unread(), lambda: print("text"))
    table.remark("legend")
    output: Output[Any] = output_of(Format.json, tmp_path)
    output.show([{"type": "run", "run": "0001-migrate"}], unprinted)
    output.about(None).lines([{"type": "summary"}])
    output.remark("legend")
    output_of(Format.json, tmp_path, on_standard_error=True).lines([{"type": "phase"}])
    out, err = capsys.readouterr()
    text, *lines = out.splitlines()
    assert text == "text" and [json.loads(line)["app"] for line in lines] == [str(tmp_path), None]
    assert err.splitlines()[0] == "legend" and json.loads(err.splitlines()[1])["type"] == "phase"


class _Stream:
    """Takes what is written, call by call."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)


def test_nobody_else_prints_json() -> None:
    """In the command line; those of views/query.py are cells of CSV."""
    users = {
        path.relative_to(CLI).as_posix()
        for path in CLI.rglob("*.py")
        for node in syntax.nodes(path)
        if (isinstance(node, ast.Import) and "json" in {name.name for name in node.names})
        or (isinstance(node, ast.ImportFrom) and node.module == "json")
    }
    assert users == {"json_lines.py", "views/query.py"}


# --- failures ---------------------------------------------------------------------------------------------------------


def _classes(of: type[CommandEnd] = CommandEnd) -> Iterator[type[CommandEnd]]:
    yield of
    for subclass in of.__subclasses__():
        # Another test may have defined a class: it is no error of kstate.
        if subclass.__module__.startswith("kstate_cli."):
            yield from _classes(subclass)


def test_every_class_of_errors_has_a_code() -> None:
    import importlib
    import pkgutil

    for module in pkgutil.walk_packages(kstate_cli.__path__, "kstate_cli."):
        if module.name.endswith("errors"):
            importlib.import_module(module.name)
    # A class without a code of its own is one that kstate itself tells apart, and nobody else.
    own = {
        kind.__name__: kind.code
        for kind in _classes()
        if kind.__module__.startswith("kstate_cli") and "code" in vars(kind)
    }
    assert own["CommandEnd"] == KstateError.code == "failed"
    assert len(set(own.values())) == len(own), own
    page = json_page.PAGE.read_text(encoding="utf-8")
    assert all(f"`{code}`" in page for code in {*own.values(), *(code for _, code in ENDS)} - {"own", "output-lost"})
    pattern = json_lines.schema("members")["$defs"]["code"]["pattern"]
    assert all(Draft202012Validator({"pattern": pattern}).is_valid(code) for code in own.values())


ENDS: list[tuple[BaseException, str]] = [
    (UsageError("u"), "usage"),
    (Refused("r", hint="h", hint_details=["a", "b"], details=["d"], where="w"), "refused"),
    (InUse("i"), "in-use"),
    (RunFailed("f"), "run-failed"),
    (Interrupted(15), "interrupted"),
    (KstateError("k", code="own"), "own"),
    (OSError(errno.EIO, "Input/output error", "/data"), "system"),
    (OSError(errno.EMFILE, "Too many open files"), "host"),
    (RocksError("Corruption"), "database"),
    (ValueError("\udcff\n"), "defect"),
    (MemoryError(), "host"),
    (SystemExit(5), "failed"),
]


@pytest.mark.parametrize(("error", "code"), ENDS, ids=lambda error: type(error).__name__)
def test_a_failure_is_a_line(error: BaseException, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    emitter.begin(["ls", "x", "-o", "json"])
    number = exit_code_of(error)
    print_json_error(error, number)
    print_json_error(error, number)
    (line,) = json_lines.parse_lines(capsys.readouterr().out)
    json_lines.check_line("ls", line)
    assert (line["type"], line["code"], line["exit"], line["app"]) == ("error", code, number, None)
    assert line["message"]
    if isinstance(error, CommandEnd):
        assert line["message"] == error.headline
        assert (line["hint"], line["hint_details"]) == (error.hint, list(error.hint_details))
        assert (line["where"], line["details"]) == (error.where, list(error.details))


def test_json_error_reports_the_committed_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    emitter.begin(["migrate", "-o", "json"])
    subject.set_app(tmp_path)
    note_commit("0001-migrate", tmp_path)
    error = RunFailed("late")
    errors.note(error, "beside")
    print_json_error(error, exit_code_of(error))
    (line,) = json_lines.parse_lines(capsys.readouterr().out)
    assert (line["code"], line["exit"], line["app"]) == ("run-halfway", 7, str(tmp_path))
    assert line["details"][0] == "beside" and line["details"][1].startswith("what was done: ")


@pytest.mark.parametrize(
    "words", [["-o", "table"], [], ["-o", "json", "-o", "csv"], ["--", "-o", "json"], ["--output=table"], ["x", "json"]]
)
def test_without_json_there_is_none(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    emitter.begin(["ls", *words])
    print_json_error(Refused("r"), 4)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "words", [["-o", "json"], ["-ojson"], ["-qo", "json"], ["-qojson"], ["--output", "json"], ["--output=json"]]
)
def test_every_way_to_ask_for_it(words: list[str], tmp_path: Path) -> None:
    result = kstate_here("ls", tmp_path / "nowhere", *words, status=2)
    assert (result.error["code"], result.error["app"]) == ("usage", str(tmp_path / "nowhere"))
    assert "does not exist" in result.error["message"]
    result = kstate_here("ls", tmp_path, "--nonsense", *words, status=2)
    assert (result.error["code"], result.error["app"]) == ("usage", None)
    assert "--nonsense" in result.error["message"]


def test_the_environment_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSTATE_LS_OUTPUT", "json")
    for words in ([tmp_path / "nowhere"], [tmp_path, "--nonsense"], []):
        assert kstate_here("ls", *words, status=2).error["code"] == "usage"
        assert kstate_here("ls", *words, "-o", "table", status=2).out == ""
    assert kstate_here("check", tmp_path, "--nonsense", status=2).out == ""


def test_results_that_got_lost_are_followed_by_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    emitter.begin(["ls", "-o", "json"])
    print_json_error(OutputLost(OSError(errno.ENOSPC, "No space left on device")), 6)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in NO_SCHEMA])
def test_wrong_command_lines(command: str) -> None:
    """Found by the parser, before anything of the command is there; hostile."""
    without = [] if command in NEEDS_NOTHING else [[]]
    for words in ([f"--{HOSTILE}"], [HOSTILE] * 9, *without):
        result = kstate_here(command, *words, "-o", "json", status=None)
        assert result.status in (2, 4), (words, result)
        assert len(result.out.splitlines()) == 1 and result.error["exit"] == result.status
        assert result.error["code"] in ("usage", "refused")


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_schemas_are_those_of_the_types_of_lines() -> None:
    """Also no file is left of a command that is gone."""
    files = {path.name: path.read_text(encoding="utf-8") for path in json_schemas.FOLDER.iterdir()}
    assert files == json_schemas.files(), "python -m tests.json_page writes them anew"


def test_every_command_has_a_schema() -> None:
    assert {*json_lines.commands()} == {*COMMANDS, json_lines.PROGRESS} - NO_SCHEMA


@pytest.mark.parametrize("name", json_lines.schemas())
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(json_lines.schema(name))


@pytest.mark.parametrize("command", json_lines.commands())
def test_a_line_has_its_members_and_no_others(command: str) -> None:
    """And each member is defined in one place, so that it means the same wherever it stands."""
    types = dict(json_lines.types(command))
    assert command == json_lines.PROGRESS or types.keys() >= {"summary", "error"}
    assert {*types} == {kind["properties"]["type"]["const"] for kind in types.values()}
    for kind, schema in types.items():
        assert schema["additionalProperties"] is False and schema["description"], kind
        assert tuple(schema["properties"])[:3] == tuple(schema["required"][:3]) == json_lines.HEAD, kind
        for name, member in schema["properties"].items():
            if name == "type":
                continue
            reference = member if "$ref" in member else member["anyOf"][0]
            assert reference == {"$ref": f"members.json#/$defs/{name}"}, (kind, name)
            assert "$ref" in member or member["anyOf"][1:] == [{"type": "null"}], (kind, name)


def test_nothing_is_defined_that_no_line_has() -> None:
    commands = [row for name in json_lines.commands() for row in dict(json_lines.types(name)).values()]
    members = json_lines.schema("members")["$defs"]
    assert {*members} == {name for command in commands for name in command["properties"]}
    assert all(member["description"] for member in members.values())
    identities = {id(command) for command in commands}
    for name in json_lines.schemas():
        if name != "members":
            assert {id(schema) for schema in json_lines.schema(name)["$defs"].values()} <= identities, name


def test_schema_check_rejects_wrong_lines() -> None:
    """Or no test that runs a command would."""
    good = {
        "schema_version": emitter.SCHEMA_VERSION,
        "type": "summary",
        "app": "/a",
        "stores": 1,
        "bytes": 2,
        "running": None,
        "as_of": "closed",
        "host": "web-1",
        "process_id": None,
    }
    json_lines.check_line("ls", good)
    for bad in (
        {**good, "more": 1},
        {**good, "bytes": "2"},
        {**good, "app": None},
        {**good, "schema_version": 1},
        {**good, "type": "rows"},
        {name: value for name, value in good.items() if name != "stores"},
        dict(reversed(good.items())),
    ):
        with pytest.raises(AssertionError):
            json_lines.check_line("ls", bad)
    line = json.dumps(good) + "\n"
    words = ("ls", "/a", "-o", "json")
    json_lines.check(words, 1, line)
    failed = {"type": "error", "code": "usage", "exit": 2, "message": "m", "where": None, "details": [], "hint": None}
    error = json.dumps({**dict(list(good.items())[:3]), **failed, "hint_details": []}) + "\n"
    json_lines.check(words, 2, error, "kstate: m")
    for status, out, err in ((0, "", ""), (3, line, "no"), (0, line * 2, ""), (0, line + "text\n", ""), (2, error, "")):
        with pytest.raises((AssertionError, ValueError)):
            json_lines.check(words, status, out, err)
