"""``restore --task``, ``--store`` and ``--partition`` check of a dump only what they select."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from tests.growing import GrowingDump

from .support import kstate_here

pytestmark = pytest.mark.rotating(4)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SPEC = EXAMPLES / "dump.toml"
FILE = "orders-visits-changelog/1/part-00000.parquet"
"""Of the store visits, task 0_1."""


def _remove(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def _damage_footer(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-8:-4] = b"\xff\xff\xff\x7f"  # the length of the footer
    file.write_bytes(content)


DAMAGES: tuple[Callable[[Path], None], ...] = (_remove, _cut, _damage_footer)
UNSELECTED = (("--task", "0_0"), ("--partition", "0"), ("--store", "latest-order"), ("--task", "global"))
SELECTED = (
    (),
    ("--task", "0_1"),
    ("--partition", "1"),
    ("--store", "visits"),
    ("--partition", "0", "--partition", "1"),
)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "dump", tmp_path / "dump"))


def _words(tmp_path: Path, dump: Path, *options: str) -> tuple[object, ...]:
    return ("restore", tmp_path / "orders", "--dump", dump, "--for", "4.3", "--spec", SPEC, "--warnings-ok", *options)


@pytest.mark.sample(4)
@pytest.mark.parametrize("options", UNSELECTED, ids=" ".join)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_outside_the_selection_is_a_note(
    tmp_path: Path, dump: Path, damage: Callable[[Path], None], options: tuple[str, ...]
) -> None:
    damage(dump / FILE)
    result = kstate_here(*_words(tmp_path, dump, *options))
    assert (
        "note: the dump's orders-visits-changelog:1 is damaged, but this restoration does not need it: " in result.err
    )
    assert FILE in result.err
    assert (tmp_path / "orders").is_dir()


@pytest.mark.sample(5)
@pytest.mark.parametrize("options", SELECTED, ids=" ".join)
@pytest.mark.parametrize("damage", DAMAGES)
def test_refuses_damage_in_the_selection_with_its_file(
    tmp_path: Path, dump: Path, damage: Callable[[Path], None], options: tuple[str, ...]
) -> None:
    damage(dump / FILE)
    result = kstate_here(*_words(tmp_path, dump, *options), status=4)
    assert FILE in result.err, result.err
    assert not (tmp_path / "orders").exists()


def test_verify_dump_reads_all_of_it(tmp_path: Path, dump: Path) -> None:
    """Whoever asks for the whole dump gets the whole dump."""
    _remove(dump / FILE)
    assert FILE in kstate_here(*_words(tmp_path, dump, "--task", "0_0", "--verify-dump"), status=4).err


def test_a_file_of_an_unknown_partition_is_refused(tmp_path: Path, dump: Path) -> None:
    """It could hold rows of what is selected."""
    (dump / "orders-visits-changelog" / "1" / "more.parquet").write_bytes(b"PAR1")
    assert "more.parquet" in kstate_here(*_words(tmp_path, dump, "--task", "0_0"), status=4).err


def test_partitions_and_tasks_combine(tmp_path: Path, dump: Path) -> None:
    kstate_here(*_words(tmp_path, dump, "--partition", "1", "--store", "visits"))
    app = tmp_path / "orders"
    tasks = sorted(path.name for path in app.iterdir() if path.is_dir())
    assert (tasks, {path.name for path in app.rglob("visits")}) == (["0_1"], {"visits"})
    assert not [*app.rglob("latest-order")]


def test_no_such_partition(tmp_path: Path, dump: Path) -> None:
    result = kstate_here(*_words(tmp_path, dump, "--partition", "7"), status=2)
    assert "no task has partition 7" in result.err and "the partitions are 0, 1" in result.err


def test_a_dump_that_grows(tmp_path: Path) -> None:
    topic = "orders-latest-order-changelog"
    growing = GrowingDump(tmp_path / "dump")
    growing.add({TopicPartition(topic, number): [(b"k", b"\0" * 9, 1)] for number in (0, 1)})
    (file,) = (tmp_path / "dump").rglob(f"topic={topic}/partition=1/*.parquet")
    file.unlink()
    options = ("--store", "latest-order", "--guarantee", "at_least_once")
    assert file.name in kstate_here(*_words(tmp_path, growing.path, *options), status=4).err
    result = kstate_here(*_words(tmp_path, growing.path, *options, "--partition", "0"))
    assert f"note: the dump's {topic}:1 is damaged, but this restoration does not need it: " in result.err


@pytest.mark.parametrize("options", SELECTED, ids=" ".join)
def test_the_end_states_that_only_the_selected_stores_were_restored(
    tmp_path: Path, dump: Path, options: tuple[str, ...]
) -> None:
    restored = kstate_here(*_words(tmp_path, dump, *options)).err
    is_selection = bool(options)
    assert ("kstate restored the selected stores for 4.3" in restored) is is_selection
    assert ("Kafka Streams will restore any other store that the directory lacks from the broker" in restored) is (
        is_selection
    )
    assert ("kstate restored the directory for 4.3" in restored) is not is_selection
