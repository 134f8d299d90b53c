"""Folders below ``--staging``: unique, told of in the journal, and removed only where they are proven to be ours."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

import pytest

from kstate_cli.change.folder import create_run
from kstate_cli.change.journal import Run
from kstate_cli.diagnosis import kept_uri
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.restore.staging_area import (
    MARK,
    REMOVED_EVENT,
    STAGING_EVENT,
    _contents_elsewhere,
    below,
    check_area,
    end_area,
    left_in_area,
    make_area,
    remove_from_area,
    settled,
)


def a_run(tmp_path: Path, host: str = "one", app: str = "app") -> Run:
    """The first restoration of an application on one of several hosts."""
    path = tmp_path / host / app
    path.mkdir(parents=True, exist_ok=True)
    return create_run(path, "restore --for 4.3", source="4.3", target="4.3", steps=1)


def test_two_hosts_have_two_folders(tmp_path: Path) -> None:
    """The same application, and the first run of each."""
    area = tmp_path / "staging"
    runs = [a_run(tmp_path, host) for host in ("one", "two")]
    assert runs[0].name == runs[1].name
    folders = [Path(make_area(str(area), "app", run)) for run in runs]
    assert len(set(folders)) == 2
    (folders[1] / "0_0.sst").write_bytes(b"x" * 10)
    end_area(runs[0], str(folders[0]))
    assert [path.name for path in area.iterdir()] == [folders[1].name]
    assert left_in_area(runs[0]) is None
    remains = left_in_area(runs[1])
    assert remains is not None
    assert (remains.run, remains.place, remains.files, remains.why) == (runs[1].name, str(folders[1]), 2, None)


def test_failed_journal_does_not_prevent_the_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path)
    folder = Path(make_area(str(tmp_path / "staging"), "app", run))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        removed = remove_from_area(run)
    assert removed is not None
    assert removed.why is None
    assert not folder.exists()
    assert remove_from_area(run) is None


def test_remains_of_a_killed_run_are_removed_once(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    folder = Path(make_area(str(tmp_path / "staging"), "app", run))
    (folder / "0_0.sst").write_bytes(b"x" * 1000)
    (folder / "sorted-topic-0").mkdir()
    (folder / "sorted-topic-0" / "part.parquet").write_bytes(b"y" * 24)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("p")
    (folder / "link").symlink_to(outside)
    removed = remove_from_area(run)
    assert removed is not None
    assert removed.size >= 1024
    assert not folder.exists()
    assert (outside / "precious").read_text() == "p"
    assert run.last(REMOVED_EVENT)
    assert remove_from_area(run) is None


def journal(run: Run, **members: object) -> None:
    """Somebody has written a journal."""
    run.write(STAGING_EVENT, **members)


TOKEN = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "uri",
    [
        "{precious}",
        "{precious}/",
        "{precious}/.",
        "file://{precious}",
        "{link}",
        "{link}/",
        "file://{link}/",
        "{link}/.",
        "{file}",
    ],
)
def test_a_journal_alone_removes_nothing(tmp_path: Path, uri: str) -> None:
    precious = tmp_path / f"precious-{TOKEN}"
    precious.mkdir()
    (precious / "data").write_text("d")
    link, file = tmp_path / f"link-{TOKEN}", tmp_path / f"file-{TOKEN}"
    link.symlink_to(precious)
    file.write_text("f")
    run = a_run(tmp_path)
    journal(run, uri=uri.format(precious=precious, link=link, file=file), token=TOKEN)
    area = left_in_area(run)
    assert area is not None
    assert area.why is not None
    with pytest.raises(RunFailed, match="does not delete the files"):
        remove_from_area(run)
    assert (precious / "data").read_text() == "d"
    assert file.exists()
    assert link.is_symlink()
    assert not run.last(REMOVED_EVENT)


@pytest.mark.parametrize("mark", ["", "[]", '{"token": "f"}', '{"token": null}', "\0"])
def test_another_mark_is_anothers_folder(tmp_path: Path, mark: str) -> None:
    run = a_run(tmp_path)
    folder = Path(make_area(str(tmp_path / "staging"), "app", run))
    (folder / MARK).write_text(mark)
    with pytest.raises(RunFailed, match=MARK):
        remove_from_area(run)
    assert folder.exists()


def test_a_name_that_is_not_ours_stays_whatever_its_mark_says(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / MARK).write_text(json.dumps({"token": TOKEN}))
    journal(run, uri=str(home), token=TOKEN)
    with pytest.raises(RunFailed):
        remove_from_area(run)
    assert home.exists()


@pytest.mark.parametrize("members", [{}, {"uri": 3, "token": TOKEN}, {"uri": "/x"}, {"uri": "/x", "token": "../.."}])
def test_a_journal_that_does_not_say_where(tmp_path: Path, members: dict[str, object]) -> None:
    run = a_run(tmp_path)
    journal(run, **members)
    area = left_in_area(run)
    assert area is not None
    assert area.why is not None


def test_killed_between_the_journal_and_the_mark(tmp_path: Path) -> None:
    """The folder may not be there yet, or be empty: neither is in anybody's way."""
    run = a_run(tmp_path)
    folder = Path(make_area(str(tmp_path / "staging"), "app", run))
    (folder / MARK).unlink()
    assert remove_from_area(run) is not None
    assert not folder.exists()
    other = a_run(tmp_path)
    folder = Path(make_area(str(tmp_path / "staging"), "app", other))
    (folder / MARK).unlink()
    folder.rmdir()
    assert left_in_area(other) is None


def test_half_removed_is_still_ours(tmp_path: Path) -> None:
    """A folder in it that cannot be removed: the mark is there until the last."""
    run = a_run(tmp_path)
    folder = Path(make_area(str(tmp_path / "staging"), "app", run))
    (folder / "a.sst").write_bytes(b"x")
    (folder / "b").mkdir()
    (folder / "b" / "c").write_bytes(b"y")
    lost_path = os.path.join(folder, "a.sst")
    os.unlink(lost_path)
    assert (folder / MARK).exists()
    assert remove_from_area(run) is not None


def test_no_secret_is_written_down(tmp_path: Path) -> None:
    secret = "s3://AKIA:s3cr3t@bucket/staging?region=eu&secret_key=s3cr3t&endpoint_override=minio:9000&sas_token=s3cr3t"
    text = kept_uri(below(secret, "name"))
    assert "s3cr3t" not in text
    assert text == "s3://bucket/staging/name?region=eu&endpoint_override=minio:9000"


def test_long_names_and_strange_ones_fit(tmp_path: Path) -> None:
    for app in ("a" * 240, "with space#and?more%"):
        folder = Path(make_area(str(tmp_path / "staging"), app, a_run(tmp_path, app=app)))
        assert folder.is_dir()
        assert len(folder.name) < 150
        assert set(folder.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-~")


def test_whoever_may_write_to_the_area_may_write_to_its_folders(tmp_path: Path) -> None:
    area = tmp_path / "staging"
    area.mkdir()
    area.chmod(0o1777)
    folder = Path(make_area(str(area), "app", a_run(tmp_path)))
    assert folder.stat().st_mode & 0o7777 == 0o1777


def test_an_area_is_tried_before_it_is_used_and_nothing_stays(tmp_path: Path) -> None:
    check_area(str(tmp_path / "not" / "there" / "yet"))
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.write_text("")
    for uri in (str(file), f"{file}/below", f"file://{file}/below"):
        with pytest.raises(Refused, match="--staging"):
            check_area(uri)
    assert settled(f"file://{tmp_path}/a%20b") == f"{tmp_path}/a b"


@pytest.mark.parametrize("uri", ["", ".", "relative", "/", "~", "s3://", "file://", "?", "\0"])
def test_a_hostile_place_is_not_even_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    """An empty one is the working directory, ``/`` is everything: neither is the folder of a run."""
    here = tmp_path / f"here-{TOKEN}"
    here.mkdir()
    (here / MARK).write_text(json.dumps({"token": TOKEN}))
    monkeypatch.chdir(here)
    monkeypatch.setattr("kstate_cli.restore.staging_area._open_place", lambda uri: pytest.fail(f"{uri!r} is opened"))
    for place in (uri, f"here-{TOKEN}", f"../here-{TOKEN}") if not uri else (uri,):
        run = a_run(tmp_path, host=f"host{len(place)}")
        journal(run, uri=place, token=TOKEN)
        area = left_in_area(run)
        assert area is not None
        assert area.why is not None
        with pytest.raises(RunFailed, match="does not delete the files"):
            remove_from_area(run)
    assert (here / MARK).exists()


def test_a_place_that_does_not_answer_keeps_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that takes the connection and says nothing, as behind some firewalls."""
    monkeypatch.setattr("kstate_cli.restore.staging_area._LOOK_SECONDS", 3.0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        run = a_run(tmp_path)
        uri = f"s3://bucket/app-{TOKEN}?region=eu&scheme=http&endpoint_override={endpoint}"
        journal(run, uri=uri, token=TOKEN)
        area = left_in_area(run)
    assert area is not None
    assert (area.place, area.why) == (
        f"s3://bucket/app-{TOKEN}",
        "kstate cannot check it: it did not respond within 3 s",
    )


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_mount_that_does_not_answer_keeps_nobody(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a hard mount of NFS whose server has gone; here it is a FIFO in place of the mark, which nobody writes to."""
    monkeypatch.setattr("kstate_cli.restore.staging_area._LOOK_SECONDS", 0.3)
    folder = tmp_path / f"app-{TOKEN}"
    folder.mkdir()
    os.mkfifo(folder / MARK)
    run = a_run(tmp_path)
    journal(run, uri=f"{scheme}{folder}", token=TOKEN)
    area = left_in_area(run)  # nobody would ever end the wait for a FIFO
    assert area is not None
    assert area.why == "kstate cannot check it: it did not respond within 0.3 s"
    with open(folder / MARK, "wb"):
        pass  # who waits for it goes on, and ends


def test_remote_listing_reports_the_contents(tmp_path: Path) -> None:
    """By a URI of this host: the same process, the same answers."""
    folder = Path(make_area(str(tmp_path / "staging"), "app", a_run(tmp_path)))
    (folder / "a.sst").write_bytes(b"x" * 10)
    token = folder.name.rpartition("-")[2]
    size = (folder / MARK).stat().st_size + 10
    assert _contents_elsewhere(f"file://{folder}", token) == (2, size, None)
    assert _contents_elsewhere(f"file://{folder}", TOKEN) == (2, size, f"its file {MARK} does not name this run")
    assert _contents_elsewhere(f"file://{folder}x", token) is None
    with pytest.raises(OSError, match=r"x\+y"):
        _contents_elsewhere(f"x+y://host/app-{token}", token)


@pytest.mark.parametrize("recorded", [True, False])
def test_unmounted_area_is_not_empty(tmp_path: Path, recorded: bool) -> None:
    """The folder lies on a file system that is not mounted now: it will be there again, and nobody would know of it."""
    run = a_run(tmp_path)
    area = tmp_path / "mount" / "staging"
    folder = Path(make_area(str(area), "app", run))
    event = run.last(STAGING_EVENT)
    assert os.path.ismount(event["mount"])
    assert str(folder).startswith(event["mount"])
    if recorded:  # as it was made while something was mounted there
        journal(run, **{**{name: event[name] for name in ("uri", "token", "host")}, "mount": str(tmp_path / "mount")})
        folder.rename(tmp_path / folder.name)
    else:
        (tmp_path / "mount").rename(tmp_path / "elsewhere")
    remains = left_in_area(run)
    assert remains is not None
    assert remains.why is not None
    assert "mounted" in remains.why
    with pytest.raises(RunFailed):
        remove_from_area(run)
