"""Hints that name an option or a command, carried out: in the situation that prints one, and the command succeeds then.

A case is the command, its exit code, a part of the hint, and what the hint says to do: an amended command, or commands
that are run as they are printed. Each option of the amendment is in the hint. In the end the first command, as it is or
amended, succeeds.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from tests.golden import unpack
from tests.growing import GrowingDump
from tests.hints import follows_hint
from tests.mounts import mounted
from tests.restore.support import APP
from tests.restore.support import SPEC as GROWN
from tests.restore.support import TOPIC as BULK
from tests.unit.rehome.texts import text

from .test_cold import EXAMPLES
from .test_locks import locked
from .warm import Ended, Warm

pytestmark = pytest.mark.rotating(6)

DUMP, SPEC = EXAMPLES / "dump", EXAMPLES / "dump.toml"
KEYS = (TopicPartition(BULK, 0), TopicPartition(BULK, 1))
_LOST = f"restore LOST --from-changelog {DUMP} --spec {SPEC} --for 4.3 --engine local --dry-run"
_PLAIN = f"restore LOST --from-changelog plain --spec {SPEC} --for 4.3 --engine local --dry-run"
"""From a dump without a manifest."""


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process


def _sweep(warm: Warm, line: str, folder: Path) -> Ended:
    """Run a command in the folder of a case."""
    return warm(*shlex.split(line), folder=folder)


@dataclass(frozen=True)
class Case:
    """A situation of the command line alone; APP is the bundled application, LOST one without a directory."""

    line: str
    status: int
    hint: str
    """A part of the hint."""
    amended: str
    """The command line that the hint asks for."""
    statuses: tuple[int, ...] = (0, 1)
    """Its exit codes: 1 is success with warnings."""


CASES = {
    "bound": Case("query range APP latest-order --at nonsense", 2, "pass a topic, a partition and an offset, such as orders:0=1234",
                  "query range APP latest-order --at orders:0=0", (0, 1, 3)),
    "key serde": Case("query key APP latest-order nonsense --key-serde long", 2, "pass --key-serde with the serde that the application",
                      "query key APP latest-order nonsense --key-serde string"),
    "ls --spec as JSON": Case("ls APP --spec -o json", 2, "omit --spec or -o json", "ls APP --spec"),
    "ls --spec sorted": Case("ls APP --spec --sort size", 2, "omit --spec or --sort", "ls APP --spec"),
    "ls with a dump": Case(f"ls APP --from-changelog {DUMP}", 2, "also pass --spec", f"ls APP --spec --from-changelog {DUMP}"),
    "maintain without a file": Case("maintain --dry-run", 2, "--config FILE", "maintain --dry-run --config maintain.toml"),
    "follow once": Case(f"{_LOST} --standby --follow 1", 2, "run the command once with --dry-run --standby, and then with --follow", f"{_LOST} --standby"),
    "before without missing": Case(f"{_LOST} --before fleet.json", 2, "pass --missing FILE with the current state", f"{_LOST} --missing fleet.json --before fleet.json --host web"),
    "missing alone": Case(f"{_LOST} --missing fleet.json", 2, "--share 1/1 on a single one", f"{_LOST} --missing fleet.json --share 1/1"),
    "missing, another way": Case(f"{_LOST} --missing fleet.json", 2, "pass --host NAME and --before FILE",
                                 f"{_LOST} --missing fleet.json --before fleet.json --host web"),
    "before without a name": Case(f"{_LOST} --missing fleet.json --before fleet.json", 2, "--host NAME",
                                  f"{_LOST} --missing fleet.json --before fleet.json --host web"),
    "hosts without a barrier": Case(f"{_LOST} --hosts 1", 2, "--barrier PLACE", f"{_LOST} --hosts 1 --barrier ."),
    "a barrier without hosts": Case(f"{_LOST} --barrier .", 2, "--hosts N", f"{_LOST} --barrier . --hosts 1"),
    "a barrier for a standby": Case(f"{_LOST} --standby --barrier . --hosts 1", 2, "omit --barrier", f"{_LOST} --standby"),
    "share and hosts": Case(f"{_LOST} --missing fleet.json --share 1/1 --barrier . --hosts 2", 2, "omit --hosts",
                            f"{_LOST} --missing fleet.json --share 1/1 --barrier ."),
    "purge": Case("wipe APP --store visits --purge", 2, "also pass --yes", "wipe APP --store visits --purge --yes"),
    "wipe nothing": Case("wipe APP", 2, "--task, --store, --global or --all", "wipe APP --global --dry-run"),
    "export of Streams' own values": Case("export KINDS fk-subscription-store --out out --value-serde long", 4, "omit "
                                                                                                                "--value-serde",
                                          "export KINDS fk-subscription-store --out out"),
    "export over another": Case("export APP visits --out exported", 4, "--overwrite", "export APP visits --out exported --overwrite"),
    "export over an interrupted one": Case("export APP visits --out interrupted", 4, "--overwrite",
                                           "export APP visits --out interrupted --overwrite"),
    "a dump without a manifest": Case(_PLAIN, 4, "--dump-is-complete. If the dump was read",
                                      f"{_PLAIN} --dump-is-complete --dump-is-committed"),
    "a dump of unknown isolation": Case(f"{_PLAIN} --dump-is-complete", 4, "also pass --dump-is-committed",
                                        f"{_PLAIN} --dump-is-complete --dump-is-committed"),
    "transactions never used": Case(f"{_PLAIN} --dump-is-complete", 4, "--guarantee at_least_once",
                                    f"{_PLAIN} --dump-is-complete --guarantee at_least_once"),
    "check by a plain dump": Case("check APP --for 4.3 --dump plain", 4, "--offsets FILE", "check APP --for 4.3 --offsets offsets.json",
                                  (0, 1, 3)),
    "a dump that does not grow": Case(f"{_LOST.replace(' --dry-run', '')} --standby --follow 1", 4, "omit --follow",
                                      f"{_LOST.replace(' --dry-run', '')} --standby"),
    "no rows of a restoration": Case(f"{_LOST.replace(' --dry-run', '')} --no-verify-dump", 2, "also pass --dry-run", f"{_LOST} --no-verify-dump"),
    "memory without Spark": Case(f"{_LOST.replace(' --dry-run', '')} --memory 1M", 2, "pass a larger --memory", f"{_LOST.replace(' --dry-run', '')} --memory 2G"),
    "a fleet without a listing": Case("fleet web=nothing.json", 2, "kstate ls APP -o json", "fleet web=web.json", (0, 1, 3)),
    "too many partitions": Case("fleet web=web.json --spec huge.toml", 4, "--spec", "fleet web=web.json --spec kstate.toml", (0, 1, 3)),
    "rehome, one text": Case(f"rehome APP --topology new.txt --from-changelog {DUMP}", 2, "--topology NEW.txt --from OLD.txt",
                             f"rehome APP --topology new.txt --from old.txt --from-changelog {DUMP} --for 4.3 --dry-run"),
    "rehome, no release": Case(f"rehome APP --topology new.txt --from old.txt --from-changelog {DUMP}", 2, "--for RELEASE, such as --for 4.3",
                               f"rehome APP --topology new.txt --from old.txt --from-changelog {DUMP} --for 4.3 --dry-run"),
    "rehome, --from with --map": Case("rehome APP --map 0=4 --from old.txt", 2, "--map does not need it", "rehome APP --map 0=4 --dry-run"),
    "rehome, two become one": Case("rehome APP --map 0=1 --map 5=1", 2, "for merged sub-topologies, pass both topology "
                                                                        "descriptions instead, with --topology and --from",
                                   "rehome APP --topology new.txt --from old.txt --dry-run"),
    "rehome, another old text": Case("rehome APP --topology new.txt --from other.txt", 4,
                                     "pass --from with the description of the topology that last ran here",
                                     "rehome APP --topology new.txt --from old.txt --dry-run"),
    "rehome, half of the stores": Case("rehome APP --topology half.txt", 4,
                                       "also pass the description of the previous topology: --from OLD.txt",
                                       "rehome APP --topology half.txt --from old.txt --dry-run"),
    "rehome, named topologies": Case("rehome NAMED --map 0=4", 4, "--topology NEW.txt --from OLD.txt",
                                     "rehome NAMED --topology named-new.txt --from named-old.txt --dry-run"),
    "ls with a plain dump": Case("ls APP --spec --from-changelog plain", 4, "omit --from-changelog", "ls APP --spec"),
}  # fmt: skip


NAMES, KINDS = "3.9.2-sparse-named-eos", "4.3.1-kinds-eos"
STORES = ("latest-order", "orders-per-minute", "visits")


def _prepare(folder: Path, warm: Warm, line: str) -> dict[str, str]:
    """Make what a case names; return the words that stand for it."""
    app = unpack("4.3.1-demo-eos", folder / "state")
    shutil.copy(SPEC, folder / "kstate.toml")
    (folder / "huge.toml").write_text(
        SPEC.read_text(encoding="utf-8").replace("partitions = 2 ", f"partitions = {1 << 30} "), encoding="utf-8"
    )
    (folder / "maintain.toml").write_text(
        f'format = 1\n[defaults]\ndirectory = "{app}"\n[maintain]\nmemory_file = "memory.json"\n[maintain.verify]\n'
    )
    shutil.copytree(DUMP, folder / "plain")
    (folder / "plain" / "_manifest.json").unlink()
    for name, parts in (
        ("old", {0: STORES}), ("new", {4: STORES}), ("half", {0: ("visits",)}),
        ("other", {0: STORES[:1], 1: STORES[1:]}),
    ):  # fmt: skip
        (folder / f"{name}.txt").write_text(text(parts, global_stores=["customers"]))
    words = {"APP": str(app), "LOST": str(folder / "lost" / "orders")}
    (folder / "lost").mkdir()
    for word, golden in (("NAMED", NAMES), ("KINDS", KINDS)):
        if word in line:
            words[word] = str(unpack(golden, folder / word))
    for name, number in (("old", 0), ("new", 4)):
        stores = ("kv-never", "kv-written", "window-never")
        (folder / f"named-{name}.txt").write_text(text({number: stores}, names="orders"))
    if ".json" in line:
        (folder / "web.json").write_text(warm("ls", app, "-o", "json").out)
        (folder / "fleet.json").write_text(warm("fleet", "web=web.json", "-o", "json", folder=folder).out)
        (folder / "offsets.json").write_text('{"shop-global": {"0": {"start": 0, "end": 31}}}')
    if "exported" in line:
        assert warm("export", app, "visits", "--out", folder / "exported").status == 0
    if "interrupted" in line:
        (folder / "interrupted" / "_incomplete").mkdir(parents=True)
        (folder / "interrupted" / "_incomplete" / "export.json").write_text('{"of": "another"}')
    return words


def _line(line: str, words: dict[str, str]) -> list[str]:
    return [words.get(word, word) for word in shlex.split(line)]


@pytest.mark.rotating(2)
@pytest.mark.sample(18)
@pytest.mark.parametrize("name", CASES)
def test_followed(name: str, tmp_path: Path, warm: Warm) -> None:
    """The amended command, of which every new option is in the hint, is done."""
    case = CASES[name]
    words = _prepare(tmp_path, warm, f"{case.line} {case.amended}")
    refusal = warm(*_line(case.line, words), folder=tmp_path)
    assert refusal.status == case.status, refusal.report
    _, _, hint = refusal.err.partition("what to do: ")
    assert case.hint in hint, refusal.report
    first, amended = shlex.split(case.line), shlex.split(case.amended)
    new = {word for word in amended if word.startswith("--") and word not in first} - {"--dry-run"}
    assert all(word in hint for word in new), f"the hint names not all of {new}: {hint}"
    followed = warm(*_line(case.amended, words), folder=tmp_path)
    assert followed.status in case.statuses, f"{case.amended}: {followed.report}"


# --- situations of directories and dumps -----------------------------------------------------------------------------


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return unpack("4.3.1-demo-eos", tmp_path / "state")


@pytest.fixture
def dump(tmp_path: Path) -> GrowingDump:
    """A dump that grows, and the specification of its application."""
    outputs = GrowingDump(tmp_path / "dump")
    for begin in (0, 100):
        outputs.add(
            {key: [(b"k%05d" % n, b"v", 1_700_000_000_000 + n) for n in range(begin, begin + 100)] for key in KEYS}
        )
    (tmp_path / "kstate.toml").write_text(GROWN, encoding="utf-8")
    (tmp_path / "grown").mkdir()
    return outputs


def printed_commands(ended: Ended) -> list[list[str]]:
    """The commands that a hint prints, each as its words."""
    _, _, hint = ended.err.rpartition("what to do: ")
    return [
        shlex.split(line) for line in re.findall(r"(?:^    |: |\brun )((?:kstate|mv) \S.*)$", hint, flags=re.MULTILINE)
    ]


def grown(dump: GrowingDump, *more: str) -> list[str]:
    """The restoration of its application."""
    folder = dump.path.parent
    return ["restore", str(folder / "grown" / APP), "--from-changelog", dump.uri, "--spec", str(folder / "kstate.toml"),
            "--for", "4.3", "--engine", "local", *more]  # fmt: skip


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
@pytest.mark.parametrize("line", ["export APP visits --out out", "diff APP APP"])
def test_while_the_application_is_running(line: str, app: Path, tmp_path: Path, warm: Warm) -> None:
    """It reads what was flushed last, or the application is stopped."""
    words = [str(app) if word == "APP" else word for word in line.split()]
    with locked(app, "application"):
        refusal = warm(*words, folder=tmp_path)
        assert refusal.status == 5 and "stop the application or pass --last-flush to read the last flush" in refusal.err
        assert warm(*words, "--last-flush", folder=tmp_path).status in (0, 1)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert warm(*words, folder=tmp_path).status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_no_room(tmp_path: Path, warm: Warm) -> None:
    """What earlier runs keep is only named where there is something; deleting it makes the room."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=40m", "none") as small:
        app = unpack("4.3.1-demo-eos", small)
        words = ("migrate", app, "--to", "4.2", "--workers", "1")
        free = os.statvfs(small)
        (small / "other").write_bytes(bytes(free.f_bavail * free.f_frsize - (16 << 20)))
        refusal = warm(*words)
        assert refusal.status == 4 and "free disk space, then run" in refusal.err and not printed_commands(refusal), (
            refusal.report
        )
        (small / "other").unlink()
        assert warm(*words).status == 0
        free = os.statvfs(small)
        # Less than what is needed, and more than that with what the run keeps.
        needs = _needed_bytes(warm, app, small)
        (small / "other").write_bytes(bytes(free.f_bavail * free.f_frsize - needs + (64 << 10)))
        refusal = warm("migrate", app, "--to", "4.3", "--workers", "1")
        assert refusal.status == 4, refusal.report
        ((_, *clean),) = printed_commands(refusal)
        assert warm(*clean).status == 0
        assert warm("migrate", app, "--to", "4.3", "--workers", "1").status == 0


def _needed_bytes(warm: Warm, app: Path, small: Path) -> int:
    """The free space below which a migration is refused, by trying."""
    least, most = 15 << 20, 24 << 20
    while most - least > 16 << 10:
        free, middle = os.statvfs(small), (least + most) // 2
        (small / "probe").write_bytes(bytes(free.f_bavail * free.f_frsize - middle))
        status = warm("migrate", app, "--to", "4.3", "--workers", "1", "--dry-run").status
        (small / "probe").unlink()
        least, most = (middle, most) if status == 4 else (least, middle)
    return most


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_hint_about_a_directory_that_is_no_standby(dump: GrowingDump, warm: Warm) -> None:
    """It is moved away, or caught up once; nothing of it is lost either way."""
    assert warm(*grown(dump)).status in (0, 1)
    refusal = warm(*grown(dump, "--standby"))
    assert refusal.status == 4 and "without --standby" in refusal.err, refusal.report
    assert warm(*grown(dump)).status in (0, 1)
    ((program, *paths),) = printed_commands(refusal)
    assert program == "mv"
    source, target = paths
    shutil.move(source, target)
    assert warm(*grown(dump, "--standby")).status in (0, 1)
    assert Path(target).is_dir()


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_ages_that_cannot_be_read(dump: GrowingDump, warm: Warm) -> None:
    assert warm(*grown(dump)).status in (0, 1)
    app = dump.path.parent / "grown" / APP
    ages = app.parent / ".kstate" / APP / "ages.json"
    ages.write_text("{")
    refusal = warm(*grown(dump))
    assert refusal.status == 4 and "move the file away" in refusal.err, refusal.report
    ((_, *words),) = printed_commands(refusal)
    ages.rename(ages.with_suffix(".away"))
    arguments = {"DUMP": dump.uri, "RELEASE": "4.3"}
    words = [arguments.get(word, word) for word in words]
    followed = warm(*words, "--spec", dump.path.parent / "kstate.toml", "--engine", "local")
    assert followed.status in (0, 1), followed.report
    assert warm(*grown(dump)).status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_damage_that_diff_meets(app: Path, tmp_path: Path, warm: Warm) -> None:
    """`verify` names the files, and what takes them out; then the two are compared."""
    other = shutil.copytree(app, tmp_path / "other" / app.name)
    flip(max((other / "0_0" / "rocksdb" / "latest-order").glob("*.sst")), 10)
    refusal = warm("diff", app, other)
    assert refusal.status not in (0, 1, 2), refusal.report
    commands = printed_commands(refusal)
    verified = [warm(*words) for _, *words in commands]
    assert sorted(ended.status for ended in verified) == [0, 3]
    damaged = next(ended for ended in verified if ended.status == 3)
    (_, *wipe), (_, *rebuild) = printed_commands(damaged)
    rebuilt = shutil.copytree(other, tmp_path / "rebuilt" / app.name)
    assert warm(*wipe).status in (0, 1)
    assert warm("verify", other).status in (0, 1)
    assert warm("diff", app, other).status == 3, "they differ, and all was compared"
    arguments = {"DUMP": DUMP, "RELEASE": "4.3", "FILE": SPEC, str(other): rebuilt}
    followed = warm(*(arguments.get(word, word) for word in rebuild), "--engine", "local")
    assert followed.status in (0, 1) and "--rebuild" in rebuild, followed.report
    assert warm("verify", rebuilt).status in (0, 1) and warm("diff", app, rebuilt).status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_damage_that_a_dump_has_recorded(dump: GrowingDump, warm: Warm) -> None:
    """The printed command names the file; copied from elsewhere, and verified again, the dump is as before."""
    folder = dump.path.parent
    assert warm(*grown(dump)).status in (0, 1)
    whole = shutil.copytree(dump.path, folder / "copy")
    file = min(dump.path.rglob("*.parquet"))
    flip(file, 60)
    assert warm("verify-dump", dump.path).status == 3
    check = ("check", folder / "grown" / APP, "--for", "4.3", "--dump", dump.path)
    refusal = warm(*check)
    assert refusal.status == 3, refusal.report
    commands = [words for words in printed_commands(refusal) if words[1] == "verify-dump"]
    assert len(commands) == 1, refusal.report
    names = warm(*commands[0][1:])
    assert names.status == 3 and str(file.relative_to(dump.path)) in names.out
    shutil.copy(whole / file.relative_to(dump.path), file)
    assert warm(*commands[0][1:]).status == 0
    assert warm(*check).status in (0, 1)


def _backup_of_migration(app: Path, warm: Warm) -> Path:
    """The tree that its only run keeps."""
    assert warm("migrate", app, "--to", "4.2").status == 0
    return app.parent / ".kstate" / app.name / "0001-migrate" / "tree"


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
@pytest.mark.parametrize("way", ["put back", "given up"])
def test_hint_about_a_changed_backup(way: str, app: Path, warm: Warm) -> None:
    tree = _backup_of_migration(app, warm)
    file = max(tree.rglob("CURRENT"))
    file.rename(app.parent / "aside")
    refusal = warm("undo", app)
    assert refusal.status == 4 and f"restore the missing files in {tree}" in refusal.err, refusal.report
    ((_, *clean),) = printed_commands(refusal)
    if way == "put back":
        (app.parent / "aside").rename(file)
        assert warm("undo", app).status == 0
        return
    assert warm(*clean).status == 0
    assert warm("ls", app).status == 0 and warm("status", app).status == 0


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_kept_directory_that_is_gone(app: Path, warm: Warm) -> None:
    tree = _backup_of_migration(app, warm)
    tree.rename(app.parent / "aside")
    refusal = warm("undo", app)
    assert refusal.status == 4 and "has no backup of the earlier directory" in refusal.err, refusal.report
    ((_, *clean),) = printed_commands(refusal)
    assert warm(*clean).status == 0 and warm("status", app).status == 0
    assert warm("migrate", app, "--to", "4.3").status == 0


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_kept_directory_that_cannot_be_put_back(app: Path, tmp_path: Path, warm: Warm) -> None:
    _backup_of_migration(app, warm)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(app.parent), str(copy)], check=True)
    flip(next((copy / ".kstate").rglob("*.sst")), 3)
    refusal = warm("undo", copy / app.name, "--times-lost")
    assert refusal.status == 4 and "cannot restore the backup" in refusal.err, refusal.report
    ((_, *clean),) = printed_commands(refusal)
    assert warm(*clean).status == 0 and warm("ls", copy / app.name).status == 0


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_two_exports_at_once(app: Path, tmp_path: Path, warm: Warm) -> None:
    out = tmp_path / "out"
    out.mkdir()
    lock = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refusal = warm("export", app, "visits", "--out", out)
        assert refusal.status == 5 and "wait until it ends, or pass a different folder with --out" in refusal.err
        assert warm("export", app, "visits", "--out", tmp_path / "another").status in (0, 1)
    finally:
        os.close(lock)
    assert warm("export", app, "visits", "--out", out).status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_listing_that_was_not_whole(app: Path, tmp_path: Path, warm: Warm) -> None:
    """An older one says what the host had; or this host takes its share of what is missing."""
    (tmp_path / "web.json").write_text(warm("ls", app, "-o", "json").out)
    fleet = tmp_path / "older.json"
    fleet.write_text(warm("fleet", "web=web.json", "-o", "json", folder=tmp_path).out)
    (tmp_path / "web.json").write_text(warm("ls", app, "-o", "json").out.rpartition("\n{")[0] + "\n")
    (tmp_path / "now.json").write_text(warm("fleet", "web=web.json", "-o", "json", folder=tmp_path).out)
    words = _LOST.replace("LOST", str(tmp_path / "orders")).split()
    refusal = warm(*words, "--missing", fleet, "--before", tmp_path / "now.json", "--host", "web")
    assert refusal.status == 4 and "Or pass --share to restore a share of the missing tasks" in refusal.err, (
        refusal.report
    )
    assert warm(*words, "--missing", fleet, "--before", fleet, "--host", "web").status in (0, 1)
    assert warm(*words, "--missing", fleet, "--share", "1/1").status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_store_in_several_topologies(tmp_path: Path, warm: Warm) -> None:
    app = unpack(NAMES, tmp_path / "named")
    shutil.copytree(app / "__orders__", app / "__others__")
    refusal = warm("query", "range", app, "kv-written")
    assert refusal.status == 4 and "pass one of them: --topology" in refusal.err, refusal.report
    assert warm("query", "range", app, "kv-written", "--topology", "orders").status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_store_in_several_subtopologies(app: Path, tmp_path: Path, warm: Warm) -> None:
    """The specification says which one counts, with the very line of the hint."""
    for partition in (0, 1):
        (app / f"7_{partition}" / "rocksdb").mkdir(parents=True)
        shutil.copytree(
            app / f"0_{partition}" / "rocksdb" / "latest-order", app / f"7_{partition}" / "rocksdb" / "latest-order"
        )
    refusal = warm("query", "range", app, "latest-order")
    assert refusal.status == 4, refusal.report
    table = re.findall(r"    (\[stores\.latest-order\])\n    (subtopology = \d)\n", refusal.err)[0]
    (tmp_path / "kstate.toml").write_text("\n".join(["format = 1", *table, ""]))
    followed = warm("query", "range", app, "latest-order", "--spec", tmp_path / "kstate.toml")
    assert followed.status in (0, 1), followed.report


@follows_hint("cli/commands/maintain.py", "command('examples'")
@follows_hint("maintain/steps.py", "command('examples'")
@pytest.mark.parametrize("options", [(), ("--config", "kstate.toml")], ids=["no file", "no section"])
def test_maintenance_that_is_not_configured(tmp_path: Path, warm: Warm, options: tuple[str, ...]) -> None:
    (tmp_path / "kstate.toml").write_text("format = 1\n")
    refusal = warm("maintain", *options, folder=tmp_path)
    assert refusal.status == 2, refusal.report
    (line,) = [line for line in refusal.err.splitlines() if line.strip().startswith("kstate examples ")]
    written = warm(*shlex.split(line)[1:], folder=tmp_path)
    assert written.status == 0, written.report
    planned = warm("maintain", "--config", "kstate-examples/maintain.toml", "--dry-run", folder=tmp_path)
    assert planned.status == 0, planned.report
    for step, parts in (("verify", 7), ("verify-dump", 28)):
        assert f"each run of {step} reads one of {parts} parts. To read everything in each run, set parts = 1 in " in (
            planned.err
        )


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_step_of_maintain_that_failed(app: Path, tmp_path: Path, warm: Warm) -> None:
    """The printed command shows more of it; once the cause is fixed, the next call does what was not done."""
    current = app / "0_0" / "rocksdb" / "latest-order" / "CURRENT"
    current.rename(tmp_path / "CURRENT")
    (tmp_path / "kstate.toml").write_text(
        f'format = 1\n[defaults]\ndirectory = "{app}"\n[maintain]\nmemory_file = "memory.json"\n[maintain.verify]\nparts = 1\n'
    )
    refusal = warm("maintain", "--config", "kstate.toml", folder=tmp_path)
    assert refusal.status == 3 and "run the step's command yourself" in refusal.err, refusal.report
    ((_, *words),) = printed_commands(refusal)
    by_hand = warm(*words, folder=tmp_path)
    assert by_hand.status == 3 and "CURRENT" in by_hand.report
    (tmp_path / "CURRENT").rename(current)
    assert warm("maintain", "--config", "kstate.toml", folder=tmp_path).status in (0, 1)


def test_a_number_that_is_taken(tmp_path: Path, warm: Warm) -> None:
    app = unpack(KINDS, tmp_path / "state")
    refusal = warm("rehome", app, "--map", "6=5", "--dry-run")
    assert refusal.status == 4, refusal.report
    (match,) = re.findall(r"--map (\S+),", refusal.err)
    assert warm("rehome", app, "--map", "6=5", "--map", match, "--dry-run").status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_directory_that_cannot_be_rehomed_as_it_is(app: Path, tmp_path: Path, warm: Warm) -> None:
    """`check` says what to do about each problem: of a database without its CURRENT, put it back."""
    current = app / "0_0" / "rocksdb" / "latest-order" / "CURRENT"
    current.rename(tmp_path / "CURRENT")
    words = ("rehome", app, "--map", "0=4", "--dry-run")
    refusal = warm(*words)
    assert refusal.status == 4, refusal.report
    ((_, *check),) = printed_commands(refusal)
    assert "CURRENT" in warm(*check).report
    (tmp_path / "CURRENT").rename(current)
    assert warm(*words).status in (0, 1)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_hint_about_a_position_without_current(app: Path, tmp_path: Path, warm: Warm) -> None:
    current = app / "0_0" / "rocksdb" / "latest-order" / "CURRENT"
    current.rename(tmp_path / "CURRENT")
    refusal = warm("inspect-position", app)
    assert refusal.status == 3 and "to predict the next start" in refusal.err, refusal.report
    ((_, *check),) = printed_commands(refusal)
    checked = warm(*("4.3" if word == "RELEASE" else word for word in check))
    assert checked.status == 3 and "latest-order" in checked.report
    (tmp_path / "CURRENT").rename(current)
    assert warm("inspect-position", app).status in (0, 1)


def toml_of(report: str) -> str:
    """Return the printed lines of a kstate.toml, with the first of several values to choose from."""
    lines = re.findall(r"^    (.*)$", report, flags=re.MULTILINE)
    return "".join(f"{line.removeprefix('# ').partition(' or ')[0]}\n" for line in lines)


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_a_specification_that_is_not_complete(app: Path, tmp_path: Path, warm: Warm) -> None:
    """The printed lines complete it."""
    words = ["restore", str(app), "--from-changelog", str(DUMP), "--for", "4.3", "--engine", "local", "--dry-run"]
    refusal = warm(*words)
    assert refusal.status == 4 and "write these lines to kstate.toml and pass it with --spec" in refusal.err
    spec = tmp_path / "kstate.toml"
    spec.write_text(toml_of(refusal.err))
    followed = warm(*words, "--spec", spec)
    assert followed.status in (0, 1), followed.report


@pytest.mark.parametrize("name", ["check", "migrate"])
def test_the_help_of_a_command_that_lacks_its_release(name: str, app: Path, warm: Warm) -> None:
    refusal = warm(name, app)
    assert refusal.status == 2 and "to see its options, run" in refusal.err, refusal.report
    ((_, *help_words),) = printed_commands(refusal)
    ended = warm(*help_words)
    assert ended.status == 0 and f"kstate {name} [OPTIONS] APP" in ended.out, ended.report


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_sessions_that_a_release_reads_wrong(tmp_path: Path, warm: Warm) -> None:
    """The store is wiped with the printed command, or `dsl.store.format` stays at DEFAULT.

    A wiped store has a hint of its own, for applications that ran with at-least-once, as this one did.
    """
    app = unpack("4.2.1-kinds-alos", tmp_path / "state")
    words = ("migrate", app, "--to", "4.3", "--dsl-store-format")
    refusal = warm(*words, "HEADERS")
    assert refusal.status == 4 and "keep dsl.store.format=DEFAULT" in refusal.err, refusal.report
    assert warm(*words, "DEFAULT", "--dry-run").status in (0, 1)
    for _, *wipe in printed_commands(refusal):
        assert warm(*wipe).status in (0, 1)
    refusal = warm(*words, "HEADERS")
    assert refusal.status == 4 and "does not wipe the task, so pass --guarantee at_least_once" in refusal.err, (
        refusal.report
    )
    followed = warm(*words, "HEADERS", "--guarantee", "at_least_once")
    assert followed.status in (0, 1), followed.report


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_names_that_the_dsl_has_generated(app: Path, tmp_path: Path, warm: Warm) -> None:
    """Numbers alone say nothing of them; two texts show that the same operators have them."""
    generated = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    for partition in (0, 1):
        folder = app / f"0_{partition}" / "rocksdb"
        (folder / "latest-order").rename(folder / generated)
    refusal = warm("rehome", app, "--map", "0=4", "--dry-run")
    assert refusal.status == 4 and "--topology NEW.txt --from OLD.txt" in refusal.err, refusal.report
    for name, number in (("old", 0), ("new", 4)):
        described = text({number: (generated, *STORES[1:])}, global_stores=["customers"])
        (tmp_path / f"{name}.txt").write_text(described.replace("from-4", "from-0"))  # of the same operators
    followed = warm("rehome", app, "--topology", "new.txt", "--from", "old.txt", "--dry-run", folder=tmp_path)
    assert followed.status in (0, 1), followed.report


@pytest.mark.in_full("tests/directories/test_hints_followed.py::test_followed")
def test_spark_that_does_not_start(tmp_path: Path, warm: Warm) -> None:
    """With a master that there is, it starts."""
    words = [
        "restore",
        tmp_path / "orders",
        "--from-changelog",
        DUMP,
        "--spec",
        SPEC,
        "--for",
        "4.3",
        "--engine",
        "spark",
        "--master",
    ]
    refusal = warm(*words, "nonsense")
    assert refusal.status == 4 and "check --master and --conf" in refusal.err, refusal.report
    followed = warm(*words, "local[1,4]", *(() if "--after-error" not in refusal.err else ("--after-error",)))
    assert followed.status in (0, 1), followed.report


def test_an_undo_without_room(tmp_path: Path, warm: Warm) -> None:
    """The cause is fixed, and the printed command is run: the directory is the one of before."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=60m", "none") as small:
        app = unpack("4.3.1-demo-eos", small)
        before = warm("ls", app).out
        assert warm("migrate", app, "--to", "4.2", "--quiet").status == 0
        free = os.statvfs(small)
        (small / "other").write_bytes(bytes(free.f_bavail * free.f_frsize))
        refusal = warm("undo", app)
        assert refusal.status == 6 and "Fix the cause, then" in refusal.err, refusal.report
        (small / "other").unlink()
        ((_, *undo),) = printed_commands(refusal)
        assert warm(*undo).status == 0
        assert warm("ls", app).out == before
