"""A shadow leaves nothing behind, and a scan of it does not end early, whatever comes in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from kstate_cli.errors import Interrupted
from kstate_cli.rocks import shadow as shadow_module
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.scanning import pieces
from kstate_cli.rocks.shadow import Shadow


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "db"
    db = Rdict(str(path), Options(raw_mode=True))
    for key in (b"a", b"b", b"c"):
        db[key] = b"v"
    db.flush()
    db.close()
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where shadows are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def test_a_signal_while_a_database_is_opened_leaves_nothing(
    database: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(levels: int) -> Options:
        assert list(temporary.iterdir())
        raise Interrupted(15)

    monkeypatch.setattr(shadow_module, "shadow_options", signalled)
    with pytest.raises(Interrupted), Shadow(database):
        pass
    assert list(temporary.iterdir()) == []


def test_a_signal_while_the_folder_is_made_leaves_nothing(
    database: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def signalled(path: Any, mode: int = 0o777) -> None:
        mkdir(path, mode)
        raise Interrupted(15)

    monkeypatch.setattr(os, "mkdir", signalled)
    with pytest.raises(Interrupted), Shadow(database):
        pass
    assert list(temporary.iterdir()) == []


def test_a_signal_while_a_database_is_closed_is_not_lost(database: Path, temporary: Path) -> None:
    class Closing:
        def close(self) -> None:
            raise Interrupted(15)

    shadow: Any = Shadow(database).__enter__()
    handle, shadow._db = shadow._db, Closing()
    with pytest.raises(Interrupted):
        shadow.close()
    assert list(temporary.iterdir()) == []
    handle.close()


class Forgetful:
    """A column family whose fast iterator ends before its first row, as it does where that cannot be read."""

    def __init__(self, family: Rdict) -> None:
        self._family = family

    def items(self, **_: Any) -> Iterator[Any]:
        return iter(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)


@pytest.mark.parametrize("lower", [None, b"", b"a", b"c", b"bb"])
@pytest.mark.parametrize("reverse", [False, True])
def test_no_row_is_the_answer_only_where_there_is_none(database: Path, lower: bytes | None, reverse: bool) -> None:
    with Shadow(database) as shadow:
        family: Any = Forgetful(shadow._families["default"])
        with pytest.raises(RocksError, match="stopped reading before the end"):
            list(pieces(family, lower, None, reverse=reverse))
        if not reverse:
            assert list(pieces(family, b"d", None)) == []
        assert list(pieces(family, None, b"a", reverse=reverse)) == []
