"""docs/check.md: the findings, and the table of predictions beside what real releases did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from kstate_cli.check.findings import CODES
from kstate_cli.texts import INTERNALS

from .check_cases import CASES, THREE, Case
from .checking import Fates, Predicted, Real
from .support import ROOT
from .topology_cases import CHANGES, A, B, Change

DOCS = ROOT / "docs" / "check.md"

_HEAD = """# What `kstate check` says, and what Kafka Streams does

    kstate check APP --for 4.3 --dump DUMP            # and --offsets FILE or --bootstrap-server HOST:PORT, or none of them
    kstate check APP --for 4.2 --guarantee at_least_once -o json

For each store of each task: opens as it is; restores N records; restores everything; its task is wiped, so that it restores
everything, or, without a changelog, has lost its rows; the start fails, with the file and the text that Streams prints. How many
records are restored, and whether an offset is still in the log, is said only where the log is known: from the manifest of a dump
(records are counted), or from a file
`{"TOPIC": {"0": {"start": 0, "end": 42, "id": "…", "committed": 40}}}` (at most so many; `id` and `committed` may be missing,
and so may `policy`, `delete_retention_ms`, `leader_epoch`, `retention_ms` and `min_compaction_lag_ms`). `--bootstrap-server` asks a broker for the same; a topic or
a partition that it does not have is a finding. Where a dump is given too, what the broker says goes first, records are counted
in the dump as long as it is of the same log, and topic ids that differ are a finding.

Of a broker the ends of logs are read as well, where that is little (up to 50,000 offsets of a partition, 500,000 and 256 MiB
altogether) and this user may (Read): then records are counted, and none of what has an offset and is no record, a transaction
marker or what was compacted away. What is not read is said as "at most".

The first line says how much the next start restores *until RUNNING*, or, where no broker is asked, up to the end that the dump or
the file says; and how long that takes at the rate that the last large enough restoration of kstate here measured (`kstate clean` forgets it): the least, since
Streams writes record by record. Where none was measured it says so. Stores in memory, which every start restores whole, leave no
trace in a directory, and are not in the sum. In JSON: `restores`, `seconds_to_running`, `rate`, `rate_from` in the summary, and for each
store `lag`, the records that it has not seen of its log whatever the start makes of it, and `lag_seconds`, how old the first of them is.
`kstate inspect-position` with the same options has the `lag` alone.

Exit code 0: nothing but what is expected. 3: findings.

Beside a running application the offsets and the status on disk are those of its last flush, and what the next start does
depends on how this one is closed: such outcomes are `unknown`, and what follows from them is expected, no finding. What is
wrong whatever comes (a file that cannot be read, a foreign segment, a damaged SST, the wrong layout) stays one.

How old data is, is what SSTs say of themselves (their table properties; a time that a copy, a link, a compaction or a start of
4.3 does not make younger) and what kstate wrote down of its own runs (`.kstate/APP/ages.json`, which `kstate clean` leaves). A
store that goes on from its offset hears of every delete only within `delete.retention.ms` of the age of its data, less a tenth
of that time or an hour; it is what the broker or the dump says, `--delete-retention`, or a day.
"""


@dataclass(frozen=True)
class Found:
    """One case with one release: both sides agree."""

    case: Case | Change
    release: str
    predicted: Predicted
    real: Real


Cells = dict[tuple[str, str], str]
"""Case and release -> what both sides say."""


def cells(found: Sequence[Found]) -> Cells:
    """The cells of what was run."""
    return {(one.case.name, one.release): _cell(one) for one in found}


def known() -> Cells:
    """The cells that docs/check.md has."""
    rows = re.findall(
        r"^\| `([a-z0-9.-]+)` \|(.*)\|$", DOCS.read_text(encoding="utf-8").partition(_MARK)[2], re.MULTILINE
    )
    split = {name: [cell.strip() for cell in row.split(" | ")][2:] for name, row in rows}
    return {
        (name, release): cell for name, row in split.items() for release, cell in zip(THREE, row, strict=True) if cell
    }


def render(of: Cells) -> str:
    """The document."""
    rows = []
    for case in CASES:
        made = f"; made by {case.made_by}" if case.made_by else ""
        guarantee = "at least once" if case.guarantee == "alos" else "exactly once"
        row = [f"`{case.name}`", f"{case.what}{made}", guarantee, *(of.get((case.name, one), "") for one in THREE)]
        rows.append(f"| {' | '.join(row)} |")
    table = ["| case | edit of the directory | guarantee | 3.9.2 | 4.2.1 | 4.3.1 |", "|---|---|---|---|---|---|", *rows]
    changes = [_row_of_change(change, of) for change in CHANGES]
    homes = ["| case | what has changed | guarantee | 3.9.2 | 4.2.1 | 4.3.1 |", "|---|---|---|---|---|---|", *changes]
    parts = (_HEAD, _codes(), _TABLE, "\n".join((*table, "")), _HOMES, "\n".join((*homes, "")))
    return "\n".join(parts)


def _row_of_change(change: Change, of: Cells) -> str:
    guarantee = "at least once" if change.guarantee == "alos" else "exactly once"
    cells_of_it = (of.get((change.name, one), "") for one in THREE)
    return f"| {' | '.join((f'`{change.name}`', change.what, guarantee, *cells_of_it))} |"


def _in_words(parts: str) -> str:
    return "; ".join(f"{number}: {', '.join(part.split('+'))}" for number, part in enumerate(parts.split(",")))


_MARK = "## Beside real releases"
_TABLE = f"""{_MARK}

Made by the test run (`KSTATE_INTEROP=all`). Each directory was left by a real release (the one that is started, unless it says
otherwise), edited as it says, checked, and then started: what stands here was predicted, and is what the release did, record by
record. Stores: `latest-order`, `orders-per-minute` and `visits` in tasks 0_0 and 0_1, `customers` global. A number is how many
records were restored; stores that are not named opened as they are.
"""
_HOMES = f"""### Where the topology has changed

The same with `--topology`, and `--from` unless it says otherwise: each directory was left by a topology, most of them by

    {_in_words(A)}

(number: stores), and another one was started, most often

    {_in_words(B)}

What stands here was foretold, and is what the release did; what is empty was not run. Where `kstate rehome` was named, it was run, and then the same check
found nothing, and the release restored nothing but new stores and those in memory
(`tests/interop/test_check_topology.py::test_the_prediction_is_what_the_new_topology_does`).
"""


def _codes() -> str:
    rows = [f"| `{one.name}` | {one.level.value} | {_linked(one.rule)} | {one.hint} |" for one in CODES.values()]
    head = ["## Findings", "", "| code | level | rule | what to do |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _linked(rule: str) -> str:
    """A rule whose sections can be followed from this document."""
    return re.sub(rf"{INTERNALS}/([\w-]+\.md#[\w-]+)", r"[\1](internals/\1)", rule)


def _cell(one: Found) -> str:
    if one.real.failed:
        parts = next(messages for messages in one.predicted.failures if all(part in one.real.text for part in messages))
        text = " ← ".join(re.sub(r" at location .*", "", part) for part in parts)
        how = "start never returns" if one.real.hangs else "start fails"
        if isinstance(one.case, Change):
            text = re.sub(r"(previous task is) \d+_\d+", r"\1 …", text)  # of several, whichever comes first
        return f"{how}: `{_neutral(text)}`"
    if one.case.varies:
        return "as predicted (a kill leaves something else each time)"
    fates = one.real.fates
    either = any(len(fates) > 1 for fates in one.predicted.fates.values())
    return "wiped and restored, or opens: chance decides" if either else _fates(fates)


def _neutral(text: str) -> str:
    return re.sub(r"\d{6}\.sst", "NNNNNN.sst", re.sub(r"app-\d+", "app", text))


def _fates(fates: Fates) -> str:
    parts = []
    for task, group in groupby(sorted(fates.items()), key=lambda item: item[0][0]):
        of_task = [(store, fate) for (_, store), fate in group if fate != "opens"]
        if not of_task:
            continue
        if all(fate.startswith("wiped") for _, fate in of_task):
            named = ", ".join(f"{store} {fate.partition(', ')[2]}" for store, fate in of_task)
            parts.append(f"{task} wiped: {named}")
        else:
            parts.append(f"{task}: " + ", ".join(f"{store} {fate}" for store, fate in of_task))
    return "; ".join(parts) or "opens"
