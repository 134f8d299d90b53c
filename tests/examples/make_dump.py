"""Makes examples/dump and examples/dump.toml with real Kafka Streams: ``python -m tests.examples.make_dump``.

The application is the one of ``kstate demo``: "orders", with exactly-once, whose changelogs are dumped once it is closed.
``--keep-broker FILE`` leaves the broker up until FILE is removed, so that examples/dump_changelogs.py can be tried on it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from pathlib import Path

from kstate_cli.dump_reader.manifest import NAME, parse, render

from ..directories.support import kstate
from ..interop.harness import App, Batch, Harness
from ..interop.restoring import changelogs, dump_changelogs

ROOT = Path(__file__).resolve().parents[2]
DUMP, SPEC = ROOT / "examples" / "dump", ROOT / "examples" / "dump.toml"
RELEASE = "4.3.1"
APP = App("orders", "demo", "eos", "shop")
BATCH = Batch(records=80, keys=8, value_bytes=12)


def make(harness: Harness, scratch: Path) -> None:
    """Runs the application on an empty state directory, dumps its changelogs, and lets kstate write the specification."""
    harness.produce(RELEASE, APP, BATCH)
    state = scratch / "state"
    reply = harness.run(RELEASE, APP, state)
    if reply.rc:
        raise SystemExit(reply.report())
    path = dump_changelogs(harness, RELEASE, changelogs(reply), scratch / "dump")
    for old in (*DUMP.glob("**/*.parquet"), DUMP / "_manifest.json"):
        old.unlink(missing_ok=True)
    shutil.copytree(path, DUMP, dirs_exist_ok=True)
    (DUMP / NAME).write_bytes(render(parse((path / NAME).read_bytes())))
    text, filled = re.subn(r"^# (source = \"table\")  # to fill in: .*$", r"\1  # filled in by hand: it is a globalTable()",
                           kstate("ls", state / APP.name, "--spec", status=1).out, flags=re.MULTILINE)  # fmt: skip
    assert filled == 1 and "to fill in:" not in text, text
    SPEC.write_text(text, encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.examples.make_dump")
    parser.add_argument("--keep-broker", type=Path, metavar="FILE", help="a file that gets the broker's address")
    keep = parser.parse_args().keep_broker
    with tempfile.TemporaryDirectory(prefix="kstate-dump-") as scratch, Harness() as harness:
        make(harness, Path(scratch))
        if keep is not None:
            keep.write_text(harness.bootstrap, encoding="utf-8")
            while keep.exists():
                time.sleep(1)


if __name__ == "__main__":
    main()
