"""Dumps and directories for these tests, and what is in a directory afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstate_cli.change.fingerprint import LISTS
from kstate_cli.rocks.shadow import Shadow
from tests import json_lines
from tests.directories.support import kstate

ROOT = Path(__file__).resolve().parents[2]
APP = "bulk-app"
TOPIC = f"{APP}-bulk-changelog"
SPEC = f"""format = 1
application = "{APP}"
[stores.bulk]
kind = "timestamped-key-value"
subtopology = 0
partitions = 2
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended; standard output as JSON lines."""

    status: int
    rows: list[dict[str, Any]]
    stderr: str

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["type"] == kind]


def command(app: Path, dump: Path, *options: str) -> list[str]:
    """A restoration, on Spark unless the options say otherwise."""
    spec = dump.parent / "kstate.toml"
    if not spec.exists():
        spec.write_text(SPEC, encoding="utf-8")
    if not {"--engine", "--master", "--conf"} & {*options}:
        options = (*options, "--engine", "spark")
    arguments = ["restore", str(app), "--from-changelog", str(dump), "--for", "4.3", "--spec", str(spec), "-o", "json"]
    return [sys.executable, "-m", "kstate_cli", *arguments, *options]


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def output_of(code: str) -> str:
    """What Python prints in a process of its own: PySpark goes on with a JVM that other tests have started in this one."""
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def start(app: Path, dump: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(app, dump, *options), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def await_end(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err, err
    assert isinstance(process.args, list)
    json_lines.check(process.args[3:], process.returncode, out, err)
    return Ended(process.returncode, json_lines.parse_lines(out), err)


def restore(app: Path, dump: Path, *options: str) -> Ended:
    return await_end(start(app, dump, *options))


def good(result: Ended) -> Ended:
    assert result.status == 0, result.stderr
    return result


def digest(app: Path) -> dict[str, str]:
    """Store directory -> digest of the rows of all its column families, whatever files they are in."""
    results = {}
    for current in sorted(app.rglob("CURRENT")):
        whole = hashlib.sha256()
        with Shadow(current.parent) as shadow:
            for family in shadow.column_families:
                for key, value in shadow.rows(family):
                    whole.update(repr((family, key, value)).encode())
        results[str(current.parent.relative_to(app))] = whole.hexdigest()
    return results


def remaining_files(app: Path) -> list[str]:
    """Files of kstate beside the application, but the journals, what is kept for undo, and how old the data is."""
    folder = app.parent / ".kstate" / app.name
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file()
        and path.name not in ("journal.jsonl", "ages.json", *LISTS)
        and path.relative_to(folder).parts[1:2] != ("tree",)
    )


def notes(app: Path, suffix: str) -> list[dict[str, Any]]:
    """The notes that attempts leave in the staging area while a run goes on."""
    results = []
    for path in (app.parent / ".kstate" / app.name).glob(f"*/runs/*{suffix}"):
        try:
            results.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return results


def status(app: Path) -> list[dict[str, Any]]:
    """The runs of an application, as `kstate status` prints them."""
    return kstate("status", app, "-o", "json").rows


def clean(app: Path) -> None:
    """`kstate clean`, also of an application whose directory was never made."""
    kstate("clean", app)
