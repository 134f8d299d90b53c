"""The release that a command is about, read from the application's jar; and what unattended use does with unclean tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden import unpack
from tests.jars import archive, fat_jar, jar, write_file

from .support import data_rows, kstate, tree_hash

pytestmark = pytest.mark.rotating(6)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def runs(app: Path) -> list[str]:
    """What was done with the directory."""
    return [row["run"] for row in kstate("status", app, "-o", "json").rows if row["type"] == "run"]


def where_offsets_are(app: Path) -> set[str]:
    """In the stores, or in files."""
    return {row["offsets_in"] for row in kstate("ls", app, "-o", "json").rows if "offsets_in" in row}


@pytest.mark.parametrize("outputs", [jar, fat_jar])
def test_down_nothing_up_and_back(tmp_path: Path, outputs: Any) -> None:
    """What an image needs, again and again: no run is added where nothing is to be done."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    older, newer = (write_file(tmp_path / "jars" / v / "app.jar", outputs(v)) for v in ("4.2.1", "8.3.0-ccs"))
    rows = data_rows(app)
    for path, release, moves in ((newer, "4.3", 0), (older, "4.2", 1), (older, "4.2", 0), (newer.parent, "4.3", 1)):
        before = tree_hash(app)
        result = kstate("migrate", app, "--to-jar", path, "--warnings-ok", "--workers", "1")
        assert f"(release {release}" in result.err
        assert (tree_hash(app) != before) == bool(moves)
        assert bool(moves) == (f"migrated the directory to {release}" in result.out + result.err)
        assert bool(moves) != (f"is already in the format of {release}" in result.out + result.err)
        assert where_offsets_are(app) == {"column-family" if release == "4.3" else "checkpoint"}
    assert len(runs(app)) == 2
    assert data_rows(app) == rows


def test_jar_plans_like_the_release_that_it_contains(tmp_path: Path) -> None:
    """The same plan, and the same words of check and restore, as with the release named."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    path = write_file(tmp_path / "kafka-streams-3.9.1.jar", jar("3.9.1"))
    (tmp_path / "lost").mkdir()
    lost = (
        "restore",
        tmp_path / "lost" / "orders",
        "--from-changelog",
        EXAMPLES / "dump",
        "--spec",
        EXAMPLES / "dump.toml",
    )
    for words, option in ((("migrate", app), "--to"), (("check", app), "--for"), (lost, "--for")):
        more = {"check": (), "migrate": ("--dry-run",), "restore": ("--dry-run", "--no-verify-dump")}[str(words[0])]
        kstates = [
            kstate(*words, *arguments, *more, "-o", "json", status=None)
            for arguments in ((option, "3.9"), (option, "cp-7.9"), (f"{option}-jar", path))
        ]
        assert kstates[0].rows
        assert [(entry.status, entry.rows, entry.err) for entry in kstates] == [
            (kstates[0].status, kstates[0].rows, kstates[0].err)
        ] * 3


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("version", "release"),
    [("3.7.0.redhat-00007", "3.7"), ("3.4.1.7.3.1.0-197", "3.4"), ("4.2.0-SNAPSHOT", None), ("4.3.0-rc1", None)],
)
def test_builds_of_vendors(tmp_path: Path, version: str, release: str | None) -> None:
    """A note says what a build is treated as, or the refusal names the option that says it; that option works."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    path = write_file(tmp_path / "lib" / "main" / f"org.apache.kafka.kafka-streams-{version}.jar", jar(version))
    for command, option, more in (("migrate", "--to", "--dry-run"), ("check", "--for", "--quiet")):
        for text in ((f"{option}-jar", path.parent), (option, version)):
            result = kstate(command, app, *text, *(() if more == "--quiet" else (more,)), status=None)
            if release is not None:
                assert result.status in (0, 1, 3), result.err
                assert f"note: {version} is a vendor's build" in result.err
                assert f"Apache Kafka {release}" in result.err
                continue
            assert result.status == (4 if "jar" in text[0] else 2)
            hint = f"{option} {version[:3]}"
            assert hint in result.err
            assert kstate(command, app, *hint.split(), *(() if more == "--quiet" else (more,)), status=None).status != 2


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("texts", "status", "messages"),
    [
        ((), 2, "Missing option"),
        (("4.2", "good.jar"), 2, "cannot be used together"),
        ((None, "missing.jar"), 2, "missing.jar"),
        ((None, "none.jar"), 4, "not a readable jar"),
        ((None, "later.jar"), 4, "5.9.1"),
        ((None, "."), 4, "several releases"),
    ],
)
def test_no_release(tmp_path: Path, texts: tuple[str | None, ...], status: int, messages: str) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    folder = tmp_path / "jars"
    for name, data in (("good", jar("4.2.1")), ("none", b"none"), ("later", jar("5.9.1"))):
        write_file(folder / f"{name}.jar", data)
    write_file(folder / "older.jar", jar("3.9.1"))
    before = tree_hash(tmp_path)
    for command, option in (("migrate", "--to"), ("check", "--for"), ("restore", "--for")):
        names, jar_name = (*texts, None, None)[:2]
        words = [*([option, names] if names else []), *([f"{option}-jar", folder / jar_name] if jar_name else [])]
        more = ("--from-changelog", EXAMPLES / "dump") if command == "restore" else ()
        result = kstate(command, app, *words, *more, status=status)
        assert messages in result.err
        assert "Traceback" not in result.err
    assert tree_hash(tmp_path) == before


def test_names_within_a_jar_are_printed_as_they_are_nowhere(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    name = "BOOT-INF/lib/\x1b[2J\n$(id).kafka-streams-4.2.1.jar"
    path = write_file(tmp_path / "app.jar", archive({name: jar("4.2.1")}))
    result = kstate("migrate", app, "--to-jar", path, "--dry-run", "--warnings-ok")
    assert "\x1b" not in result.out + result.err
    assert [line for line in result.err.splitlines() if "app.jar!" in line and "release 4.2" in line]


@pytest.mark.parametrize("name", ["4.3.1-kinds-eos-killed-open", "4.2.1-kinds-eos-killed-second"])
def test_unclean(tmp_path: Path, name: str) -> None:
    """Refused, or wiped as Streams would; where nothing moves, neither: Streams does what it does."""
    app = unpack(name, tmp_path)
    own, other = ("4.3.1", "4.2.1") if name.startswith("4.3") else ("4.2.1", "4.3.1")
    jars = {version: write_file(tmp_path / "jars" / f"{version}.jar", jar(version)) for version in (own, other)}
    before = tree_hash(app)
    for unclean in ("refuse", "wipe"):
        kstate("migrate", app, "--to-jar", jars[own], "--unclean", unclean, "--warnings-ok")
        assert tree_hash(app) == before
    for words in ((), ("--unclean", "refuse")):
        assert "--wipe-unclean" in kstate("migrate", app, "--to-jar", jars[other], *words, status=4).err
    kstate("migrate", app, "--to-jar", jars[other], "--unclean", "refuse", "--wipe-unclean", status=2)
    assert tree_hash(app) == before
    plans = [
        kstate("migrate", app, "--to-jar", jars[other], *way, "--dry-run", "-o", "json", status=1).rows
        for way in (("--unclean", "wipe"), ("--wipe-unclean",))
    ]
    assert plans[0] == plans[1]
    assert any(row.get("action") == "leave out" for row in plans[0])
    kstate("migrate", app, "--to-jar", jars[other], "--unclean", "wipe", "--warnings-ok")
    kstate("undo", app)
    assert data_rows(app)


def init_container(app: Path, jars: Path, *, status: int = 0) -> str:
    """The script of examples/kubernetes/migrate.yaml, with the kstate that is tested; returns what it told."""
    (document,) = yaml.safe_load_all((EXAMPLES / "kubernetes" / "migrate.yaml").read_text(encoding="utf-8"))
    (script,) = document["spec"]["template"]["spec"]["initContainers"][1]["args"]
    environment = {
        **os.environ,
        "APP": str(app),
        "JARS": str(jars),
        "HOSTNAME": "my-app-2",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    result = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_the_init_container(tmp_path: Path) -> None:
    """A new volume, an update, a restart, a rollout that is undone; a pod that was killed; jars that nobody understands."""
    older, newer, none = (tmp_path / "jars" / name for name in ("4.2.1", "4.3.1", "none"))
    write_file(older / "kafka-streams-4.2.1.jar", jar("4.2.1"))
    write_file(newer / "app.jar", fat_jar("4.3.1"))
    none.mkdir()
    init_container(tmp_path / "volume" / "my-app", older)
    assert not (tmp_path / "volume").exists()
    app = unpack("4.2.1-sparse-eos", tmp_path / "state")
    rows = data_rows(app)
    for jars, target in (
        (newer, "migrated the directory to 4.3"),
        (newer, "is already in the format of 4.3"),
        (older, "migrated the directory to 4.2"),
    ):
        assert target in init_container(app, jars)
    assert len(runs(app)) == 2
    assert data_rows(app) == rows
    init_container(app, none, status=4)
    killed = unpack("4.2.1-kinds-eos-killed-second", tmp_path / "killed")
    assert "migrated the directory to 4.3" in init_container(killed, newer)
    assert "is already in the format of 4.3" in init_container(killed, newer)
