"""The Dockerfile, as far as it can be looked at without an engine: `scripts/image-root.sh` runs its steps in a plain Debian."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest

from .built import ROOT, clone
from .lock import LOCK, pins
from .sbom import without_extras

STEPS = ROOT / "scripts" / "image-steps.sh"
LINES = [line for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]


def _stages() -> dict[str, list[str]]:
    stages: dict[str, list[str]] = {}
    for line in LINES:
        match = re.fullmatch(r"FROM \$BASE AS (\S+)", line)
        if match:
            stages[match[1]] = []
        elif stages:
            stages[[*stages][-1]].append(line)
    return stages


def test_dockerfile_runs_only_steps_of_the_script() -> None:
    """So that what was tried without an engine is what an engine does."""
    runs = [line for line in LINES if line.startswith("RUN ")]
    steps = [re.fullmatch(r"RUN sh /image-steps\.sh ((build|run|warm) (slim|java)).*", line) for line in runs]
    assert [step and step[1] for step in steps] == ["build slim", "build java", "run java", "warm java", "run slim"]
    matches = re.findall(r'"(build|run|warm) (slim|java)"', STEPS.read_text(encoding="utf-8"))
    assert {step[1] for step in steps if step} == {" ".join(entry) for entry in matches}


def test_stages() -> None:
    stages = _stages()
    assert [*stages] == ["build-slim", "build-java", "java", "slim"], "the last one is what is built by default"
    for variant in ("slim", "java"):
        last = stages[variant]
        assert f"COPY --from=build-{variant} /opt/kstate /opt/kstate" in last
        assert "USER 10001:10001" in last and 'ENTRYPOINT ["kstate"]' in last
        assert not [line for line in last if line.startswith("COPY") and "wheel" in line]


def test_build_context_has_only_the_files_that_are_copied() -> None:
    first, *permissions = [
        line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"
    ]
    assert first == "*" and all(line.startswith("!") for line in permissions)
    copied = {
        source for line in LINES if line.startswith("COPY ") and "--from" not in line for source in line.split()[1:-1]
    }
    for name in ("scripts/image-steps.sh", "requirements.lock", "dist/0.1.0/kstate-0.1.0-py3-none-any.whl"):
        assert any(fnmatch(name, line.removeprefix("!")) for line in permissions)
        assert any(fnmatch(name, pattern) for pattern in copied)
    assert len(copied) == len(permissions)


def test_documented_command_builds_the_copied_wheel(tmp_path: Path) -> None:
    """README, the page and the Dockerfile say the same of the wheel; it is run as it stands, without the registry."""
    pages = ("README.md", "docs/how-to/container.md", "Dockerfile")
    lines = [re.findall(r"pip wheel [^&#\n]*", (ROOT / name).read_text(encoding="utf-8")) for name in pages]
    (text,) = {entry.strip() for line in lines for entry in line}
    assert all(lines)
    clone(tmp_path)
    words = [sys.executable, "-m", *shlex.split(text), "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    copied = next(line.split()[1] for line in LINES if line.startswith("COPY dist/"))
    assert len([*tmp_path.glob(copied)]) == 1


def test_plain_root_gets_the_mounts_of_a_container_engine() -> None:
    """Before a step runs in it: without /proc no Java is installed, without /etc/hosts Spark finds no localhost."""
    script = (ROOT / "scripts" / "image-root.sh").read_text(encoding="utf-8")
    lent = script[script.index("lend() {") : script.index("inside() {")]
    for text in ('mount -t proc proc "$1/proc"', '"$1/etc/hosts"', '"$1/etc/resolv.conf"'):
        assert text in lent
    for root in ("build", "image"):
        assert script.index(f'lend "$work/{root}"') < script.index(f'inside "$work/{root}"')


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the requirements of kstate alone."""
    path = tmp_path_factory.mktemp("wheel") / "kstate-0.1.0-py3-none-any.whl"
    lines = "".join(f"Requires-Dist: {text}\n" for text in metadata.distribution("kstate").requires or [])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("kstate-0.1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: kstate\n{lines}")
    return path


def _pins(variant: str, wheel: Path, lock: Path) -> subprocess.CompletedProcess[str]:
    words = ["sh", str(STEPS), "pins", variant, str(wheel), str(lock)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_image_installs_the_pinned_files(wheel: Path, tmp_path: Path) -> None:
    """pip compares each file with the hash in the lock; Spark is in one of the images only."""
    names = {}
    for variant in ("slim", "java"):
        ended = _pins(variant, wheel, LOCK)
        assert ended.returncode == 0, ended.stderr
        names[variant] = pins(ended.stdout).keys()
    assert names["java"] == without_extras(metadata.distribution("kstate").requires or [])
    assert names["java"] - names["slim"] == {"pyspark", "py4j"}
    # A package that the wheel needs and the lock lacks.
    lock = tmp_path / "requirements.lock"
    lock.write_text("".join(line for line in LOCK.open() if not line.startswith("rich==")))
    ended = _pins("slim", wheel, lock)
    assert ended.returncode != 0 and "requirements.lock has no pin of rich" in ended.stderr
    # The hashes are of the files for another processor.
    lock.write_text(LOCK.read_text().replace(platform.machine(), "s390x", 1))
    ended = _pins("slim", wheel, lock)
    assert "only versions are pinned" in ended.stderr
    assert ended.stdout.splitlines() and all(
        re.fullmatch(r"[a-z0-9-]+==\S+", line) for line in ended.stdout.splitlines()
    )


def test_the_base_image_is_pinned_by_its_newest_digest(tmp_path: Path) -> None:
    """docker is replaced: there may be no engine here, and no network."""
    (tmp_path / "scripts").mkdir()
    for name in ("Dockerfile", "scripts/base-image.sh"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    digest = "sha256:" + "7" * 64
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$1" = image ] && echo "debian@{digest}"\nexit 0\n')
    docker.chmod(0o755)
    for _ in range(2):
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        subprocess.run(["bash", str(tmp_path / "scripts" / "base-image.sh")], check=True, env=environment)
        text = (tmp_path / "Dockerfile").read_text()
        assert f"\nARG BASE=debian:bookworm-slim@{digest}\n" in text and text.count("ARG BASE") == 1
    base = [line for line in LINES if line.startswith("ARG ")]
    assert len(base) == 1 and re.fullmatch(r"ARG BASE=debian:bookworm-slim(@sha256:[0-9a-f]{64})?", base[0])


@pytest.mark.parametrize("words", [["build"], ["run", "fat"], ["build", "slim; id", "x"]])
def test_refuses_an_unknown_step(words: list[str]) -> None:
    process = subprocess.run(["sh", str(STEPS), *words], capture_output=True, text=True, check=False)
    assert process.returncode != 0 and process.stdout == ""
