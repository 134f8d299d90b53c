"""Each command that `check` prints as a hint, run as printed on the directory that it is about, with a real dump.

A command that changes a directory runs with ``--dry-run``. A refusal means that the hint does not help its reader.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.option import GUARANTEE, WIPE_UNCLEAN
from tests.command_line import program
from tests.frozen import surroundings
from tests.frozen.running import reading_once, run
from tests.golden import expected, index, unpack

pytestmark = pytest.mark.rotating(6)

_COMMAND = re.compile(r"kstate [a-z-]+ .*")
_TWINS = {"4.3.1-kinds-eos-killed-open": "4.3.1-kinds-eos"}
"""A directory whose logs were not recorded: the one whose application had the same stores and logs."""
_TO_FILL_IN = re.compile(r"changelog = 1200000\b")
_REQUESTS: tuple[tuple[str, ...], ...] = ((), ("--guarantee", "at_least_once"), ("--dump", "DUMP"))


def _surroundings(name: str, folder: Path) -> Path:
    """Write a dump and a specification for a directory, and return the directory."""
    app = unpack(name, folder / "state")
    twin = _TWINS.get(name, name)
    other = app if twin == name else unpack(twin, folder / "twin")
    surroundings.make(twin, folder, run("ls", str(other), "--spec").out)
    spec = folder / "kstate.toml"
    text = _TO_FILL_IN.sub('changelog = "unlogged"', spec.read_text(encoding="utf-8"))
    spec.write_text(text.replace(other.name, app.name), encoding="utf-8")
    if twin != name:
        shutil.rmtree(folder / "dump")
        ends = {topic.replace(other.name, app.name): of for topic, of in expected(twin)["changelogEnds"].items()}
        surroundings.write_dump(folder / "dump", ends)
    return app


def _printed(name: str, app: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the code and the command of each different hint."""
    commands: dict[str, str] = {}
    for release in dict.fromkeys((index()[name]["release"], "4.2", "4.3")):
        for request in _REQUESTS:
            words = [str(folder / "dump") if word == "DUMP" else word for word in request]
            ended = run("check", str(app), "--for", release, *words, "-o", "json")
            for line in map(json.loads, ended.out.splitlines()):
                match = _COMMAND.search(line.get("hint") or "")
                if match is not None:
                    commands.setdefault(match[0], line["code"])
    for command, code in commands.items():
        yield code, command


def _words(command: str, folder: Path) -> list[str]:
    """Return the words of a printed command with values for its placeholders, as a dry run if it has one."""
    values = {"DUMP": str(folder / "dump"), "DIR": str(folder / "exported"), "HOST:PORT": "localhost:1"}
    name, *rest = [values.get(word, word) for word in shlex.split(command)[1:]]
    if name == "restore":
        # Not the specification that is inferred: the golden directories lack some retentions. The rows of these dumps
        # are made up.
        rest += ["--spec", str(folder / "kstate.toml"), "--engine", "local", "--ignore", "*-kv-memory-changelog",
                 "--no-verify-dump"]  # fmt: skip
    parameters = program().commands[name].params
    if any("--dry-run" in parameter.opts for parameter in parameters):
        rest.append("--dry-run")
    return [name, *rest]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", index())
def test_commands_of_hints_are_accepted(name: str, tmp_path: Path) -> None:
    with reading_once():
        app = _surroundings(name, tmp_path)
        refusals = []
        for code, command in _printed(name, app, tmp_path):
            shutil.rmtree(tmp_path / "exported", ignore_errors=True)
            ended = run(*_words(command, tmp_path))
            # After an unclean shutdown the user must choose, and only the refusal names the tasks that would be removed.
            is_choice = {WIPE_UNCLEAN, GUARANTEE} <= {*re.findall("--[a-z-]+", ended.err)} - {*command.split()}
            # 1 is success with warnings, 3 a finding of check.
            if ended.status not in (0, 1, 3) and not is_choice:
                refusals.append(f"{code}: {command}\n{ended.err}")
    assert not refusals, "\n".join(refusals)
