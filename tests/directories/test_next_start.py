"""Where a migration ends without a warning, nothing is wiped, lost or restored from the beginning at the next start."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.releases import release
from kstate_cli.rocks.create import create_store, layout_of
from tests.golden import names, unpack

from .support import kstate

pytestmark = pytest.mark.rotating(6)

WHOLE = frozenset({"opens", "restores", "ignored"})


def outcomes(app: Path, name: str) -> dict[str, str]:
    rows = kstate("check", app, "--for", name, "-o", "json", status=None).rows
    return {f"{row['task']}/{row['store']}": row["outcome"] for row in rows if row["type"] == "prediction"}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("target", ["4.2", "4.3"])
def test_no_warning_and_nothing_restored(tmp_path: Path, name: str, target: str) -> None:
    app = unpack(name, tmp_path)
    result = kstate("migrate", app, "--to", target, "-o", "json", status=None)
    if result.status == 0 and result.summary["executed"] and kstate("check", app, "--for", target, status=None).status:
        results = outcomes(app, target)
        # A global store without an offset is read from its topic, by every release.
        assert {of for of, part in results.items() if part not in WHOLE and not of.startswith("global/")} == set()
    else:
        assert result.status in (0, 1, 4), result.report


def never_committed(app: Path, task: str) -> None:
    """As 4.3 leaves the stores of a task that was killed before its first commit: no row, no offset, no status."""
    for path in (app / task / "rocksdb").iterdir():
        shutil.rmtree(path)
        create_store(path, layout_of("timestamped-key-value", release("4.3")))


def test_warns_of_a_task_that_never_committed(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    never_committed(app, "0_0")
    for options in (("--dry-run",), ()):
        result = kstate("migrate", app, "--to", "4.2", *options, status=1)
        assert "0_0: kstate found no offset for latest-order" in result.err and "restores the whole task" in result.err
    assert outcomes(app, "4.2")["0_0/latest-order"] == "task-wiped"


def test_names_stores_lost_with_a_wiped_task(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos-killed-open", tmp_path)
    result = kstate("migrate", app, "--to", "4.2", "--wipe-unclean", "--dry-run", status=1)
    assert "no offset shows whether" in result.err and "kv-nolog" in result.err
    assert f"kstate export {app} " in result.err


def test_uncertain_loss_is_predicted_as_possible(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos-killed-open", tmp_path)
    results = outcomes(app, "4.3")
    assert results["0_0/grace-join-Buffer"] == "may-be-lost"
    # A Position without an offset proves that it has no changelog.
    assert "lost" not in results.values()
    assert "may lose their rows" in kstate("check", app, "--for", "4.3", status=None).out


def hidden_in_the_store(app: Path) -> None:
    """A flipped byte in the SST of the column family ``offsets``: what the store's offset is nobody can read."""
    path = min((app / "0_0" / "rocksdb" / "count").glob("*.sst"))
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)


def remove_line(app: Path) -> None:
    path = app / "0_0" / ".checkpoint"
    version, _, *lines = path.read_text().splitlines()
    lines = [line for line in lines if not line.startswith(f"{app.name}-count-changelog ")]
    path.write_text("\n".join([version, str(len(lines)), *lines]) + "\n")


@pytest.mark.parametrize(
    ("name", "release_name", "hide"),
    [("4.3.1-kinds-eos", "4.3", hidden_in_the_store), ("4.2.1-kinds-eos", "4.2", remove_line)],
)
def test_a_wiped_store_leaves_its_task_to_the_others(
    tmp_path: Path, name: str, release_name: str, hide: Callable[[Path], None]
) -> None:
    """Whatever hides its offset: what its changelog is the other tasks tell."""
    app = unpack(name, tmp_path)
    sound = outcomes(app, release_name)
    hide(app)
    kstate("wipe", app, "--task", "0_0", "--store", "count", status=0)
    results = outcomes(app, release_name)
    assert results.pop("0_0/count") == "restores-all"
    assert {of: part for of, part in sound.items() if of != "0_0/count"} == results
