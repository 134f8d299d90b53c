"""Each command has its manual page, with all of its options, that troff has nothing to say of."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.command_line import commands

from .man_pages import pages

PAGES = dict(pages())


def test_every_command_has_a_page_with_all_its_options() -> None:
    wrong = []
    for path, command in commands():
        page = PAGES[f"kstate-{path.replace(' ', '-')}.1"].replace("\\-", "-")
        wrong += [
            f"{path}: {name}"
            for parameter in command.params
            for name in parameter.opts
            if name.startswith("-") and name not in page
        ]
        assert "\n.SH NAME\n" in page and f"\n.B kstate {path}\n" in page, path
    assert not wrong
    replace = PAGES["kstate.1"].replace("\\-", "-")
    assert all(f".BR kstate-{path.split()[0]} (1)" in replace for path, _ in commands())
    assert "\n.SH EXIT STATUS\n" in replace


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_troff_has_nothing_to_say_of_them() -> None:
    """Not of one with a request that is none: a line of text that begins with a dot would be lost."""
    command = ["groff", "-man", "-ww", "-Tutf8", "-K", "utf8"]
    wrong = {}
    for name, text in PAGES.items():
        process = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        lines = [
            line
            for line in process.stderr.decode().splitlines()
            if "cannot adjust line" not in line and "break" not in line
        ]
        if process.returncode or lines:
            wrong[name] = lines
        assert b"KSTATE" in process.stdout
    assert not wrong
    process = subprocess.run(command, input=b".TH A 1\n.nosuchrequest\n", capture_output=True, check=False)
    assert process.stderr, "it would have said so"
