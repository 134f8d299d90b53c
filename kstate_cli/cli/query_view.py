"""Rows of an answer as JSON Lines, CSV or tables, as they come: no answer is held in memory."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from typing import Any

from kstate_cli.cli.output import print_json, safe, table
from kstate_cli.cli.query_options import RowFormat
from kstate_cli.cli.standard import as_data
from kstate_cli.formats.values import Header
from kstate_cli.query import SerdeError, StoreSerdes
from kstate_cli.query.rendering import bytes_text, jsonable
from kstate_cli.query.times import show_time

Row = dict[str, Any]
"""Column -> what the library gave: keys and values for their serdes, times in milliseconds."""

_SCHEMA = 1
_BATCH = 1000
_NO_TIMESTAMP = -1
_TIMES = frozenset({"timestamp", "window_start", "window_end", "valid_from", "valid_to"})
_NOT_ALWAYS = frozenset({"timestamp", "headers", "window_end"})


class View:
    """Prints rows. ``end`` must follow the last one. Raises SerdeError for what a serde cannot show."""

    def __init__(self, output: RowFormat, store: str, columns: Sequence[str], serdes: StoreSerdes) -> None:
        self._output = output
        self._store = store
        self._columns = ("partition", *columns)
        self._serdes = {"key": serdes.key, "value": serdes.value}
        self._rows: list[tuple[str, ...]] = []
        if output is RowFormat.csv:
            as_data()
        self._csv = csv.writer(sys.stdout, lineterminator="\n")
        self._for_people = sys.stdout.isatty()
        self.count = 0
        if output is RowFormat.csv:
            self._csv.writerow(self._columns)

    def row(self, partition: int | None, row: Row) -> None:
        """One row of a partition; None for a global store."""
        self.count += 1
        if self._output is RowFormat.json:
            shown = {name: self._json(name, row, value) for name, value in row.items()}
            print_json({"schema_version": _SCHEMA, "type": "row", "partition": partition, **shown})
            return
        cells = ("" if partition is None else str(partition), *(self._text(one, row) for one in self._columns[1:]))
        if self._output is RowFormat.csv:
            # For a program as it is; a terminal must not act on it. A lone surrogate has no bytes.
            self._csv.writerow([safe(one) if self._for_people else _writable(one) for one in cells])
            return
        self._rows.append(cells)
        if len(self._rows) == _BATCH:
            self.end()

    def object(self, kind: str, row: Row) -> None:
        """A line of JSON that is no row; nothing in other formats."""
        if self._output is RowFormat.json:
            print_json({"schema_version": _SCHEMA, "type": kind, **row})

    def end(self) -> None:
        """Prints what is left, and writes everything out."""
        rows, self._rows = self._rows, []
        if rows:
            shown = [
                at
                for at, name in enumerate(self._columns)
                if (name not in _NOT_ALWAYS or any(row[at] for row in rows))
                and (name != "partition" or any(row[at] for row in rows))
            ]
            table(
                None,
                [self._title(self._columns[at]) for at in shown],
                # A line break within a key must not look like another row.
                [[row[at].replace("\n", "\\n") for at in shown] for row in rows],
                right=frozenset({"partition"}),
            )
        sys.stdout.flush()

    def _title(self, column: str) -> str:
        return f"{column} ({self._serdes[column].name})" if column in self._serdes else column

    def _json(self, name: str, row: Row, value: Any) -> Any:
        if name in self._serdes:
            return self._shown(name, row, value, self._serdes[name].render)
        return [_header(one) for one in value] if name == "headers" else value

    def _text(self, name: str, row: Row) -> str:
        value = row.get(name)
        if name in self._serdes:
            text: str = self._shown(name, row, value, self._serdes[name].text)
            return text
        if value is None:
            return ""
        if name in _TIMES:
            if self._output is RowFormat.csv:
                return str(value)
            return "-" if name == "timestamp" and value == _NO_TIMESTAMP else show_time(value)
        if self._output is RowFormat.csv:
            return json.dumps([_header(one) for one in value]) if value else ""
        return " ".join(f"{one.key}={'null' if one.value is None else bytes_text(one.value)}" for one in value)

    def _shown(self, name: str, row: Row, value: Any, how: Any) -> Any:
        try:
            return how(value)
        except ValueError as error:
            what = f"the key {value!r}" if name == "key" else f"the value of key {row['key']!r}"
            raise SerdeError(
                f"{self._store}: {what} cannot be shown as {self._serdes[name].name}: {error}",
                hint="give the serde a render and a text, or name another one",
            ) from None


def _header(one: Header) -> Row:
    return {"key": one.key, "value": jsonable(one.value)}


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
