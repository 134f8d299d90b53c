"""README: every block is run, or said why not, and prints what stands there."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest

from tests.readme import README, ROOT, Output, blocks, outputs, run, steady, with_output, with_table

FIRST = ("bash scripts/demo.sh", "bash scripts/test.sh")
"""The main job, and the tests: what a fresh clone needs first."""
NOT_RUN = {
    "bash scripts/demo.sh": "every submission runs it",
    "bash scripts/test.sh": "the same",
    "python3 -m venv ~/kstate && ~/kstate/bin/pip install '.[kafka]' && export PATH=~/kstate/bin:$PATH": "needs a "
    "registry; scripts/env.sh does the same, which every test needs",
    "pipx install '.[kafka]'": "installs for good, from a registry",
    "uv tool install '.[kafka]'": "the same",
    "pip wheel --no-deps -w dist/image . && docker build -t kstate .": "needs a container engine: "
    "tests/packaging/test_image.py runs the one, scripts/image-root.sh the steps of the other",
}
"""Commands of the blocks that only say how kstate is installed."""
TEXT = README.read_text(encoding="utf-8")


def test_readme_shows_the_output_of_its_commands() -> None:
    """But for times and sizes (VARIES). KSTATE_WRITE_DOCS=1 writes what they print now."""
    if os.environ.get("KSTATE_WRITE_DOCS"):
        README.write_text(with_output(README.read_text(encoding="utf-8")), encoding="utf-8")
    target = [*outputs(README.read_text(encoding="utf-8"))]
    assert len(target) >= 8
    for entry, output in zip(target, run(target), strict=True):
        content = replace(entry, first=None, last=None).as_text()
        assert steady(output.as_text()) == steady(content), f"{entry.command}: KSTATE_WRITE_DOCS=1 writes README again"


def test_the_table_of_commands() -> None:
    if os.environ.get("KSTATE_WRITE_DOCS"):
        README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    assert with_table(text) == text, "KSTATE_WRITE_DOCS=1 writes it again"


def test_every_block_is_of_a_kind_that_is_looked_at() -> None:
    assert set(re.findall(r"^```(\w+)", TEXT, flags=re.MULTILINE)) == {"console", "sh"}
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"^ {4}", prose, flags=re.MULTILINE), "an indented block"
    typed = [re.sub(r" +# .*", "", line) for block in blocks(TEXT, "sh") for line in block.splitlines()]
    assert sorted(typed) == sorted(NOT_RUN)


def test_errors_are_those_of_real_releases() -> None:
    """The errors that README quotes are those of real starts in docs/check.md, or of RocksDB in a log that a test reads."""
    real = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    for error in ("Column families not opened: ", "format_version: 6", "Metrics recorder is re-initialised"):
        assert error in TEXT and error in real, error


def test_it_is_short_and_begins_with_two_commands() -> None:
    """A fresh clone needs nothing before them, and every submission runs both."""
    assert len(TEXT.splitlines()) <= 180
    called = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    block = next(blocks(TEXT, "sh"))
    assert tuple(re.sub(r" +# .*", "", line) for line in block.splitlines()) == FIRST
    assert all(command in called for command in FIRST)
    assert TEXT.index(block) < TEXT.index("kstate ls") and TEXT.count("\n", 0, TEXT.index(block)) < 20


def test_no_path_is_the_default_of_an_application() -> None:
    """A command that is tried must not change what runs here: the default state.dir is a folder of the system's own."""
    assert "/tmp/kafka-streams" not in TEXT


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("0_0 count closed", "0_0 count open"),
        ("27.2 KiB 3", "27.2 KiB 4"),
        ("run 0001-migrate", "run 0002-migrate"),
        (" 0_0 latest-order 27 closed 6 4.3", " 0_0 latest-order 27 closed 6 4.2"),
        (" 0_0/visits 36 22 0:43 0.0", " 0_0/visits 36 22 0:44 0.0"),
    ],
)
def test_comparison_sees_differences(before: str, after: str) -> None:
    assert steady(before) != steady(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("kept 2026-11-23T02:49:47.481+00:00 27.2 KiB", "kept 2027-01-02T12:00:00.001+00:00 128.0 KiB"),
        ("8 of 8 slices, 9,316 bytes, 1,453 records/s, 0 s left", "8 of 8 slices, 11 bytes, 99 records/s, 12 s left"),
        (" 0_0/visits     36   0:43            0.0", " 0_0/visits   36   0:43    1.2"),
        (
            "global/customers  80  8  0  0  0.0  shop-global:0=30",
            "global/customers  80  8  0  0  1.1  shop-global:0=30",
        ),
    ],
)
def test_comparison_ignores_times_and_sizes(before: str, after: str) -> None:
    assert steady(before) == steady(after)


def test_a_long_output_loses_its_middle() -> None:
    output = Output("x", tuple("abcdef"), 2, 1)
    assert output.as_text() == "$ x\na\nb\n…\nf\n"
    assert replace(output, lines=("a", "b", "c")).as_text() == "$ x\na\nb\nc\n"
    assert replace(output, lines=("word " * 40,)).as_text().endswith("word…\n")
