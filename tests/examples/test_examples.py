"""The examples: every command line is one that kstate takes, every file can be read, and what is simple enough is run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main

from kstate_cli.cli.app import app
from kstate_cli.cli.options.restore import bytes_of
from kstate_cli.cli.options.shared import part_of
from kstate_cli.cli.registry import other_words
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.manifest import NAME, Manifest, Reading, parse
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.reader import digest_at
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import release
from kstate_cli.specification.toml_file import read_spec
from kstate_cli.statedir.names import PROCESS_FILE

from ..directories.support import data_rows, kstate, tree_hash
from ..golden import FOLDER as GOLDEN

pytestmark = pytest.mark.rotating(2)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DUMP = EXAMPLES / "dump"
TEXTS = sorted(path for kind in ("md", "sh", "yaml") for path in EXAMPLES.rglob(f"*.{kind}"))
README = ROOT / "README.md"
OTHERS = ("|", "||", "&&", ";", ">", "2>")


def _commands(path: Path) -> Iterator[list[str]]:
    """The arguments of every kstate command line of a file: in code blocks of Markdown, those of README behind ``$``;
    anywhere in the others.

    Variables may be set before it.
    """
    text = re.sub(r"\\\n[ #]*", " ", path.read_text(encoding="utf-8"))
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"^ {4}.*$|(?<=^\$ ).*$", text, flags=re.MULTILINE))
    for match in re.findall(r"^ +- kstate\n((?: +- .*\n)+)", text, flags=re.MULTILINE):
        yield [line.strip().removeprefix("- ") for line in match.splitlines()]
    for line in re.findall(
        r"(?:^[ #]*|&& )(?:[A-Z_]+=\S+ )*kstate +([a-z-]+(?: [a-z-]+)? +[\"/].*)$", text, flags=re.MULTILINE
    ):
        words = shlex.split(line, comments=True)
        yield words[: min((words.index(word) for word in OTHERS if word in words), default=len(words))]
    for line in re.findall(r"^[ #]*examples/spark-submit\.sh +(/.*)$", text, flags=re.MULTILINE):
        yield ["restore", *shlex.split(line)]


def _lines() -> Iterator[Any]:
    lines = [(path, words) for path in (README, *TEXTS) for words in _commands(path)]
    crontab = EXAMPLES / "crontab"
    for line in crontab.read_text(encoding="utf-8").splitlines():
        if " kstate " in line and not line.startswith("#"):
            words = shlex.split(line.partition(" kstate ")[2].replace("$(date +\\%u)", "3"))
            lines.append((crontab, [word for word in words if not word.startswith(">")]))
    for path, words in lines:
        yield pytest.param(words, id=f"{path.relative_to(ROOT)}: {' '.join(words)[:60]}")


LINES = list(_lines())


@pytest.mark.parametrize("words", LINES)
def test_command_line(words: list[str]) -> None:
    """kstate takes it: options that there are, values that fit."""
    words = [re.sub(r"^\$share/\$REPLICAS$|(?<==)SHARE/3$", "2/3", word).replace("$APP", "/app") for word in words]
    words = other_words(words)
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    if words[0] == "query":
        command, words = command.commands[words[1]], words[1:]
    values = command.make_context(words[0], words[1:]).params
    for name in ("release_name", "to"):
        if values.get(name) is not None:
            release(values[name])
    if words[0] == "restore":
        if values["share"] is not None:
            part_of("--share", values["share"], "")
        if values["memory"] is not None:
            assert bytes_of(values["memory"]) > 1_000_000_000


def test_all_places_have_command_lines() -> None:
    """The search above finds them: in text, in a script, in a list of YAML, in a line of a shell in YAML."""
    of = [str(parameter.id) for parameter in LINES]
    for name in ("README.md: restore", "README.md: query range", "examples/README.md: query range", "walkthrough.md: restore", "spark-submit.sh: restore", "crontab: clean",
                 "statefulset.yaml: restore $APP", "job.yaml: restore /var"):  # fmt: skip
        assert any(name in entry for entry in of), (name, of)


def test_readme() -> None:
    """What it names is there, and the command that it shows does something on a fresh machine."""
    for path in (README, *EXAMPLES.rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), (path, target)
    for target in re.findall(r"\bexamples/[\w./-]*\w", README.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


@pytest.mark.rotating(2)
def test_readme_restores(tmp_path: Path) -> None:
    (line,) = {" ".join(words) for words in _commands(README) if words[0] == "restore"}
    words = ["/".join([str(tmp_path), "orders"]) if word.endswith("/orders") else word for word in line.split()]
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
    result = kstate(*words, "--dry-run", "-o", "json")
    steps = [row["path"] for row in result.rows if row["type"] == "step"]
    assert len(steps) == 7
    assert not any(tmp_path.iterdir())


def test_specifications() -> None:
    for name in ("dump.toml", "kstate.toml"):
        assert read_spec(EXAMPLES / name).stores


def test_yaml() -> None:
    """It is YAML, of the kinds that are meant; the shell of the init container is a shell's."""
    import yaml

    documents = {path.name: list(yaml.safe_load_all(path.read_text())) for path in EXAMPLES.rglob("*.yaml")}
    assert [document["kind"] for document in documents["statefulset.yaml"]] == ["ConfigMap", "StatefulSet"]
    (job,) = documents["job.yaml"]
    assert job["kind"] == "Job"
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][:2] == ["kstate", "restore"]
    stateful_set = documents["statefulset.yaml"][1]["spec"]
    # Pods that start one by one: the first gets every task, and restores what the others' volumes would have.
    assert stateful_set["podManagementPolicy"] == "Parallel"
    init = stateful_set["template"]["spec"]["initContainers"][0]
    _init_container(init["args"][0])
    (snapshot,) = documents["restore-snapshot.yaml"]
    _init_container(snapshot["spec"]["template"]["spec"]["initContainers"][0]["args"][0])


def _init_container(script: str) -> None:
    """Run with a kstate that only ends as it is told: what the init container then does."""
    for lost, messages, ends in (
        (True, 0, 0),
        (True, 1, 0),
        (True, 4, 0),
        (True, 6, 0),
        (True, 2, 2),
        (True, 7, 7),
        (False, 7, 0),
    ):
        stub = f'kstate() {{ case "$*" in *"--share 3/3 --barrier /meet "*) return {messages};; esac; return 99; }}\n'
        pod = {"HOSTNAME": "my-app-2", "REPLICAS": "3", "BARRIER": "/meet"}
        environment = {**os.environ, **pod, "APP": str(ROOT / "nothing")}
        setup = "" if lost else 'APP=$(mktemp -d); mkdir "$APP/0_1"; trap \'rm -r "$APP"\' EXIT\n'
        process = subprocess.run(["bash", "-c", setup + stub + script], env=environment, check=False, timeout=300)
        assert process.returncode == ends, (lost, messages)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A real directory of two tasks; examples/dump is a dump of its changelogs."""
    with tarfile.open(EXAMPLES / "orders.tar.xz") as tar:
        tar.extractall(tmp_path / "whole", filter="data")
    (app,) = (tmp_path / "whole").rglob("orders")
    return app


def _manifest(name: str) -> dict[str, Any]:
    """The workload of a manifest, as it is for the third pod."""
    import yaml

    text = (EXAMPLES / "kubernetes" / name).read_text(encoding="utf-8").replace("ORDINAL", "2")
    document = list(yaml.safe_load_all(text))[-1]
    assert isinstance(document, dict)
    return document


def _command_of(name: str) -> list[str]:
    (container,) = _manifest(name)["spec"]["template"]["spec"]["containers"]
    return [*container["command"], *container.get("args", ())]


def _here(words: Sequence[str], app: Path, *, fleet: Path | None = None) -> list[str]:
    """Words of a manifest with places of this host for those of a pod, and sorting here instead of on Spark."""
    here = {"/var/lib/kafka-streams/my-app": str(app), "s3://backups/my-app/latest": str(DUMP),
            "/etc/kstate/kstate.toml": str(EXAMPLES / "dump.toml"), "/etc/fleet": str(fleet)}  # fmt: skip
    for theirs, ours in here.items():
        words = [word.replace(theirs, ours) for word in words]
    return [word for word in words if not word.startswith(("--master", "--memory", "--wait"))]


def _in_the_path() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _tasks(app: Path) -> list[str]:
    return sorted(path.name for path in app.iterdir() if path.is_dir())


def _pod(number: int, volumes: Path, *, patience: int = 120, repository: Path | None = None) -> int:
    """What the init container of one of two pods ends with, with the kstate that is tested: from a dump, or a repository."""
    name = "statefulset.yaml"
    if repository is not None:
        name = "restore-snapshot.yaml"
    script = _manifest(name)["spec"]["template"]["spec"]["initContainers"][0]["args"][0]
    places = {"s3://backups/my-app/latest": str(DUMP), "/etc/kstate/kstate.toml": str(EXAMPLES / "dump.toml"),
              "--barrier-timeout 300": f"--barrier-timeout {patience}"}  # fmt: skip
    for theirs, ours in places.items():
        assert theirs in script or repository is not None, theirs
        script = script.replace(theirs, ours)
    # The examples are older than a log keeps deletes.
    script = script.replace("--from-snapshot", "--accept-resurrected --from-snapshot")
    volume = volumes / str(number)
    volume.mkdir(parents=True, exist_ok=True)
    meet = volumes / "meet"
    meet.mkdir(exist_ok=True)
    environment = {**_in_the_path(), "APP": str(volume / "orders"), "HOSTNAME": f"my-app-{number}", "REPLICAS": "2",
                   "BARRIER": str(meet), "REPO": str(repository)}  # fmt: skip
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, check=False,
                          timeout=300).returncode  # fmt: skip


@pytest.mark.rotating(2)
def test_all_volumes_are_lost(whole: Path, tmp_path: Path) -> None:
    """Each pod restores its share, and none goes on before all have; a pod that starts again finds its tasks and does nothing."""
    volumes = tmp_path / "volumes"
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda number: _pod(number, volumes), (0, 1))) == [0, 0]
    apps = [volumes / str(number) / "orders" for number in (0, 1)]
    assert [_tasks(app) for app in apps] == [["0_0", "global"], ["0_1", "global"]]
    assert data_rows(apps[0]) | data_rows(apps[1]) == data_rows(whole)
    assert {json.loads(file.read_text())["hosts"] for file in (volumes / "meet").iterdir()} == {2}
    before = tree_hash(volumes)
    assert _pod(1, volumes) == 0
    assert tree_hash(volumes) == before
    # One volume alone: the other pod runs, and does not come to the barrier. Nobody waits for it longer than was said.
    shutil.rmtree(volumes / "0" / "orders")
    assert _pod(0, volumes, patience=1) == 0
    assert _tasks(apps[0]) == ["0_0", "global"]
    assert data_rows(apps[0]) | data_rows(apps[1]) == data_rows(whole)


@pytest.mark.in_full("tests/examples/test_examples.py::test_all_volumes_are_lost")
def test_lost_volumes_get_the_newest_snapshot(whole: Path, tmp_path: Path) -> None:
    """Each pod restores its share of the snapshot; a pod that starts again finds its tasks and does nothing."""
    repository, volumes = tmp_path / "repository", tmp_path / "volumes"
    kstate("snapshot", whole, "--out", repository)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda number: _pod(number, volumes, repository=repository), (0, 1))) == [0, 0]
    apps = [volumes / str(number) / "orders" for number in (0, 1)]
    assert [_tasks(app) for app in apps] == [["0_0", "global"], ["0_1", "global"]]
    assert data_rows(apps[0]) | data_rows(apps[1]) == data_rows(whole)
    before = tree_hash(volumes)
    assert _pod(1, volumes, repository=repository) == 0
    assert tree_hash(volumes) == before


@pytest.mark.in_full("tests/examples/test_examples.py::test_all_volumes_are_lost")
def test_a_job_for_each_volume(whole: Path, tmp_path: Path) -> None:
    """job.yaml, with the StatefulSet scaled to zero: two volumes, each a half."""
    apps = [tmp_path / str(number) / "orders" for number in (0, 1)]
    for number, lost in enumerate(apps):
        lost.parent.mkdir()
        words = [word.replace("SHARE/3", f"{number + 1}/2") for word in _here(_command_of("job.yaml")[1:], lost)]
        kstate(*words)
    assert [_tasks(app) for app in apps] == [["0_0", "global"], ["0_1", "global"]]
    assert data_rows(apps[0]) | data_rows(apps[1]) == data_rows(whole)


def test_a_lost_volume(whole: Path, tmp_path: Path) -> None:
    """Both Jobs, with a real directory of two tasks, each on a volume of its own, and the dump of the same application."""
    for ordinal, task in ((0, "0_1"), (2, "0_0")):
        app = tmp_path / str(ordinal) / "orders"
        shutil.copytree(whole, app, ignore=shutil.ignore_patterns(task, PROCESS_FILE))
        here = _here(_command_of("list.yaml"), app)
        process = subprocess.run(here, env=_in_the_path(), capture_output=True, check=True, timeout=300)
        (tmp_path / f"my-app-{ordinal}.json").write_bytes(process.stdout)
    for name, ordinals, status in (("before", (0, 2), 0), ("now", (0,), 3)):
        fleet = kstate("fleet", *(tmp_path / f"my-app-{ordinal}.json" for ordinal in ordinals), "-o", "json",
                       "--spec", EXAMPLES / "dump.toml", status=status)  # fmt: skip
        (tmp_path / f"{name}.json").write_text(fleet.out)
    lost = tmp_path / "2" / "orders"
    rows = data_rows(lost)
    shutil.rmtree(lost)
    kstate(*_here(_command_of("lost-volume.yaml")[1:], lost, fleet=tmp_path))
    assert _tasks(lost) == ["0_1", "global"]
    assert data_rows(lost) == rows


@pytest.fixture(scope="module")
def dumper() -> ModuleType:
    """examples/dump_changelogs.py."""
    spec = importlib.util.spec_from_file_location("dump_changelogs", EXAMPLES / "dump_changelogs.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["dump_changelogs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The Parquet files of the example's dump, without a manifest, and what Spark leaves beside such files."""
    shutil.copytree(DUMP, tmp_path / "dump", ignore=shutil.ignore_patterns(NAME))
    (tmp_path / "dump" / "_SUCCESS").touch()
    (tmp_path / "dump" / ".part-00000.parquet.crc").write_bytes(b"crc")
    return tmp_path / "dump"


def _documented_manifest() -> Manifest:
    return parse((DUMP / NAME).read_bytes())


def _logs(dumper: ModuleType) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(partition.topic, partition.partition): dumper.Log(partition.log_start, partition.log_end)
        for partition in _documented_manifest().partitions
    }


@pytest.mark.rotating(2)
def test_manifest(dumper: ModuleType, files: Path) -> None:
    """From the files and the broker's offsets: the very manifest that the dump has."""
    logs = _logs(dumper)
    empty = TopicPartition("orders-empty-changelog", 0)
    logs[empty] = dumper.Log(7, 7, "an-id")
    dump = dumper.write_manifest(str(files), logs, {TopicPartition("shop-global", 1): 50})
    outputs, facts = parse((files / NAME).read_bytes()), _documented_manifest()
    assert {partition for partition in outputs.partitions if partition.topic != empty.topic} == set(facts.partitions)
    assert {(file.path, file.size, file.sha256) for file in outputs.files} == {
        (file.path, file.size, file.sha256) for file in facts.files
    }
    assert outputs.committed == {TopicPartition("shop-global", 1): 50}
    assert outputs.isolation == "read_committed"
    assert (dump.partitions[empty].log_start, dump.partitions[empty].rows) == (7, 0)
    checked = read_dump(str(files), complete=False, committed_only=False, check_digests=True)
    assert sum(partition.rows for partition in checked.partitions.values()) == 328


def test_manifest_says_when_it_was_read(dumper: ModuleType, files: Path) -> None:
    """And from what: everything by which a later restoration tells whether it may go on from there."""
    logs = {
        key: replace(log, leader_epoch=3, cleanup_policy="compact", delete_retention_ms=5)
        for key, log in _logs(dumper).items()
    }
    dumper.write_manifest(str(files), logs, None, dumper.Times(7, 9))
    for partition in parse((files / NAME).read_bytes()).partitions:
        assert partition.reading is not None
        digest = partition.reading.last_record_sha256
        assert partition.reading == Reading(7, 9, "compact", 5, 3, digest)
        assert (digest is None) is (partition.last is None)
    checked = read_dump(str(files), complete=False, committed_only=False, check_digests=True)
    key = TopicPartition("orders-latest-order-changelog", 0)
    results = checked.partitions[key]
    assert results.reading is not None
    assert results.last is not None
    bare = replace(results, reading=None)
    assert digest_at(open_location(str(files))[0], bare, results.last) == results.reading.last_record_sha256
    other = digest_at(open_location(str(files))[0], bare, results.last - 1)
    assert other not in (None, results.reading.last_record_sha256)


def test_manifest_contradicted(dumper: ModuleType, files: Path) -> None:
    """Records outside of what was to be read, or of a topic that nobody asked for: no manifest, and no dump."""
    key = TopicPartition("orders-visits-changelog", 1)
    logs = _logs(dumper)
    for wrong in (replace(logs[key], end=logs[key].end - 10), replace(logs[key], start=1)):
        with pytest.raises(ValueError, match=r"orders-visits-changelog:1: the files have"):
            dumper.write_manifest(str(files), {**logs, key: wrong})
    del logs[key]
    with pytest.raises(ValueError, match="was not requested"):
        dumper.write_manifest(str(files), logs)
    assert not (files / NAME).exists()
    with pytest.raises(DumpError, match="no _manifest"):
        read_dump(str(files), complete=False, committed_only=False)


def test_spark_bounds(dumper: ModuleType) -> None:
    """Offsets and partitions as Spark's Kafka source takes them."""
    keys = [TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b", 2)]
    assert dumper._by_topic((key, None) for key in keys) == '{"a": [0, 10], "b": [2]}'
    assert dumper._by_topic((key, 5) for key in keys) == '{"a": {"0": 5, "10": 5}, "b": {"2": 5}}'


@pytest.mark.in_full("tests/examples/test_examples.py::test_readme_restores")
def test_spark_submit(tmp_path: Path) -> None:
    """examples/spark-submit.sh restores the dump: the rows that real 4.3.1 has of the same input."""
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "SPARK_HOME": str(Path(pyspark.origin).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_ARGUMENTS": "--master local[2,4] --conf spark.driver.host=127.0.0.1",
    }
    orders = tmp_path / "state" / "orders"
    orders.parent.mkdir()
    command = [str(EXAMPLES / "spark-submit.sh"), str(orders), "--from-changelog", str(DUMP), "--for", "4.3",
               "--spec", str(EXAMPLES / "dump.toml"), "--memory", "2G", "-o", "json"]  # fmt: skip
    process = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800, check=False
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert '"executed": true' in process.stdout.splitlines()[-1]
    with tarfile.open(GOLDEN / "4.3.1-demo-eos.tar.xz") as archive:
        archive.extractall(tmp_path / "golden", filter="data")
    assert data_rows(orders) == data_rows(tmp_path / "golden" / "orders")
