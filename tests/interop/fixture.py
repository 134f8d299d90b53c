"""One state directory of a real release with everything there is to know of it, in a folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from .harness import App, Batch, Guarantee, Harness, Run
from .jvm import Reply


def make(out: Path, release: str, topology: str, guarantee: Guarantee, batch: Batch, *, kill: bool = False) -> int:
    """
    Write to the new folder `out`:

    state/ as the run left it; changelogs/TOPIC.jsonl; and the stores as they were (stores-live.jsonl), after a restart
    (stores-restart), and after a restore from nothing (stores-restored), each with the events of its run (run-*.jsonl).
    Windows, sessions and versioned stores hide what has expired by the time they have seen since they were opened: compare a
    restarted run with a restarted run, and a restored one with a restored one.
    """
    out.mkdir(parents=True)
    app = App(
        f"fixture-{release.replace('.', '')}-{topology}-{guarantee}{'-kill' if kill else ''}", topology, guarantee
    )
    with Harness() as harness:
        work = harness.folder / "state"

        def run_once(label: str, *, killed: bool = False) -> Reply:
            reply = harness.run(release, app, work, Run(dump=out / f"stores-{label}.jsonl", kill=killed))
            lines = "".join(json.dumps(event) + "\n" for event in reply.events)
            (out / f"run-{label}.jsonl").write_text(lines, encoding="utf-8")
            return reply

        harness.produce(release, app, batch)
        live = run_once("live", killed=kill)
        if live.rc:
            return live.rc
        shutil.copytree(work, out / "state")
        topics = sorted(
            {event["topic"] for event in live.of("restore-start")}
        )  # names every changelog, source topics too
        (out / "changelogs").mkdir()
        files = [str(out / "changelogs" / f"{topic}.jsonl") for topic in topics]
        harness.command(release, do="dump-changelog", topics=topics, files=files)
        restart = run_once("restart")  # may well fail after a kill: that is a result
        shutil.rmtree(work)
        restored = run_once("restored")
    about = {"release": release, "application": app.name, "topology": topology, "guarantee": guarantee, "killed": kill}
    text = json.dumps({**about, "batch": asdict(batch), "restart": restart.rc}, indent=1) + "\n"
    (out / "fixture.json").write_text(text, encoding="utf-8")
    return restored.rc
