"""What `kstate ls -o json` says of a directory, as a file: what `kstate fleet` is given."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.golden import unpack

from .support import kstate


def write_listing(app: Path, name: str | None = None) -> Path:
    """Written beside the directory of the application's parent, called after the host."""
    listing = app.parent.parent / f"{name or app.parent.name}.json"
    listing.write_text(kstate("ls", app, "-o", "json", status=None).out)
    return listing


def three_hosts(top: Path) -> dict[str, Path]:
    """Listings of hosts that have the tasks of a real directory among them: 0_0 on two, 3_0 on none."""
    whole = unpack("4.3.1-kinds-eos", top / "whole")
    tasks = sorted(path.name for path in whole.iterdir() if path.is_dir() and path.name != "global")
    listings = {}
    for number, name in enumerate(("web-1", "web-2", "web-3")):
        app = top / name / whole.name
        app.mkdir(parents=True)
        (app / ".lock").touch()
        (app / "kafka-streams-process-metadata").write_text(
            json.dumps({"processId": f"{number}" * 8 + "-0000-4000-8000-000000000000"})
        )
        mine = [task for at, task in enumerate(tasks) if at % 3 == number and task != "3_0"]
        for task in {*mine, "global", *(("0_0",) if name == "web-2" else ())}:
            shutil.copytree(whole / task, app / task)
        listings[name] = write_listing(app)
    return listings
