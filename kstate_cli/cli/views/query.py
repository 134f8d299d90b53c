"""Print the rows of an answer as JSON Lines, CSV or tables, as they come: no answer is kept in memory."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.json_lines import JsonLines
from kstate_cli.cli.options.query import RowFormat, StoreRequest
from kstate_cli.cli.output import safe, say, table
from kstate_cli.cli.standard import as_data
from kstate_cli.formats.values import Header
from kstate_cli.rows.values import Unreadable, bytes_text, jsonable, show_time

Row = dict[str, Any]
"""Column -> value from the library: keys and values for their serdes, times in milliseconds."""

_BATCH = 1000
_MAX_MESSAGES = 5
_NO_TIMESTAMP = -1
_QUOTE = '"'
_TO_QUOTE = re.compile(r'[,"\r\n]')
_TIMES = frozenset({"timestamp", "window_start", "window_end", "valid_from", "valid_to"})
_NOT_ALWAYS = frozenset({"timestamp", "headers", "window_end"})


class View:
    """Print rows. Call ``end`` after the last one.

    A key or value that its serde cannot read does not end the answer: its bytes are printed with a mark, the first few
    are reported, and ``unreadable`` counts them. In JSON the member is null, and ``unreadable`` of the row has bytes.
    """

    def __init__(self, request: StoreRequest, columns: Sequence[str], app: Path) -> None:
        output, serdes = request.options.output, request.serdes
        self._output = output
        self._store = request.store
        self._lines = JsonLines(app)
        self._columns = ("partition", *columns)
        self._serdes = {"key": serdes.key, "value": serdes.value}
        self._rows: list[tuple[str, ...]] = []
        if output is RowFormat.csv:
            as_data()
        self._for_people = sys.stdout.isatty()
        self.count = 0
        self.unreadable = 0
        if output is RowFormat.csv:
            _write_csv(self._columns)

    def row(self, partition: int | None, row: Row) -> None:
        """Print a row of a partition; None for a global store."""
        self.count += 1
        if self._output is RowFormat.json:
            marks: Row = {}
            members = {name: self._json(name, row, value, marks) for name, value in row.items()}
            more = {"unreadable": marks} if marks else {}
            self._lines.line("row", {"partition": partition, **members, **more})
            return
        cells = (
            "" if partition is None else str(partition),
            *(self._text(column, row) for column in self._columns[1:]),
        )
        if self._output is RowFormat.csv:
            # Programs get the data unchanged; a terminal must not interpret it. A lone surrogate has no bytes.
            _write_csv([safe(cell) if self._for_people else _writable(cell) for cell in cells])
            return
        self._rows.append(cells)
        if len(self._rows) == _BATCH:
            self.end()

    def object(self, kind: str, row: Row) -> None:
        """Print a line of JSON that is not a row; nothing in other formats."""
        if self._output is RowFormat.json:
            self._lines.line(kind, row)

    def end(self) -> None:
        """Print the pending rows, and flush."""
        rows, self._rows = self._rows, []
        if rows:
            texts = [
                at
                for at, name in enumerate(self._columns)
                if (name not in _NOT_ALWAYS or any(row[at] for row in rows))
                and (name != "partition" or any(row[at] for row in rows))
            ]
            table(
                None,
                [_column(self._title(self._columns[at]), self._columns[at]) for at in texts],
                [[row[at] for at in texts] for row in rows],
            )
        sys.stdout.flush()

    def _title(self, column: str) -> str:
        return f"{column} ({self._serdes[column].name})" if column in self._serdes else column

    def _json(self, name: str, row: Row, value: Any, marks: Row) -> Any:
        if name in self._serdes:
            cell = self._cell(name, row, value, self._serdes[name].render)
            if not isinstance(cell, Unreadable):
                return cell
            marks[name] = {"data": None if cell.data is None else jsonable(cell.data), "message": cell.why}
            return None
        return [_header(header) for header in value] if name == "headers" else value

    def _text(self, name: str, row: Row) -> str:
        value = row.get(name)
        if name in self._serdes:
            cell = self._cell(name, row, value, self._serdes[name].text)
            if isinstance(cell, Unreadable):
                return f"(unreadable) {'' if cell.data is None else bytes_text(cell.data)}"
            return str(cell)
        if value is None:
            return ""
        if name in _TIMES:
            if self._output is RowFormat.csv:
                return str(value)
            return "-" if name == "timestamp" and value == _NO_TIMESTAMP else show_time(value)
        if self._output is RowFormat.csv:
            return json.dumps([_header(header) for header in value]) if value else ""
        return " ".join(
            f"{header.key}={'null' if header.value is None else bytes_text(header.value)}" for header in value
        )

    def _cell(self, name: str, row: Row, value: Any, how: Any) -> Any:
        if not isinstance(value, Unreadable):
            try:
                return how(value)
            except ValueError as error:
                subject = f"the key {value!r}" if name == "key" else f"the value of key {row['key']!r}"
                why = f"{self._store}: {subject} cannot be shown as {self._serdes[name].name}: {error}"
                value = Unreadable(value if isinstance(value, bytes) else None, why)
        self.unreadable += 1
        if self.unreadable <= _MAX_MESSAGES:
            say(value.why)
        return value


def _column(title: str, name: str) -> Column:
    stored = name in ("key", "value", "headers")
    return Column(title, right=name == "partition", fold=Fold.ANYWHERE if stored else Fold.NEVER)


def _header(header: Header) -> Row:
    return {"key": header.key, "value": jsonable(header.value)}


def _write_csv(cells: Sequence[str]) -> None:
    """Write a row by RFC 4180, but with a line feed at its end.

    The module csv does not quote a carriage return, and many readers end a row there.
    """
    quoted_cells = (f'"{cell.replace(_QUOTE, _QUOTE * 2)}"' if _TO_QUOTE.search(cell) else cell for cell in cells)
    sys.stdout.write(",".join(quoted_cells) + "\n")


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
