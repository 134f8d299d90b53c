"""Hints that name an option or a command, carried out: in the situation that prints one, and the command succeeds then.

A case is the command, its exit code, a part of the hint, and what the hint says to do: an amended command, or commands
that are run as they are printed. Each option of the amendment is in the hint. In the end the first command, as it is or
amended, succeeds.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from tests.golden import unpack
from tests.restore.support import TOPIC as BULK
from tests.unit.rehome.texts import text

from .test_cold import EXAMPLES
from .warm import Ended, Warm

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
    then: tuple[int, ...] = (0, 1)
    """Exit codes of it: 1 is done with warnings."""


CASES = {
    "bound": Case("query range APP latest-order --at nonsense", 2, "for example --at orders:0=1234",
                  "query range APP latest-order --at orders:0=0", (0, 1, 3)),
    "key serde": Case("query key APP latest-order nonsense --key-serde long", 2, "--key-serde names the serde that the application",
                      "query key APP latest-order nonsense --key-serde string"),
    "ls --spec as JSON": Case("ls APP --spec -o json", 2, "leave out one of --spec and -o json", "ls APP --spec"),
    "ls --spec sorted": Case("ls APP --spec --sort size", 2, "leave out one of --spec and --sort", "ls APP --spec"),
    "ls with a dump": Case(f"ls APP --from-changelog {DUMP}", 2, "add --spec", f"ls APP --spec --from-changelog {DUMP}"),
    "maintain without a file": Case("maintain --dry-run", 2, "--config FILE", "maintain --dry-run --config maintain.toml"),
    "follow once": Case(f"{_LOST} --standby --follow 1", 2, "--dry-run with --standby, then --follow", f"{_LOST} --standby"),
    "before without missing": Case(f"{_LOST} --before fleet.json", 2, "pass both, --missing FILE of now", f"{_LOST} --missing fleet.json --before fleet.json --host web"),
    "missing alone": Case(f"{_LOST} --missing fleet.json", 2, "--share 1/1 where this is the only one", f"{_LOST} --missing fleet.json --share 1/1"),
    "missing, another way": Case(f"{_LOST} --missing fleet.json", 2, "--before FILE --host NAME",
                                 f"{_LOST} --missing fleet.json --before fleet.json --host web"),
    "before without a name": Case(f"{_LOST} --missing fleet.json --before fleet.json", 2, "--host NAME",
                                  f"{_LOST} --missing fleet.json --before fleet.json --host web"),
    "hosts without a barrier": Case(f"{_LOST} --hosts 1", 2, "--barrier PLACE", f"{_LOST} --hosts 1 --barrier ."),
    "a barrier without hosts": Case(f"{_LOST} --barrier .", 2, "--hosts N", f"{_LOST} --barrier . --hosts 1"),
    "a barrier for a standby": Case(f"{_LOST} --standby --barrier . --hosts 1", 2, "leave out --barrier", f"{_LOST} --standby"),
    "share and hosts": Case(f"{_LOST} --missing fleet.json --share 1/1 --barrier . --hosts 2", 2, "leave --hosts out",
                            f"{_LOST} --missing fleet.json --share 1/1 --barrier ."),
    "purge": Case("wipe APP --store visits --purge", 2, "say --yes too", "wipe APP --store visits --purge --yes"),
    "wipe nothing": Case("wipe APP", 2, "--task, --store, --global or --all", "wipe APP --global --dry-run"),
    "export of Streams' own values": Case("export KINDS fk-subscription-store --out out --value-serde long", 4, "leave out --value-serde",
                                          "export KINDS fk-subscription-store --out out"),
    "export over another": Case("export APP visits --out exported", 4, "--overwrite", "export APP visits --out exported --overwrite"),
    "export over an interrupted one": Case("export APP visits --out interrupted", 4, "--overwrite",
                                           "export APP visits --out interrupted --overwrite"),
    "a dump without a manifest": Case(_PLAIN, 4, "--dump-is-complete (and --dump-is-committed",
                                      f"{_PLAIN} --dump-is-complete --dump-is-committed"),
    "a dump of unknown isolation": Case(f"{_PLAIN} --dump-is-complete", 4, "and say --dump-is-committed",
                                        f"{_PLAIN} --dump-is-complete --dump-is-committed"),
    "transactions never used": Case(f"{_PLAIN} --dump-is-complete", 4, "--guarantee at_least_once",
                                    f"{_PLAIN} --dump-is-complete --guarantee at_least_once"),
    "check by a plain dump": Case("check APP --for 4.3 --dump plain", 4, "--offsets FILE", "check APP --for 4.3 --offsets offsets.json",
                                  (0, 1, 3)),
    "a dump that does not grow": Case(f"{_LOST.replace(' --dry-run', '')} --standby --follow 1", 4, "leave out --follow",
                                      f"{_LOST.replace(' --dry-run', '')} --standby"),
    "memory without Spark": Case(f"{_LOST.replace(' --dry-run', '')} --memory 1M", 2, "give it more", f"{_LOST.replace(' --dry-run', '')} --memory 2G"),
    "a fleet without a listing": Case("fleet web=nothing.json", 2, "kstate ls APP -o json", "fleet web=web.json", (0, 1, 3)),
    "too many partitions": Case("fleet web=web.json --spec huge.toml", 4, "--spec", "fleet web=web.json --spec kstate.toml", (0, 1, 3)),
    "rehome, one text": Case(f"rehome APP --topology new.txt --from-changelog {DUMP}", 2, "--topology NEW.txt --from OLD.txt",
                             f"rehome APP --topology new.txt --from old.txt --from-changelog {DUMP} --for 4.3 --dry-run"),
    "rehome, no release": Case(f"rehome APP --topology new.txt --from old.txt --from-changelog {DUMP}", 2, "--for RELEASE, such as --for 4.3",
                               f"rehome APP --topology new.txt --from old.txt --from-changelog {DUMP} --for 4.3 --dry-run"),
    "rehome, --from with --map": Case("rehome APP --map 0=4 --from old.txt", 2, "--map needs no text", "rehome APP --map 0=4 --dry-run"),
    "rehome, two become one": Case("rehome APP --map 0=1 --map 5=1", 2, "what is merged say two texts: --topology, --from",
                                   "rehome APP --topology new.txt --from old.txt --dry-run"),
    "rehome, another old text": Case("rehome APP --topology new.txt --from other.txt", 4, "--from is the text of the topology that ran here last",
                                     "rehome APP --topology new.txt --from old.txt --dry-run"),
    "rehome, half of the stores": Case("rehome APP --topology half.txt", 4, "name the text of before too: --from OLD.txt",
                                       "rehome APP --topology half.txt --from old.txt --dry-run"),
    "rehome, named topologies": Case("rehome NAMED --map 0=4", 4, "--topology NEW.txt --from OLD.txt",
                                     "rehome NAMED --topology named-new.txt --from named-old.txt --dry-run"),
    "ls with a plain dump": Case("ls APP --spec --from-changelog plain", 4, "leave out --from-changelog", "ls APP --spec"),
}  # fmt: skip


NAMED, KINDS = "3.9.2-sparse-named-eos", "4.3.1-kinds-eos"
STORES = ("latest-order", "orders-per-minute", "visits")


def _prepared(folder: Path, warm: Warm, line: str) -> dict[str, str]:
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
    for word, golden in (("NAMED", NAMED), ("KINDS", KINDS)):
        if word in line:
            words[word] = str(unpack(golden, folder / word))
    for name, number in (("old", 0), ("new", 4)):
        stores = ("kv-never", "kv-written", "window-never")
        (folder / f"named-{name}.txt").write_text(text({number: stores}, named="orders"))
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


@pytest.mark.parametrize("name", CASES)
def test_followed(name: str, tmp_path: Path, warm: Warm) -> None:
    """The amended command, of which every new option is in the hint, is done."""
    case = CASES[name]
    words = _prepared(tmp_path, warm, f"{case.line} {case.amended}")
    refused = warm(*_line(case.line, words), folder=tmp_path)
    assert refused.status == case.status, refused.told
    _, _, hint = refused.err.partition("what to do: ")
    assert case.hint in hint, refused.told
    first, amended = shlex.split(case.line), shlex.split(case.amended)
    new = {word for word in amended if word.startswith("--") and word not in first} - {"--dry-run"}
    assert all(word in hint for word in new), f"the hint names not all of {new}: {hint}"
    followed = warm(*_line(case.amended, words), folder=tmp_path)
    assert followed.status in case.then, f"{case.amended}: {followed.told}"
