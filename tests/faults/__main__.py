"""What a sweep's log says: python -m tests.faults FOLDER."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from .sweep import rows


def main() -> int:
    """Print the numbers; exit status 1 when something was wrong."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    last = {row["key"]: row for row in rows(Path(sys.argv[1]))}
    table: Counter[tuple[str, str, str, str]] = Counter()
    for row in last.values():
        table[row["case"], row["call"], row["action"], row["directory"][:7]] += 1
    for (case, call, action, directory), count in sorted(table.items()):
        print(f"{case:11} {call:11} {action:15} {directory:8} {count:6}")
    cases = Counter((case, directory) for (case, _, _, directory) in table.elements())
    for (case, directory), count in sorted(cases.items()):
        print(f"{case}: {directory} {count}")
    wrong = [f"{key}: {row['wrong']}" for key, row in last.items() if row["wrong"]]
    minutes = sum(row["seconds"] for row in last.values()) / 60
    print(f"{len(last)} faults, {len(wrong)} wrong, {minutes:.0f} minutes of one worker")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
