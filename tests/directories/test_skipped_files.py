"""Files of a dump that kstate skips are reported before a refusal that they may explain."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .test_cold import EXAMPLES
from .warm import Warm

DUMP, SPEC = EXAMPLES / "dump", EXAMPLES / "dump.toml"
TOPIC = "orders-visits-changelog"


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as warm_process:
        yield warm_process


def all_hidden(dump: Path) -> str:
    for file in dump.rglob("*.parquet"):
        file.rename(file.with_name(f".{file.name}"))
    return "it contains no Parquet file"


def topic_hidden(dump: Path) -> str:
    (dump / TOPIC).rename(dump / f"_{TOPIC}")
    return f"the dump does not contain {TOPIC}"


def leave_unfinished(dump: Path) -> str:
    for file in (dump / TOPIC).rglob("*.parquet"):
        file.rename(file.with_name(".part-0-0.inprogress.1f3a"))
    return f"the dump does not contain {TOPIC}"


def another_format(dump: Path) -> str:
    for file in (dump / TOPIC).rglob("*.parquet"):
        file.write_bytes(b"Obj\x01 as Avro")
        file.rename(file.with_suffix(".avro"))
    return f"the dump does not contain {TOPIC}"


def beside_damage(dump: Path) -> str:
    (dump / "notes.csv").write_text("a,b\n")
    file = next((dump / TOPIC).rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])
    return "cannot read the file as Parquet"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("prepare", "warning"),
    [
        (all_hidden, "Spark also treats them as hidden"),
        (topic_hidden, f"because Spark also treats them as hidden: _{TOPIC}/"),
        (leave_unfinished, ".part-0-0.inprogress.1f3a"),
        (another_format, "that are not Parquet"),
        (beside_damage, "that are not Parquet: notes.csv"),
    ],
)
def test_a_skipped_file_is_reported_before_the_refusal(
    prepare: Callable[[Path], str], warning: str, warm: Warm, tmp_path: Path
) -> None:
    dump = tmp_path / "dump"
    shutil.copytree(DUMP, dump)
    (dump / "_manifest.json").unlink()
    refusal = prepare(dump)
    words = ("--from-changelog", dump, "--spec", SPEC, "--for", "4.3", "--engine", "local", "--dump-is-complete",
             "--dump-is-committed")  # fmt: skip
    ended = warm("restore", tmp_path / "orders", *words)
    assert ended.status == 4, ended.report
    before, after = ended.err.index("warning: kstate skips files"), ended.err.index(refusal)
    assert before < after and warning in ended.err[before:after], ended.err
    ended = warm("restore", tmp_path / "orders", *words, "-o", "json")
    error = json.loads(ended.out.splitlines()[-1])
    assert error["type"] == "error" and any(warning in detail for detail in error["details"]), error
