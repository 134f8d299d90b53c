"""The release script: from what is committed alone, and refused for each reason before anything is made."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from kstate_cli import __version__

from .built import clone
from .lock import LOCK, pins
from .sbom import canonical, needed_by

CHANGES = f"## [{__version__}] - 2026-01-31\n\n- What there is.\n\n## [0.0.1]\n"


def _git(folder: Path, *words: str) -> str:
    texts = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *texts, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A commit of what is here, with a section in its changelog; and the environment of these tests."""
    folder = tmp_path_factory.mktemp("release") / "repository"
    clone(folder, tests=False)
    changelog = folder / "CHANGELOG.md"
    assert f"## [{__version__}] - " in changelog.read_text(encoding="utf-8"), "the next release has no dated section"
    changelog.write_text(f"# Changelog\n\n{CHANGES}", encoding="utf-8")
    # Pins of the versions that are installed here: a later environment may have others than the committed file.
    needed = needed_by(metadata.distribution("kstate").requires or [])
    lines = [f"{name}=={version} --hash=sha256:{'0' * 64}\n" for name, version in needed.items()]
    (folder / "requirements.lock").write_text("".join(lines))
    (folder / ".venv").mkdir()
    for path in Path(sys.prefix).iterdir():
        (folder / ".venv" / path.name).symlink_to(path)
    with (folder / "pyproject.toml").open() as project:
        checksum = subprocess.run(["cksum"], stdin=project, capture_output=True, text=True, check=True).stdout
    (folder / ".venv" / f".installed-for-{checksum.split()[0]}").touch(exist_ok=True)
    _git(folder, "init", "-q")
    _git(folder, "config", "user.name", "t")
    _git(folder, "config", "user.email", "t@example.com")
    _commit(folder)
    return folder


def _commit(folder: Path) -> None:
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "all")


def _release(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "scripts/release.sh", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def _dirty(folder: Path) -> None:
    (folder / "new").touch()


def _unwritten(folder: Path) -> None:
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text(encoding="utf-8").replace("- What there is.\n", ""), encoding="utf-8")
    _commit(folder)


def _remove_versions(folder: Path) -> None:
    (folder / "kstate_cli" / "__init__.py").write_text('__version__ = "7.8.9"\n')
    _commit(folder)


def _unpin(folder: Path) -> None:
    lock = folder / "requirements.lock"
    lock.write_text("".join(line for line in lock.open() if not line.startswith("rocksdict==")))
    _commit(folder)


def _tag(folder: Path) -> None:
    _git(folder, "tag", f"v{__version__}")


WRONG = {
    _dirty: "changes that are not committed",
    _unwritten: "CHANGELOG.md has no section",
    _remove_versions: "says 7.8.9",
    _unpin: "requirements.lock does not pin the installed dependencies",
    _tag: f"a tag v{__version__} already",
}


def test_refuses_a_repository_that_cannot_be_released(repository: Path) -> None:
    good = _git(repository, "rev-parse", "HEAD").strip()
    for wrong, text in WRONG.items():
        wrong(repository)
        before = _git(repository, "tag")
        release = _release(repository, __version__)
        assert (release.returncode, release.stdout) == (4, ""), release
        assert text in release.stderr
        assert _git(repository, "tag") == before and not (repository / "dist").exists()
        _git(repository, "reset", "-q", "--hard", good)
        _git(repository, "clean", "-fdq")
    _git(repository, "tag", "-d", f"v{__version__}")


@pytest.mark.parametrize(
    "words", [(), ("1",), ("v0.1.0",), ("0.1.0", "--push"), ("0.1.0", "--dry-run", "x"), ("$(id)",)]
)
def test_refuses_an_invalid_version(words: tuple[str, ...], repository: Path) -> None:
    release = _release(repository, *words)
    assert release.returncode == 2 and "which release?" in release.stderr


@pytest.mark.in_full("tests/packaging/test_wheel.py::test_files_of_the_wheel")
def test_a_release(repository: Path) -> None:
    (repository / "examples" / "beside.tar.xz").write_text("ignored by git, and by the release")
    with (repository / ".git" / "info" / "exclude").open("a") as excluded:
        excluded.write("beside.tar.xz\n")
    release = _release(repository, __version__)
    assert release.returncode == 0, release.stdout + release.stderr
    assert _git(repository, "tag").split() == [f"v{__version__}"]
    out = repository / "dist" / __version__
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    ends = ("-py3-none-any.whl", ".tar.gz", ".cdx.json", ".requirements.lock")
    wheel, sdist, bill, lock = (f"kstate-{__version__}{end}" for end in ends)
    assert first.keys() == {wheel, sdist, bill, lock, "NOTES.md", "SHA256SUMS"}
    sums = dict(line.split("  ")[::-1] for line in first["SHA256SUMS"].decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in first.items() if name != "SHA256SUMS"}
    assert first["NOTES.md"].decode().strip() == "- What there is."
    assert b"beside.tar.xz" not in first[wheel] and b"kstate-migrate.1" in first[wheel]
    document = json.loads(first[bill])
    assert (document["bomFormat"], document["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    assert document["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": sums[wheel]}]
    names = {component["name"].lower() for component in document["components"]}
    assert {"rocksdict", "pyarrow", "pyspark", "py4j", "typer"} <= names and not {"pytest", "mypy", "ruff"} & names
    for component in document["components"]:
        assert component["version"] and component["licenses"], component
        assert component["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}], component
    optional = {component["name"] for component in document["components"] if component["scope"] == "optional"}
    assert {"confluent-kafka", "boto3", "deltalake", "pyiceberg"} <= optional and "rocksdict" not in optional
    refs = {dependency["ref"]: dependency["dependsOn"] for dependency in document["dependencies"]}
    assert {entry for below in refs.values() for entry in below} == {
        component["bom-ref"] for component in document["components"]
    }
    assert _git(repository, "status", "--porcelain") == ""
    again = _release(repository, __version__, "--dry-run")
    assert again.returncode == 4 and "tag" in again.stderr


def test_pins_are_complete_and_name_no_place() -> None:
    """The versions may be older than those of this environment: only the names are compared."""
    text = LOCK.read_text(encoding="utf-8")
    assert "://" not in text and "index" not in text
    pinned = pins(text)
    own = [Requirement(line) for line in metadata.distribution("kstate").requires or []]
    for requirement in own:
        if (
            requirement.marker is None
            or requirement.marker.evaluate({"extra": ""})
            or "extra" in str(requirement.marker)
        ):
            version, digest = pinned[canonical(requirement.name)]
            assert requirement.specifier.contains(version) and len(digest) == 64, requirement
