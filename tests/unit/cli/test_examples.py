"""`kstate examples`: all that is in the repository, whole or not at all, and never over anything."""

from __future__ import annotations

import ast
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import kstate_cli
from kstate_cli.cli.commands import examples
from kstate_cli.cli.commands.examples import write_examples
from kstate_cli.texts import EXAMPLES
from tests import syntax
from tests.directories.support import kstate_here
from tests.packaging.built import tracked_files

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(kstate_cli.__file__).parent
CITED = re.compile(rf"\b{EXAMPLES}/([\w./-]*\w)")


def _tracked_files() -> dict[str, bytes]:
    names = [name for name in tracked_files() if name.startswith(f"{EXAMPLES}/")]
    return {name.removeprefix(f"{EXAMPLES}/"): (ROOT / name).read_bytes() for name in names}


def _in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_that_is_in_the_repository(tmp_path: Path) -> None:
    result = kstate_here("examples", "--out", tmp_path / "new", "-o", "json")
    assert _in(tmp_path / "new") == _tracked_files()
    assert os.listdir(tmp_path) == ["new"]
    assert {row["path"] for row in result.rows if row["type"] == "file"} == {
        str(tmp_path / "new" / name) for name in _tracked_files()
    }
    assert result.summary["files"] == len(_tracked_files())
    assert result.summary["bytes"] == sum(map(len, _tracked_files().values()))
    for name in _tracked_files():
        assert os.access(tmp_path / "new" / name, os.X_OK) is os.access(ROOT / EXAMPLES / name, os.X_OK), name


def test_printed_command_restores_the_written_examples(tmp_path: Path) -> None:
    result = kstate_here("examples", "--out", tmp_path / "new examples")
    (line,) = (line for line in result.err.splitlines() if "kstate restore" in line)
    assert str(tmp_path / "orders") in line
    words = shlex.split(line.partition(": kstate ")[2])
    assert kstate_here(*words, "-q").status == 0, "where there is no Java too"
    assert {"0_0", "global"} <= {*os.listdir(tmp_path / "orders")}
    assert f"'{tmp_path}/new examples/dump'" in line and f"'{tmp_path}/new examples/dump.toml'" in line


@pytest.mark.parametrize("kind", ["file", "empty directory", "directory", "link", "link to a missing file"])
def test_nothing_is_overwritten(kind: str, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "file":
        out.write_text("mine")
    elif kind.startswith("link"):
        out.symlink_to(elsewhere if kind == "link" else "nothing")
    else:
        out.mkdir()
        if kind == "directory":
            (out / "README.md").write_text("mine")
    before = (_in(tmp_path), sorted(os.listdir(tmp_path)), out.is_symlink())
    result = kstate_here("examples", "--out", out, "-o", "json", status=4)
    assert result.error["code"] == "refused" and str(out) in result.error["message"]
    assert (_in(tmp_path), sorted(os.listdir(tmp_path)), out.is_symlink()) == before


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_nothing_is_overwritten_that_came_meanwhile(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    usual = examples.example_files

    def slow() -> Any:
        yield from usual()
        if kind == "directory":
            out.mkdir()
        (out / "mine" if kind == "directory" else out).write_text("mine")

    monkeypatch.setattr(examples, "example_files", slow)
    assert "already exists" in kstate_here("examples", "--out", out, status=4).err
    assert sorted(_in(tmp_path)) == (["out/mine"] if kind == "directory" else ["out"])


def test_failure_midway_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = examples.example_files

    def broken() -> Any:
        listing = list(usual())
        yield from listing[:5]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(examples, "example_files", broken)
    with pytest.raises(OSError, match="No space"):
        write_examples(tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_where_it_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "app" / "0_0").mkdir(parents=True)
    (tmp_path / "app" / ".lock").touch()
    (tmp_path / ".kstate").mkdir()
    for parent, reason in (("nowhere", "is not a directory"), ("app", "is inside"), (".kstate", "is inside")):
        result = kstate_here("examples", "--out", tmp_path / parent / "new", status=2)
        assert reason in result.err, result.err
    assert sorted(os.listdir(tmp_path / "app")) == [".lock", "0_0"]


def test_every_example_that_a_text_of_kstate_cites_is_there() -> None:
    """In help, in messages and in docstrings; and what `example` is asked for."""
    cited = set()
    for path in SOURCE.rglob("*.py"):
        for node in syntax.nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                cited |= {*CITED.findall(node.value)}
            elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "example":
                (name,) = node.args
                cited.add(ast.literal_eval(name))
    assert {"kstate.toml", "serdes"} <= cited
    assert not [name for name in cited if not (ROOT / EXAMPLES / name).exists()]


def test_examples_name_nothing_beside_them() -> None:
    """They are read where there is no repository: no link leads out of them."""
    wrong = []
    for path in (ROOT / EXAMPLES).rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            if not (path.parent / target).resolve().is_relative_to(ROOT / EXAMPLES):
                wrong.append(f"{path.name}: {target}")
    assert not wrong
