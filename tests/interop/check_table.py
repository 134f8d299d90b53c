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

What will Kafka Streams do with each store when a release starts, and what does each finding of `kstate check` mean?

    kstate check APP --for 4.3 --dump DUMP            # and --offsets FILE or --bootstrap-server HOST:PORT, or none of them
    kstate check APP --for 4.2 --guarantee at_least_once -o json

For each store of each task, `check` predicts one of these outcomes:

- The store opens unchanged.
- Kafka Streams restores N records, or everything.
- Kafka Streams wipes the task, and restores all its stores. Stores without a changelog lose their rows.
- Startup fails. `check` names the file, and the error that Kafka Streams prints.

By default, `check` prints one entry for all stores with the same cause and outcome. With `--all`, it lists each store.
At the end, it prints what to do about each finding.

The exit code is 3 if `check` reports findings, and 0 otherwise.

## How many records, and how long

To predict how many records Kafka Streams restores, and whether an offset is still in the log, `check` needs to know
the log. Pass one of these sources:

| source | what `check` uses |
|---|---|
| `--dump DUMP` | It reads the manifest, and counts the records in the dump. |
| `--offsets FILE` | It reads log starts and ends from a JSON file, as described below. The number of records is an upper bound. |
| `--bootstrap-server` | It reads log starts and ends from the broker. If the broker does not have a topic or a partition, `check` reports a finding. |

If you pass a dump and a broker, the broker takes precedence. `check` still counts the records in the dump, if it is a
dump of the same log. If the topic ids differ, it reports a finding.

The file of `--offsets` has this format:

    {"TOPIC": {"0": {"start": 0, "end": 42, "id": "…", "committed": 40}}}

`id` and `committed` are optional. So are `policy`, `delete_retention_ms`, `leader_epoch`, `retention_ms` and `min_compaction_lag_ms`.

Not every offset belongs to a record, because of transaction markers and compaction. If the user has the permission
Read, `check` therefore also reads the ends of the logs and counts the records. It reads at most 50,000 offsets of a
partition, and 500,000 offsets and 256 MiB in total. Beyond these limits, it reports an upper bound ("at most").

The first line shows how many records Kafka Streams restores *until RUNNING*. Without a broker, it shows the number up
to the end of the dump or the file. It also shows how long this takes at least. `check` calculates this time from the
rate of the last sufficiently large restoration by kstate on this directory. Kafka Streams is slower, because it
writes record by record. `kstate clean` deletes the measured rate. Without a rate, `check` reports that none was
measured.

The sum does not include in-memory stores, because they leave no trace in a directory. Kafka Streams restores them at
every start.

In JSON, the summary has the members `restores`, `seconds_to_running`, `rate` and `rate_from`. Each store has `lag`,
the number of records in its log that it has not read, independently of the prediction. `lag_seconds` is the age of
the first of them. `kstate inspect-position` with the same options prints only the `lag`.

## Lag

`kstate lag` shows how many records each store is behind its changelog now, summed over its tasks, and how old the
first of them is. It needs a broker, a dump or a file of `--offsets`. With `-v`, it also prints the stored offset and
the end of the log for each task and partition.

    kstate lag APP --bootstrap-server HOST:PORT --max-lag 10000 --metrics-file FILE

A lag is unknown if the store has no offset, if none of the sources contains its log, or if the offset is outside the
log. In this case the sum is also unknown, kstate writes no metric, and the exit code is 1, or 0 with `--warnings-ok`.
The exit code is 3 if a store is more than `--max-lag` records behind, or if kstate cannot read something. With a
dump, kstate uses the ends of the logs at the time of the dump.

## While the application is running

While the application is running, the offsets and the status on disk are those of the last flush. Many predictions
then depend on how the application will be closed. `check` reports such outcomes as `unknown`, and their consequences
as expected. It still reports problems that do not depend on this, such as an unreadable file, a foreign segment, a
damaged SST, or the layout of another release.

## How old the data is

`check` reads the age of the data from the table properties of SSTs. They stay the same if you copy or link a file, if
RocksDB compacts it, or if 4.3 starts. For stores that kstate wrote, it reads `.kstate/APP/ages.json`, which `kstate
clean` keeps.

Kafka keeps tombstones only for `delete.retention.ms`. If the data of a store is older, Kafka Streams may miss deletes
when it continues from the store's offset, and `check` reports this. kstate subtracts a margin of a tenth of that
time, or an hour. It takes the retention from the broker, the dump or `--delete-retention`. The default is one day.
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
        text = f"; made by {case.made_by}" if case.made_by else ""
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


_MARK = "## Beside real releases"
_TABLE = f"""{_MARK}

The tables show predictions that real releases confirmed, record by record. For each case, a real release wrote a
directory, by default the release that was started later. The test edited the directory as described, ran `kstate
check`, and started the release.

The stores are `latest-order`, `orders-per-minute` and `visits` in tasks 0_0 and 0_1, and the global store
`customers`. A number is the number of restored records. 4.4.0 may skip expired records of window and session stores,
so their cells show the upper bound that `check` predicts. If a cell does not mention a store, the store opened
unchanged. Empty cells were not tested.
"""
_HOMES = f"""### Where the topology has changed

These cases use `--topology`, and by default also `--from`. In most cases, this topology wrote the directory (number:
stores):

    {_in_words(A)}

Then another topology was started, in most cases this one:

    {_in_words(B)}

The cells show predictions that the release confirmed. Empty cells were not tested. If `check` recommended `kstate
rehome`, the test ran it. Afterwards `check` reported no findings, and the release restored only new stores and
in-memory stores.
"""


def _codes() -> str:
    rows = [f"| `{code.name}` | {code.level.value} | {_linked(code.rule)} | {code.hint} |" for code in CODES.values()]
    head = ["## Findings", "", "| code | level | rule | what to do |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _linked(rule: str) -> str:
    """A rule whose sections can be followed from this document."""
    return re.sub(rf"{INTERNALS}/([\w-]+\.md#[\w-]+)", r"[\1](internals/\1)", rule)


def _cell(entry: Answer) -> str:
    if entry.real.failed:
        parts = next(
            messages for messages in entry.predicted.failures if all(part in entry.real.text for part in messages)
        )
        text = " ← ".join(re.sub(r" at location .*", "", part) for part in parts)
        how = "start never returns" if entry.real.hangs else "start fails"
        if isinstance(entry.case, Change):
            text = re.sub(r"(previous task is) \d+_\d+", r"\1 …", text)  # of several, whichever comes first
        return f"{how}: `{_neutral(text)}`"
    if entry.case.varies:
        return "as predicted (a kill leaves something else each time)"
    fates = entry.real.fates
    if release(entry.release).is_new(BOUNDED_RESTORE):
        fates = {key: _bound(entry.predicted.fates.get(key, set())) or fate for key, fate in fates.items()}
    either = any(len(fates) > 1 for fates in entry.predicted.fates.values())
    return "wiped and restored, or opens: chance decides" if either else _fates(fates)


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
