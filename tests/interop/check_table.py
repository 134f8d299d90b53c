"""docs/check.md: the findings, and the table of predictions beside what real releases did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from kstate_cli.check.codes import CODES
from kstate_cli.patch_releases import BOUNDED_RESTORE
from kstate_cli.releases import release
from kstate_cli.texts import INTERNALS

from .check_cases import CASES, STARTED, Case
from .checking import AT_MOST, Fates, Predicted, Real
from .support import ROOT
from .topology_cases import CHANGES, A, B, Change

DOCS = ROOT / "docs" / "check.md"

_HEAD = """# What `kstate check` predicts, and what Kafka Streams does

`kstate check` predicts what will happen to each store when you start an application with a Kafka Streams release.
This page explains the predictions and the findings.

    kstate check APP --for 4.3 --dump DUMP    # or --offsets FILE, or --bootstrap-server HOST:PORT
    kstate check APP --for 4.2 --guarantee at_least_once -o json

For each store in each task, `check` predicts one of these outcomes:

- Kafka Streams opens the store unchanged.
- Kafka Streams restores some records, or the whole store.
- Kafka Streams wipes the task and restores all its stores. Stores without a changelog lose their rows.
- The application fails to start. `check` prints the name of the file that causes the failure, and the error that
  Kafka Streams will report.

By default, `check` prints one entry for all stores that have the same cause and outcome. With `--all`, it prints one
entry for each store. At the end of the output, `check` prints what to do about each finding.

If `check` reports errors or warnings, it exits with code 3. If it reports none, but the outcome of a store is unknown,
it exits with code 1. Otherwise, it exits with code 0. A script that starts the application only after code 0 therefore
never relies on an unknown outcome. No option changes this.

With `--seed-to ID`, `check` predicts nothing. If you run it before `kstate seed`, it checks [whether a seed is
possible](how-to/new-application-id.md#what-kstate-checks). If you run it afterwards, it checks that the seed has not
changed.

## Number of records and restoration time

`kstate check` can also predict how many records Kafka Streams will restore, and whether a store's offset is still
within the log. To do this, it needs one of these sources:

| source | how `check` uses it |
|---|---|
| `--dump DUMP` | `check` reads the manifest and counts the records in the dump. |
| `--offsets FILE` | `check` reads the start and the end of each log from a JSON file (see below). The predicted number of records is an upper bound. |
| `--bootstrap-server` | `check` requests the start and the end of each log from the broker. If the broker does not have a topic or a partition, `check` reports a finding. |

If you pass both a dump and a broker, `check` uses the broker's log starts and log ends. If the dump is from the same
log, `check` also counts the records in the dump. If the topic ids differ, `check` reports a finding.

The `--offsets` file has this format:

    {"TOPIC": {"0": {"start": 0, "end": 42, "id": "…", "committed": 40}}}

These members are optional: `id`, `committed`, `policy`, `delete_retention_ms`, `leader_epoch`, `retention_ms` and
`min_compaction_lag_ms`.

Because of transaction markers and compaction, some offsets do not belong to any record. Therefore, if you have the
Read permission, `check` reads the last part of each log and counts the records. It reads at most 50,000 offsets from
each partition, and at most 500,000 offsets and 256 MiB in total. If this is not enough, it reports an upper bound
("at most").

The verdict shows how many records Kafka Streams will restore *until RUNNING*, that is, until the application reaches
the RUNNING state. It also shows the minimum duration. If you do not pass a broker, `check` counts only the records up
to the end of the dump, or up to the log ends in the file.

To calculate the time, `check` uses the speed of kstate's last restoration of this directory, if that restoration was
large enough. Kafka Streams is slower than kstate because it writes one record at a time, so the calculated time is a
lower bound. If kstate has never restored this directory, or if `kstate clean` has deleted the record of that run,
`check` prints only the number of records. It also reports that no rate was measured.

The number does not include the records of in-memory stores, because these stores are not in the directory. Kafka
Streams restores in-memory stores every time the application starts.

In JSON, the summary has the members `restores`, `seconds_to_running`, `rate` and `rate_from`. Each store has a `lag`,
which is the number of changelog records that the store has not read yet. `lag_seconds` is the age of the first of
these records. The lag does not depend on the prediction. To print only the `lag`, run `kstate inspect-position` with
the same options.

## Lag

`kstate lag` shows how many records each store is behind its changelog, in all tasks together. It also shows the age
of the first record that the store has not read yet. The command needs a broker, a dump or an `--offsets` file. With
`-v`, it also prints the stored offset and the log end for each task and partition.

    kstate lag APP --bootstrap-server HOST:PORT --max-lag 10000 --metrics-file FILE

The lag of a task is unknown if the store has no offset, if no source contains the store's log, or if the offset is
outside the log. The store's total lag is then also unknown, and kstate writes no lag metric for the task. In this
case, kstate exits with code 1, or with code 0 if you pass `--warnings-ok`. If a store is more than `--max-lag`
records behind, or if kstate cannot read a store, kstate exits with code 3. If you pass a dump, kstate uses the log
ends from the time of the dump.

## While the application is running

While the application is running, the files contain the offsets and the status only as of the last flush. Many
predictions then depend on how the application will shut down. `check` reports these outcomes as `unknown` and exits
with code 1. To get a certain prediction, stop the application and run the check again. If a
finding depends on such an outcome, its level is `expected`. `check` still reports other problems, such as an
unreadable file, a foreign segment, a damaged SST, or the layout of a different release.

## Age of the data

`check` determines the age of the data from the table properties of the SSTs. Unlike file timestamps, these properties
do not change when you copy or link a file, when RocksDB compacts it, or when Kafka Streams 4.3 opens it. If kstate
wrote a store, `check` instead reads the age from `.kstate/APP/ages.json`. `kstate clean` does not delete this file.

Kafka keeps tombstones only for the time in `delete.retention.ms`. If a store's data is older than this, Kafka Streams
may miss deletions when it continues from the store's offset. `check` therefore reports the store. kstate takes the
retention time from the broker, the dump or `--delete-retention`, and otherwise assumes one day. To be safe, it
subtracts a tenth of this time, but at most an hour.
"""


@dataclass(frozen=True)
class Answer:
    """One case with one release: both sides agree."""

    case: Case | Change
    release: str
    predicted: Predicted
    real: Real


Cells = dict[tuple[str, str], str]
"""Case and release -> what both sides say."""


def cells(results: Sequence[Answer]) -> Cells:
    """The cells of what was run."""
    return {(entry.case.name, entry.release): _cell(entry) for entry in results}


def recorded_cells() -> Cells:
    """The cells that docs/check.md has."""
    rows = re.findall(
        r"^\| `([a-z0-9.-]+)` \|(.*)\|$", DOCS.read_text(encoding="utf-8").partition(_MARK)[2], re.MULTILINE
    )
    split = {name: [cell.strip() for cell in row.split(" | ")][2:] for name, row in rows}
    return {
        (name, release): cell for name, row in split.items() for release, cell in zip(STARTED, row, strict=True) if cell
    }


def render(of: Cells) -> str:
    """The document."""
    rows = []
    for case in CASES:
        text = f"; written by {case.made_by}" if case.made_by else ""
        guarantee = "at least once" if case.guarantee == "alos" else "exactly once"
        row = [
            f"`{case.name}`",
            f"{case.situation}{text}",
            guarantee,
            *(of.get((case.name, entry), "") for entry in STARTED),
        ]
        rows.append(f"| {' | '.join(row)} |")
    table = [_header("edit of the directory"), *rows]
    changes = [_row_of_change(change, of) for change in CHANGES]
    homes = [_header("what has changed"), *changes]
    parts = (_HEAD, _codes(), _TABLE, "\n".join((*table, "")), _HOMES, "\n".join((*homes, "")))
    return "\n".join(parts)


def _header(subject: str) -> str:
    names = ["case", subject, "guarantee", *STARTED]
    return f"| {' | '.join(names)} |\n{'|---' * len(names)}|"


def _row_of_change(change: Change, of: Cells) -> str:
    guarantee = "at least once" if change.guarantee == "alos" else "exactly once"
    cells_of_it = (of.get((change.name, entry), "") for entry in STARTED)
    return f"| {' | '.join((f'`{change.name}`', change.situation, guarantee, *cells_of_it))} |"


def _in_words(parts: str) -> str:
    return "; ".join(f"{number}: {', '.join(part.split('+'))}" for number, part in enumerate(parts.split(",")))


_MARK = "## Predictions and real releases"
_TABLE = f"""{_MARK}

The following tables compare predictions with real releases. In every cell, the release did what `check` had
predicted, record by record. For each case, a real release wrote a directory. A test then edited the directory as
described, and ran `kstate check`. After that, it started an application with the release in the column header. Unless
the row names a different release, this release had also written the directory.

The stores are `latest-order`, `orders-per-minute` and `visits` in tasks 0_0 and 0_1, and the global store
`customers`. The number after a store's name shows how many records Kafka Streams restored. Kafka Streams 4.4.0 may
skip expired records in window and session stores. Its cells therefore show the upper bound that `check` predicted. If
a cell does not contain a store's name, Kafka Streams opened the store unchanged. If a cell is empty, the case was not
tested with this release.
"""
_HOMES = f"""### Where the topology has changed

In these cases, the test passed `--topology` to `check`. It also passed `--from`, unless the row states otherwise. In
most cases, an application with the following topology wrote the directory. Each entry contains the number of a
sub-topology and the names of its stores:

    {_in_words(A)}

The test then started an application with a different topology. In most cases, it used this one:

    {_in_words(B)}

In every cell, the release again did what `check` had predicted. If `check` recommended `kstate rehome`, the test also
ran that command. Afterwards, `check` reported no findings, and the application restored only new stores and in-memory
stores.
"""


def _codes() -> str:
    rows = [
        f"| `{code.name}` | {code.level.value} | {_link_sections(code.rule)} | {code.hint} |" for code in CODES.values()
    ]
    head = ["## Findings", "", "| code | level | rule | what to do |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _link_sections(rule: str) -> str:
    """A rule whose sections can be followed from this document."""
    return re.sub(rf"{INTERNALS}/([\w-]+\.md#[\w-]+)", r"[\1](internals/\1)", rule)


def _cell(entry: Answer) -> str:
    if entry.real.failed:
        parts = next(
            messages for messages in entry.predicted.failures if all(part in entry.real.text for part in messages)
        )
        text = " ← ".join(re.sub(r" at location .*", "", part) for part in parts)
        result = "start never returns" if entry.real.hangs else "start fails"
        if isinstance(entry.case, Change):
            text = re.sub(r"(previous task is) \d+_\d+", r"\1 …", text)  # of several, whichever comes first
        return f"{result}: `{_neutral(text)}`"
    if entry.case.varies:
        return "as predicted (each kill leaves a different state)"
    fates = entry.real.fates
    if release(entry.release).is_new(BOUNDED_RESTORE):
        fates = {key: _bound(entry.predicted.fates.get(key, set())) or fate for key, fate in fates.items()}
    either = any(len(fates) > 1 for fates in entry.predicted.fates.values())
    return "at random, either wiped and restored or opened" if either else _fates(fates)


def _bound(predicted: set[str]) -> str | None:
    """The predicted upper bound: a release that may skip expired records does not restore the same number each time."""
    return next((fate for fate in sorted(predicted) if AT_MOST in fate), None)


def _neutral(text: str) -> str:
    return re.sub(r"\d{6}\.sst", "NNNNNN.sst", re.sub(r"app-\d+", "app", text))


def _fates(fates: Fates) -> str:
    parts = []
    for task, group in groupby(sorted(fates.items()), key=lambda item: item[0][0]):
        of_task = [(store, fate) for (_, store), fate in group if fate != "opens"]
        if not of_task:
            continue
        if all(fate.startswith("wiped") for _, fate in of_task):
            text = ", ".join(f"{store} {fate.partition(', ')[2]}" for store, fate in of_task)
            parts.append(f"{task} wiped: {text}")
        else:
            parts.append(f"{task}: " + ", ".join(f"{store} {fate}" for store, fate in of_task))
    return "; ".join(parts) or "opens"
