"""Tables within pages that people write, made from the code. `python -m tests.marked_tables` writes them anew.

A table stands between two comments, the first of which names it. A page's tables and the functions here are the same set:
a mark that nothing makes, and a table that no page has, are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kstate_cli.errors import ConditionNotMet, InUse
from kstate_cli.explain.catalogue import groups
from kstate_cli.explain.model import Explanation
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import kind_names, store_kind
from kstate_cli.query.result import FailureReason
from kstate_cli.releases import CONFLUENT, CONFLUENT_NAME, RELEASES
from kstate_cli.rows.errors import StoreUnreadable
from kstate_cli.rows.records import shape_of
from tests import json_lines
from tests.interop import pairs, proving, rolling, snapshot_campaign, starts
from tests.json_page import members_of
from tests.reference_pages import markdown, markdown_table

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
_MARKED: Final = re.compile(
    r"(<!-- table ([a-z-]+), from the code: [^\n]*-->\n)(.*?)(<!-- end of table -->\n)", re.DOTALL
)
_SHORT: Final = {"alos": "a", "eos": "e"}
_ROW_OF_A_SHAPE: Final = {
    "key-value": "key",
    "window": "window of a key",
    "session": "session of a key",
    "versioned": "version of a key",
    "list-value": "record that waits in an outer join",
    "foreign-key-subscription": "subscription. `key` is the primary key",
    "grace-buffer": "record that waits",
}
_EXIT: Final = re.compile(r"(.*) \(exit (?:code )?(.*)\)")


def errors() -> str:
    """The codes of errors, as ``kstate explain`` has them."""
    rows = []
    for explanation in _explanations("error"):
        match = _EXIT.fullmatch(explanation.brief)
        assert match, explanation.brief
        number = match[2] if match[2].isdigit() else "128+N"
        rows.append((f"`{explanation.code}`", number, markdown(f"{match[1]}. {explanation.more}".rstrip())))
    return markdown_table(("`code`", "`exit`", ""), rows)


def query_lines() -> str:
    """The lines of ``query -o json``, from the schema."""
    rows = [
        (f"`{kind}`", members_of(entry), markdown(entry["description"]))
        for kind, entry in json_lines.types("query")
        if kind != "error"
    ]
    return markdown_table(("type", "members", "meaning"), rows)


def query_failures() -> str:
    """Why a partition did not answer, from the catalogue of codes."""
    rows = []
    for explanation in _explanations("query"):
        unreadable = explanation.code == FailureReason.STORE_EXCEPTION.value
        exits = (StoreUnreadable, InUse) if unreadable else (ConditionNotMet,)
        rows.append(
            (
                f"`{explanation.code}`",
                " or ".join(str(kind.exit_code) for kind in exits),
                markdown(explanation.meaning),
                "; ".join(_code(line) for line in explanation.do),
            )
        )
    return markdown_table(("failure", "exit", "what it means offline", "what to do"), rows)


def export_columns() -> str:
    """The columns of an export, by kind of store; a kind of which only the folder is known has no rows."""
    kinds: dict[str, list[str]] = {name: [] for name in _ROW_OF_A_SHAPE}
    columns: dict[str, tuple[str, ...]] = {}
    for kind in sorted(kind_names()):
        if store_kind(kind).key is not KeySchema.AMBIGUOUS:
            shape = shape_of(kind)
            kinds[shape.name].append(kind)
            columns[shape.name] = shape.columns
    rows = [
        (", ".join(names), ", ".join(f"`{column}`" for column in columns[shape]), _ROW_OF_A_SHAPE[shape])
        for shape, names in kinds.items()
    ]
    return markdown_table(("kinds", "columns after `partition`", "one row for each"), rows)


def confluent(releases: Mapping[str, str] = CONFLUENT) -> str:
    """Releases of Confluent Platform that have an Apache release which kstate knows."""
    names = {release.name: f"{release.name} (unproven)" if release.unproven else release.name for release in RELEASES}
    output = {theirs: names[apache] for theirs, apache in releases.items() if apache in names}
    return markdown_table(("Confluent Platform", *output), [("Apache Kafka, for `--to` and `--for`", *output.values())])


def pair_matrix() -> str:
    """From each release to each: under which guarantees it was run."""
    proofs: dict[tuple[str, str], dict[str, pairs.Proof]] = {}
    for proof in pairs.proofs():
        if len(proof.chain) == 2 and set(proof.chain) <= set(pairs.LINES):
            proofs.setdefault((proof.chain[0], proof.chain[1]), {})[proof.guarantee] = proof
    theirs = {apache: name for name, apache in CONFLUENT.items()}
    rows = []
    for source in pairs.LINES:
        cells = []
        for target in pairs.LINES:
            here = proofs.get((source, target), {})
            star = "\\*" if any(entry.restored for entry in here.values()) else ""
            cells.append("·" if source == target else ", ".join(_SHORT[entry] for entry in sorted(here)) + star)
        rows.append((f"{source} ({CONFLUENT_NAME}{theirs[pairs.line(source)]})", *cells))
    return markdown_table(("from ↓ to →", *pairs.LINES), rows)


def pair_rows() -> str:
    """Every row of the record."""
    return markdown_table(("from", "to", "guarantee", "restored", "seconds"), pairs.rows(pairs.proofs()))


def proven_releases() -> str:
    """The releases that were proven one by one: how many cases of each kind have passed."""
    head = ("release", "pairs", *proving.KINDS.values(), "most records restored in a pair", "minutes")
    return markdown_table(head, proving.rows(proving.recorded(), pairs.proofs()))


def start_rows() -> str:
    """Every row of the record of starts."""
    messages = {"restored": "restored before RUNNING", "after": "restored later", "moved": "active tasks moved"}
    rows = []
    recorded = starts.read_record()
    for case in starts.cases():
        row = recorded.get(case.name)
        if row is not None:
            extra = [
                *(["standby"] * case.standby),
                *(["static members"] * case.static),
                *(["barrier"] * case.barrier),
                *([case.size] if case.size == "small" else []),
                *([] if case.lag is None else [f"`acceptable.recovery.lag` {case.lag}"]),
            ]
            rows.append((
                case.lost, case.protocol, f"{case.delay_ms / 1000:g} s", f"{case.apart} s", ", ".join(extra),
                *(f"{row[name]:,}" for name in messages), str(row["tasks"]).strip("[]"), f"{row['seconds']} s",
            ))  # fmt: skip
    head = (
        "lost",
        "protocol",
        "rebalance delay",
        "interval",
        "settings",
        *messages.values(),
        "active tasks per instance",
        "RUNNING after",
    )
    return markdown_table(head, rows)


def rolling_rows() -> str:
    """Every way of going from one release to another that was run under load, the last run of each."""
    ways = [*rolling.WAYS]
    results = {(row["from"], row["to"], row["way"]): row for row in rolling.read_record()}
    rows = [
        (f"{source} → {target}", rolling.WAYS[way] + ("; one of the three" if row.get("only") == 1 else ""), _away(row), _restored_cell(row), f"{row['still_median']} s",
         f"{row['still_longest']} s", f"{row['seconds']} s")
        for (source, target, way), row in sorted(results.items(), key=lambda pair: (pair[0][:2], ways.index(pair[0][2])))
    ]  # fmt: skip
    head = ("releases", "procedure", "absence, session timeout", "restored records", "median pause", "longest pause",
            "all started after")  # fmt: skip
    return markdown_table(head, rows)


def snapshot_rows() -> str:
    """The campaign of snapshots of running applications, a row for each case."""
    rows = []
    for sums in snapshot_campaign.summary():
        usable = f"{sums.usable} of {sums.windowed}" if sums.windowed else ""
        rows.append((sums.title, str(sums.snapshots), str(sums.started), str(sums.skipped), usable, sums.causes))
    head = (
        "application",
        "snapshots",
        "started with Streams",
        "skipped attempts",
        "windowed stores with an offset",
        "windowed stores without an offset",
    )
    return markdown_table(head, rows)


def _away(row: Mapping[str, Any]) -> str:
    return f"{row['away']} s, {row['session']} s" if "away" in row else "not recorded"


def _restored_cell(row: Mapping[str, Any]) -> str:
    of = f" ({row['of_the_killed']:,} in the killed instance's tasks)" if "of_the_killed" in row else ""
    return f"{row['restored']:,}{of}"


TABLES: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "json.md": {"errors": errors},
    "export.md": {"columns": export_columns},
    "query.md": {"lines": query_lines, "failures": query_failures},
    "how-to/confluent.md": {"confluent": confluent},
    "compatibility.md": {"matrix": pair_matrix, "releases": proven_releases},
    "development/pairs.md": {"pairs": pair_rows},
    "how-to/fleet.md": {"starts": start_rows},
    "how-to/rolling-upgrade.md": {"rolling": rolling_rows},
    "internals/snapshots.md": {"snapshots": snapshot_rows},
}
"""Page -> the tables that it has."""


def with_tables(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with its tables as the code has them now. Raises KeyError for a mark that nothing makes."""
    return _MARKED.sub(lambda match: f"{match[1]}\n{tables[match[2]]()}\n\n{match[4]}", text)


def marked_names(text: str) -> list[str]:
    """The names of the tables that a page has."""
    return [match[2] for match in _MARKED.finditer(text)]


def _explanations(group: str) -> Sequence[Explanation]:
    (results,) = (entry for entry in groups() if entry.name == group)
    return results.explanations


def _code(line: str) -> str:
    """A line of what to do; the command at its end as code."""
    before, command, after = line.partition("kstate ")
    return f"{markdown(before)}`{command}{after}`" if command else markdown(line)


def write() -> None:
    """Writes all of them."""
    for name, tables in TABLES.items():
        path = DOCS / name
        path.write_text(with_tables(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    write()
