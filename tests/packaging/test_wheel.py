"""The wheel is all that a user gets: what is in it, what is not, and that it does its work where nothing else is."""

from __future__ import annotations

import email
import os
import re
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli import __version__
from kstate_cli.cli.registry import COMMANDS
from kstate_cli.texts import EXAMPLES
from tests.readme import outputs, run, steady

from . import man_pages
from .built import ROOT, Built, Installed, build, clone, install, tracked_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LINK = "kstate_cli/examples"
"""In the repository a link; what it leads to in the wheel."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    clone(folder / "source")
    return build(folder / "source", folder / "out")


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(built.wheel, tmp_path_factory.mktemp("installed"))


def _package() -> set[str]:
    """What of the repository belongs into the package."""
    names = {name for name in tracked_files() if name.startswith("kstate_cli/") and name != LINK}
    return names | {f"kstate_cli/{name}" for name in tracked_files() if name.startswith(f"{EXAMPLES}/")}


def _documents() -> set[str]:
    return {
        name
        for name in tracked_files()
        if re.fullmatch(r"(README|CHANGELOG|CONTRIBUTING)\.md|docs/([a-z][^/]*/)*\w[^/]*\.(md|svg)", name)
    }


def test_files_of_the_wheel(built: Built) -> None:
    stem = f"kstate-{__version__}"
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        contents = {name: wheel.read(name) for name in names}
        scripts = [entry.filename for entry in wheel.infolist() if entry.external_attr >> 16 & 0o111]
    package = {name for name in names if name.startswith("kstate_cli/")}
    assert package == _package()
    assert {"kstate_cli/py.typed", f"kstate_cli/{EXAMPLES}/orders.tar.xz", "kstate_cli/schemas/lines.json"} <= package
    assert f"kstate_cli/{EXAMPLES}/dump/_manifest.json" in package
    data = {name for name in names if name.startswith(f"{stem}.data/")}
    share = f"{stem}.data/data/share"
    assert data == {f"{share}/doc/kstate/{name}" for name in _documents()} | {
        f"{share}/man/man1/{name}" for name, _ in man_pages.pages()
    }
    rest = names - package - data
    assert {name.removeprefix(f"{stem}.dist-info/") for name in rest} == {
        *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"),
    }
    assert scripts == [f"{LINK}/spark-submit.sh"]
    # Nothing of the machine that built it.
    places = {str(ROOT), str(Path.home()), str(built.wheel.parent.parent)} - {"/"}
    assert not [(name, place) for name, content in contents.items() for place in places if place.encode() in content]
    for name in package:
        source = ROOT / (name if not name.startswith(f"{LINK}/") else name.removeprefix("kstate_cli/"))
        assert contents[name] == source.read_bytes(), name


def test_metadata_of_the_wheel(built: Built) -> None:
    stem = f"kstate-{__version__}.dist-info"
    with zipfile.ZipFile(built.wheel) as wheel:
        metadata = email.message_from_bytes(wheel.read(f"{stem}/METADATA"))
        scripts = wheel.read(f"{stem}/entry_points.txt").decode()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"]) == (
        "kstate",
        __version__,
        "Apache-2.0",
    )
    assert metadata["Requires-Python"] == project["requires-python"]
    dependencies = [entry for entry in metadata.get_all("Requires-Dist", []) if "extra ==" not in entry]
    assert [re.split(r"[<>=; ]", entry)[0] for entry in dependencies] == [
        re.split(r"[<>=; ]", dependency)[0] for dependency in project["dependencies"]
    ]
    assert "kstate = kstate_cli.cli.start:main" in scripts
    payload = metadata.get_payload(decode=True)
    assert isinstance(payload, bytes) and payload.strip() == (ROOT / "README.md").read_bytes().strip()
    assert built.wheel.name == f"kstate-{__version__}-py3-none-any.whl"


def test_files_of_the_sdist(built: Built) -> None:
    """What the wheel is built from, and no test: golden directories are many times as large as all else."""
    with tarfile.open(built.sdist) as sdist:
        names = {getmember.name.partition("/")[2] for getmember in sdist.getmembers() if getmember.isfile()}
        assert not [
            getmember.name for getmember in sdist.getmembers() if not getmember.isfile() and not getmember.isdir()
        ]
    assert names >= _package() | _documents() | {"pyproject.toml", "LICENSE"}
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]
    assert built.sdist.stat().st_size < 2 << 20 and built.wheel.stat().st_size < 2 << 20


@pytest.mark.rotating(3, "installations")
def test_readme_is_followed_word_for_word(installed: Installed) -> None:
    """In an empty directory, with the wheel and nothing of the repository."""
    target = [*outputs((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert {element.command.split()[0] for element in target} >= {"kstate", "mkdir", "rm"}
    for entry, output in zip(target, run(target, installed.environment / "bin"), strict=True):
        content = replace(entry, first=None, last=None).as_text()
        assert steady(output.as_text()) == steady(content), entry.command


@pytest.mark.rotating(3, "installations")
def test_it_does_its_work_where_nothing_else_is(installed: Installed) -> None:
    """From an empty directory: the list, where it is, the examples, one of them used, and the demo."""
    parts = dict(line.split(": ", 1) for line in installed("--version", "--verbose").stdout.splitlines()[1:])
    assert Path(parts["installed in"]).is_relative_to(installed.environment), parts
    pages = Path(parts["documentation"])
    assert pages.is_relative_to(installed.environment)
    for page in (name for name in _documents() if name.startswith("docs/")):
        assert (pages / page).is_file(), page
    assert all(name in installed("--help").stdout for name in COMMANDS)
    installed("examples", "--out", "examples")
    assert os.listdir(installed.folder) == ["examples"]
    texts = ("--from-changelog", "examples/dump", "--spec", "examples/dump.toml", "--for", "4.3", "--dry-run")
    assert "orders" in installed("restore", "orders", *texts).stdout
    assert os.listdir(installed.folder) == ["examples"]
    assert "undid run 0001-migrate" in installed("demo").stderr
