"""Makes the archives of this folder anew: python -m tests.golden.make_archives [NAME...], in the project's folder."""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tests.golden.archives import HERE, INDEX
from tests.interop.harness import App, Batch, Guarantee, Harness, Run
from tests.interop.jvm import Reply

End = Literal["closed", "killed"]

# Files of RocksDB hold the path of their folder: a neutral one.
WORK = Path(tempfile.gettempdir()) / "kstate-golden"
SMALL_BUFFERS = {"rocksdb.config.setter": "interop.SmallBuffers"}
SERVER = "4.3.1"
"""The release that produces input and reads changelogs."""


@dataclass(frozen=True)
class Golden:
    """One state directory; runs: how each run ended (killed: the JVM halted once everything was committed)."""

    release: str
    topology: str
    guarantee: Guarantee
    runs: tuple[End, ...] = ("closed",)
    records: int = 80
    keys: int = 10
    partitions: int = 1
    value_bytes: int = 24
    small_buffers: bool = False

    @property
    def application(self) -> str:
        """The application's id, which no other state directory has."""
        ends = "" if self.runs == ("closed",) else "-" + "-".join(self.runs)
        return f"golden-{self.release.replace('.', '')}-{self.topology}-{self.guarantee}{ends}"


def killed(release: str, *runs: End) -> Golden:
    """A state directory of a killed run, with buffers so small that data, and marks of open stores, are on disk."""
    return Golden(release, "kinds", "eos", runs, records=400, value_bytes=200, small_buffers=True)


GOLDENS = {
    "4.3.1-kinds-eos": Golden("4.3.1", "kinds", "eos"),
    "4.3.1-demo-eos": Golden("4.3.1", "demo", "eos", records=120, partitions=2),
    "4.3.1-kinds-alos": Golden("4.3.1", "kinds", "alos"),
    "4.2.1-kinds-eos": Golden("4.2.1", "kinds", "eos"),
    "4.2.1-kinds-alos": Golden("4.2.1", "kinds", "alos"),
    "3.9.2-kinds-eos": Golden("3.9.2", "kinds", "eos"),
    "4.3.1-headers-eos": Golden("4.3.1", "headers", "eos", partitions=2),
    "3.6.2-kinds-alos": Golden("3.6.2", "kinds", "alos"),
    "4.1.2-kinds-eos": Golden("4.1.2", "kinds", "eos"),
    "4.2.1-sparse-eos": Golden("4.2.1", "sparse", "eos", partitions=2),
    "4.2.1-kinds-eos-killed-first": killed("4.2.1", "killed"),
    "4.2.1-kinds-eos-killed-second": killed("4.2.1", "closed", "killed"),
    "4.3.1-kinds-eos-killed-open": killed("4.3.1", "killed"),
}


def pack(state: Path, target: Path) -> None:
    """Without RocksDB's text logs, and without users and times, so that the same files make the same archive."""
    with lzma.open(target, "wb", preset=9 | lzma.PRESET_EXTREME) as xz, tarfile.open(fileobj=xz, mode="w") as archive:
        for path in sorted(state.rglob("*")):
            if path.name == "LOG" or path.name.startswith("LOG.old."):
                continue
            info = archive.gettarinfo(str(path), arcname=str(Path("state") / path.relative_to(state)))
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            if path.is_file():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)


def ends(harness: Harness, reply: Reply) -> dict[str, dict[str, int]]:
    """The end of each partition of the changelogs that a run named."""
    topics = sorted({event["topic"] for event in reply.of("restore-start")})
    files = [str(WORK / f"{topic}.jsonl") for topic in topics]
    told = harness.command(SERVER, do="dump-changelog", topics=topics, files=files)
    return {
        event["topic"]: {partition: counts["end"] for partition, counts in event["partitions"].items()}
        for event in told.of("dump-changelog")
    }


def make(harness: Harness, name: str) -> dict[str, Any]:
    """Run the application, pack its state directory, and return what index.json tells of it."""
    golden = GOLDENS[name]
    app = App(golden.application, golden.topology, golden.guarantee)
    state = WORK / name / "state"
    batch = Batch(golden.records, 0, golden.keys, golden.value_bytes, 1, golden.partitions)
    reply = Reply(1, [])
    for end in golden.runs:
        harness.produce(SERVER, app, batch)
        conf = SMALL_BUFFERS if golden.small_buffers else {}
        reply = harness.run(golden.release, app, state, Run(kill=end == "killed", conf=conf))
        if reply.rc:
            raise SystemExit(f"{name}: {reply.told()}")
        batch = batch.then()
    pack(state, HERE / f"{name}.tar.xz")
    shutil.rmtree(WORK / name)
    stores = {
        event["store"]: {"entries": event["entries"], "position": event["position"]}
        for event in sorted(reply.of("store"), key=lambda event: str(event["store"]))
    }
    command = f"python -m tests.golden.make_archives {name}"
    facts = {"application": golden.application, "command": command, "changelogEnds": ends(harness, reply), "stores": stores}
    return {**asdict(golden), **facts}


def main() -> int:
    """Make those that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make_archives", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(GOLDENS))
    wanted = parser.parse_args().names
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    with Harness(WORK / "harness") as harness:
        for name in wanted:
            known = json.loads(INDEX.read_text(encoding="utf-8")) if INDEX.exists() else {}
            known[name] = make(harness, name)
            INDEX.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")
            print(name, (HERE / f"{name}.tar.xz").stat().st_size, flush=True)
    shutil.rmtree(WORK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
