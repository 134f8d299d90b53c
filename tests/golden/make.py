"""
Makes the golden state directories with real Kafka Streams: `python -m tests.golden.make [NAME...]`, without names all of them.

NAME.expected.json has

- `application`, `release`, `topology`, `guarantee`, `runs` (what was done to it, in order);
- `stores`: what the last run said of its stores just before it closed or was killed: entries, persistent, and position
  (partition -> topic -> partition -> offset);
- `changelogEnds`: topic -> partition -> end offset, as the restart found it;
- `restart`: what the same release said when it was started again on a copy: its exit code `rc`, its `stores`, `offsets` (the
  changelog offsets that it found: topic -> partition -> offset), `restored` (store -> records: of persistent stores 0 after a
  clean close), and `exceptions` and `warnings` where there were any;
- `databases`: every RocksDB, opened by the library of that release: its column families, rows in each, the offsets in hex.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..interop.harness import App, Batch, Guarantee, Harness, Run
from ..interop.jvm import Reply
from . import FOLDER

FEW = Batch(records=60, keys=8, value_bytes=8)
SMALL_BUFFERS = {"rocksdb.config.setter": "interop.SmallBuffers"}


@dataclass(frozen=True)
class Start:
    """One start of the application; a start after the first has a batch of input of its own."""

    release: str
    run: Run = field(default_factory=Run)
    batch: bool = True


@dataclass(frozen=True)
class Golden:
    """One state directory: which starts made it, and what it is there to show."""

    name: str
    topology: str
    guarantee: Guarantee
    starts: tuple[Start, ...]
    shows: str
    batch: Batch = FEW

    @property
    def release(self) -> str:
        """The release that had it last."""
        return self.starts[-1].release


def _kinds(release: str, guarantee: Guarantee, shows: str) -> Golden:
    name = f"{release}-kinds-{guarantee}"
    return Golden(name, "kinds", guarantee, (Start(release),), shows)


def _small(*, kill: bool) -> Run:
    return Run(kill=kill, conf=SMALL_BUFFERS)


# RocksDB takes no write buffer below 64 KiB: so much input flushes some stores, and with them the mark of an open store.
_KILLED = Batch(records=330, keys=10, value_bytes=220, partitions=1)
GOLDENS = (
    _kinds("3.2.3", "eos", "the oldest release with Positions: no emit-on-close, no versioned stores"),
    _kinds("3.4.1", "alos", "before versioned stores"),
    _kinds("3.6.2", "alos", "versioned stores and the grace buffer; RocksDB 7.9.2"),
    _kinds("3.6.2", "eos", "versioned stores and the grace buffer; RocksDB 7.9.2"),
    _kinds("3.9.2", "alos", "the last release that writes SST format 5"),
    _kinds("3.9.2", "eos", "the last release that writes SST format 5"),
    _kinds("4.1.2", "eos", "SST format 6, RocksDB 9.7.3"),
    _kinds("4.2.1", "alos", "the last release without the column family offsets"),
    _kinds("4.2.1", "eos", "the last release without the column family offsets"),
    _kinds("4.3.1", "alos", "offsets in each database"),
    _kinds("4.3.1", "eos", "offsets in each database"),
    Golden("4.3.1-headers-eos", "headers", "eos", (Start("4.3.1"),), "stores with record headers"),
    Golden("4.3.1-headers-joins-eos", "headers-joins", "eos", (Start("4.3.1"),), "join windows under dsl.store.format=HEADERS"),
    Golden("4.2.1-sparse-eos", "sparse", "eos", (Start("4.2.1"),), "stores never written to: -4, and a window store without segments"),
    Golden("4.3.1-sparse-eos", "sparse", "eos", (Start("4.3.1"),), "stores never written to, under 4.3"),
    Golden("4.3.1-kinds-eos-killed-open", "kinds", "eos", (Start("4.3.1", _small(kill=True)),), "killed with status open on disk", _KILLED),
    Golden("4.2.1-kinds-eos-killed-first", "kinds", "eos", (Start("4.2.1", _small(kill=True)),),
           "killed in its first run: rows on disk, -4 in .checkpoint", _KILLED),
    Golden("4.2.1-kinds-eos-killed-second", "kinds", "eos", (Start("4.2.1", _small(kill=False)), Start("4.2.1", _small(kill=True))),
           "killed in its second run: rows younger than .checkpoint", _KILLED),
    Golden("4.3.1-kinds-eos-upgraded", "kinds", "eos", (Start("4.2.1"), Start("4.3.1")),
           "4.2.1 upgraded by starting 4.3.1: the .position files are left, stale"),
    Golden("4.3.1-kinds-eos-upgrade-from", "kinds", "eos", (Start("4.3.1", Run(upgrade_from="4.2")),),
           "upgrade.from=4.2: .checkpoint beside the column family, with lines of in-memory stores"),
    Golden("3.9.2-sparse-named-eos", "sparse", "eos", (Start("3.9.2", Run(read=False, options={"named": "orders"})),),
           "a named topology: task directories below __orders__"),
    Golden("4.3.1-demo-eos", "demo", "eos", (Start("4.3.1"),), "what `kstate demo` shows", Batch(records=80, keys=8, value_bytes=12)),
)  # fmt: skip


def make(harness: Harness, golden: Golden, scratch: Path) -> dict[str, Any]:
    """Run the application, pack what it left on disk, and start it again on a copy to learn what it sees there."""
    demo = golden.topology == "demo"
    name = "orders" if demo else f"golden-{golden.name.replace('.', '')}"
    app = App(name, golden.topology, golden.guarantee, "shop" if demo else "")
    state = scratch / "state"
    batch = golden.batch
    before = Reply(1, [])
    for start in golden.starts:
        harness.produce(golden.release, app, batch)
        before = harness.run(start.release, app, state, start.run)
        if before.rc:
            raise SystemExit(f"{golden.name}: {before.report()}")
        batch = batch.next()
    with tarfile.open(FOLDER / f"{golden.name}.tar.xz", "w:xz", preset=9, format=tarfile.PAX_FORMAT) as archive:
        archive.add(state / name, name, filter=_anonymous)
    databases = harness.open(golden.release, state / name)
    restart = harness.run(golden.release, app, state, replace(golden.starts[-1].run, kill=False))
    expected = {
        "application": name,
        "release": golden.release,
        "topology": golden.topology,
        "guarantee": golden.guarantee,
        "runs": [{"release": s.release, "killed": s.run.kill, "conf": s.run.conf, "upgrade.from": s.run.upgrade_from}
                 for s in golden.starts],
        "stores": _stores(before),
        "changelogEnds": _by_topic(restart.of("restore-start"), "end"),
        "restart": {
            "rc": restart.rc,
            "stores": _stores(restart),
            "offsets": _by_topic(restart.of("checkpoint"), "offset"),
            "restored": {pair.partition("=")[0]: int(pair.partition("=")[2])
                         for event in restart.of("summary") for pair in event["restored"]},
            "exceptions": restart.of("exception"),
            "warnings": [row["text"] for row in restart.of("log") if "orrupt" in row["text"]],
        },
        "databases": {row.pop("path"): {k: v for k, v in row.items() if k != "event"} for row in databases.of("database")},
    }  # fmt: skip
    (FOLDER / f"{golden.name}.expected.json").write_text(_text(expected), encoding="utf-8")
    shutil.rmtree(state)
    harness.delete(golden.release, app)
    return expected


def _text(expected: dict[str, Any]) -> str:
    """As JSON with a line for each member of a member: short, and readable still."""
    parts = []
    for key, value in sorted(expected.items()):
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in sorted(value.items()))
            parts.append(f" {json.dumps(key)}: {{\n{lines}\n }}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _stores(reply: Reply) -> dict[str, Any]:
    return {row["store"]: {key: row[key] for key in ("entries", "persistent", "position")} for row in reply.of("store")}


def _by_topic(events: Iterable[dict[str, Any]], member: str) -> dict[str, dict[str, int]]:
    results: dict[str, dict[str, int]] = {}
    for event in events:
        results.setdefault(event["topic"], {})[str(event["partition"])] = event[member]
    return results


def _entry(golden: Golden, expected: dict[str, Any]) -> dict[str, Any]:
    """The line of index.json: how it was made, and what it shows."""
    return {
        "shows": golden.shows,
        "command": f"python -m tests.golden.make {golden.name}",
        **{key: expected[key] for key in ("application", "release", "topology", "guarantee", "runs")},
        "records": golden.batch.records,
        "keys": golden.batch.keys,
        "partitions": golden.batch.partitions,
        "value_bytes": golden.batch.value_bytes,
    }


def main() -> None:
    """Make the named ones, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden.make", description="Make the golden state directories."
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    unknown = set(names) - {golden.name for golden in GOLDENS}
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(g.name for g in GOLDENS)}")
    path = FOLDER / "index.json"
    lines = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    with tempfile.TemporaryDirectory(prefix="kstate-golden-") as scratch, Harness() as harness:
        for golden in GOLDENS:
            if not names or golden.name in names:
                lines[golden.name] = _entry(golden, make(harness, golden, Path(scratch)))
                print(
                    f"{golden.name}: {(FOLDER / f'{golden.name}.tar.xz').stat().st_size} bytes",
                    file=sys.stderr,
                    flush=True,
                )
    path.write_text(json.dumps(dict(sorted(lines.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
