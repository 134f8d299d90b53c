"""The folder of an export: whose it is, and that it is complete only when its manifest is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kstate_cli.errors import InUse, Refused, UsageError
from kstate_cli.export.files import INCOMPLETE, MANIFEST, OutFolder, check_out

OWNER = {"app": "/state/shop", "store": "count"}
PART = "part-0_0-00000.parquet"


def write(out: Path, text: str = "rows", *, overwrite: bool = False, owner: dict[str, str] = OWNER) -> None:
    with OutFolder(out, owner, overwrite=overwrite) as place:
        (place.folder / "x").write_text(text)
        assert not (out / MANIFEST).exists() or overwrite
        place.publish({PART: "x"}, {"rows": 1})


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir())


def test_complete(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b")
    assert names(tmp_path / "a" / "b") == [MANIFEST, PART]
    assert json.loads((tmp_path / "a" / "b" / MANIFEST).read_text()) == {"rows": 1}


def test_a_failure_leaves_nothing_not_even_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), OutFolder(tmp_path / "a" / "b", OWNER, overwrite=False) as place:
        (place.folder / "x").touch()
        raise ZeroDivisionError
    assert names(tmp_path) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(ZeroDivisionError), OutFolder(tmp_path / "mine", OWNER, overwrite=False):
        raise ZeroDivisionError
    assert names(tmp_path) == ["mine"]


def test_an_export_that_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(Refused, match="contains an export"):
        write(tmp_path, "other")
    assert (tmp_path / PART).read_text() == "rows"
    write(tmp_path, "other", overwrite=True)
    assert (tmp_path / PART).read_text() == "other" and names(tmp_path) == [MANIFEST, PART]


def test_a_failure_keeps_the_export_that_was_to_be_replaced(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(ZeroDivisionError), OutFolder(tmp_path, OWNER, overwrite=True):
        raise ZeroDivisionError
    assert (tmp_path / PART).read_text() == "rows" and names(tmp_path) == [MANIFEST, PART]


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_somebody_else_are_never_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(Refused, match=r"is not empty. It contains letter\.txt"):
        write(tmp_path, overwrite=overwrite)
    assert names(tmp_path) == ["letter.txt"]


def test_only_the_same_export_resumes_a_killed_export(tmp_path: Path) -> None:
    remainder = tmp_path / INCOMPLETE
    remainder.mkdir()
    (remainder / "export.json").write_text(json.dumps(OWNER))
    (remainder / "renaming.json").write_text(json.dumps([PART]))
    (remainder / "half").touch()
    (tmp_path / PART).write_text("half of it has its name")
    with pytest.raises(Refused, match="an interrupted export of a different store"):
        write(tmp_path, owner={**OWNER, "store": "other"})
    assert (remainder / "half").exists()
    write(tmp_path)
    assert names(tmp_path) == [MANIFEST, PART] and (tmp_path / PART).read_text() == "rows"


def test_two_at_once(tmp_path: Path) -> None:
    with OutFolder(tmp_path, OWNER, overwrite=False), pytest.raises(InUse, match="another export is writing"):
        write(tmp_path)


def test_where_no_export_may_lie(tmp_path: Path) -> None:
    app = tmp_path / "state" / "shop"
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    for out in (app, app / "0_0", tmp_path / "state" / ".kstate" / "x", tmp_path / "link" / "shop", tmp_path / "file"):
        with pytest.raises(UsageError):
            check_out(out, app)
    assert check_out(tmp_path / "state" / "out", app) == tmp_path / "state" / "out"
