"""The dependencies of a release, pinned by version and hash: ``python -m tests.packaging.lock`` writes ``requirements.lock``.

The versions are those that are installed here, with which the tests ran. pip states the hash of the file that it would install
on this platform. The file has no URL, so that pip uses its own settings: ``pip install --require-hashes -r requirements.lock``.
With ``--check WHEEL`` nothing is written: the exit status is 1 if a dependency of the wheel lacks a pin or a hash, or is installed
in another version.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from .sbom import canonical, needed_by, requirements_of, without_extras

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
EXTRAS_ONLY = "# Only for the extras:"
"""The line above the pins that the container image does not need (``scripts/image-steps.sh``)."""
_PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+) --hash=sha256:(?P<digest>[0-9a-f]{64})")


def pins(text: str) -> dict[str, tuple[str, str]]:
    """Name -> version and SHA-256. Raise ValueError for a line that is neither a comment nor such a pin."""
    results = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _PIN.fullmatch(line)
        if match is None:
            raise ValueError(f"is no version with a hash: {line}")
        results[match["name"]] = (match["version"], match["digest"])
    return results


def problems(requirements: list[str], pinned: dict[str, tuple[str, str]]) -> list[str]:
    """Return what the pins lack of these requirements and of all that they need, in the versions that are installed."""
    results = []
    for name, version in sorted(needed_by(requirements).items()):
        if name not in pinned:
            results.append(f"{name} has no pin")
        elif pinned[name][0] != version:
            results.append(f"{name} is installed in version {version}, but its pin is {pinned[name][0]}")
    return results


def write(requirements: list[str]) -> str:
    """Return the text of the file; pip looks up the hashes."""
    needed = needed_by(requirements)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        lines = [f"{name}=={version}" for name, version in needed.items()]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet",
             "--report", report, *lines], check=True,
        )  # fmt: skip
        installs = json.loads(report.read_text())["install"]
    hashes = {
        canonical(row["metadata"]["name"]): row["download_info"]["archive_info"]["hashes"]["sha256"] for row in installs
    }
    tags = f"Python {platform.python_version()} on {platform.machine()} {platform.system()}"
    head = f"# The dependencies of kstate and of its extras for {tags}.\n# Written by: python -m tests.packaging.lock\n"
    required = without_extras(requirements)
    rows = {name: f"{name}=={needed[name]} --hash=sha256:{hashes[name]}\n" for name in sorted(needed)}
    first = "".join(line for name, line in rows.items() if name in required)
    return f"{head}{first}{EXTRAS_ONLY}\n" + "".join(line for name, line in rows.items() if name not in required)


def main() -> int:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, metavar="WHEEL")
    options = parser.parse_args()
    if options.check is None:
        LOCK.write_text(write(metadata.distribution("kstate").requires or []), encoding="utf-8")
        return 0
    wrong = problems(requirements_of(options.check), pins(LOCK.read_text(encoding="utf-8")))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
