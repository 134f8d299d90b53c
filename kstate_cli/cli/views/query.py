"""Print the rows of an answer as JSON Lines, CSV or tables, as they come: no answer is kept in memory."""

from __future__ import annotations

import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.options.query import RowFormat, StoreRequest
from kstate_cli.cli.output import Format, Output, output_of, safe, say, table
from kstate_cli.cli.standard import as_data
from kstate_cli.formats.values import Header
from kstate_cli.rows.values import Unreadable, bytes_text, jsonable, show_time

if TYPE_CHECKING:
    from kstate_cli.cli.lines.rows import QueryLine, QueryRowLine
    from kstate_cli.query import QueryResult

Row = dict[str, Any]
"""Column -> value from the library: keys and values for their serdes, times in milliseconds."""

_BATCH = 1000
_MAX_MESSAGES = 5
_NO_TIMESTAMP = -1
_QUOTE = '"'
_TO_QUOTE = re.compile(r'[,"\r\n]')
_TIMES = frozenset({"timestamp", "window_start", "window_end", "valid_from", "valid_to"})
_NOT_ALWAYS = frozenset({"timestamp", "headers", "window_end"})


class View(ABC):
    """Print rows in one format. Call ``end`` after the last one.

    A key or value that its serde cannot read does not end the answer: its bytes are printed with a mark, the first few
    are reported, and ``unreadable`` counts them. In JSON the member is null, and ``unreadable`` of the row has bytes.
    """

    rows_by_default: int | None = None
    """Most rows without --limit."""

    def __init__(self, request: StoreRequest, columns: Sequence[str], results: Output[QueryLine]) -> None:
        serdes = request.serdes
        self.results = results
        self._store = request.store
        self._columns = ("partition", *columns)
        self._serdes = {"key": serdes.key, "value": serdes.value}
        self.count = 0
        self.unreadable = 0

    def row(self, partition: int | None, row: Row) -> None:
        """Print a row of a partition; None for a global store."""
        # Before printing, so that a message about an unreadable value can name its row.
        self.count += 1
        self._print(partition, row)

    @abstractmethod
    def _print(self, partition: int | None, row: Row) -> None: ...

    def end(self) -> None:
        """Print the pending rows, and flush."""
        sys.stdout.flush()

    def failure_text(self, result: QueryResult[Any]) -> str:
        """Return why a partition did not answer: in words for people, as Streams words it for programs."""
        return result.failure_in_words

    def _cells(self, partition: int | None, row: Row) -> tuple[str, ...]:
        at = ""
        if partition is not None:
            at = str(partition)
        return (at, *(self._text(column, row) for column in self._columns[1:]))

    def _text(self, name: str, row: Row) -> str:
        """Return a cell of the table, for people."""
        value = row.get(name)
        if name in self._serdes:
            cell = self._cell(name, row, value, self._serdes[name].text)
            if isinstance(cell, Unreadable):
                text = ""
                if cell.data is not None:
                    text = bytes_text(cell.data)
                return f"(unreadable) {text}"
            return str(cell)
        if value is None:
            return ""
        if name in _TIMES:
            return self._time(name, value)
        return self._headers(value)

    def _time(self, name: str, value: int) -> str:
        return str(value)

    def _headers(self, headers: Sequence[Header]) -> str:
        if not headers:
            return ""
        return json.dumps([_header(header) for header in headers])

    def _cell(self, name: str, row: Row, value: Any, render: Any) -> Any:
        """Return the cell of a value, as ``render`` makes it; an :class:`Unreadable` if its serde cannot show it."""
        if not isinstance(value, Unreadable):
            try:
                return render(value)
            except ValueError as error:
                subject = f"the value of key {row['key']!r}"
                if name == "key":
                    subject = f"the key {value!r}"
                why = f"{self._store}: kstate cannot print {subject} as {self._serdes[name].name}: {error}"
                data = None
                if isinstance(value, bytes):
                    data = value
                value = Unreadable(data, why)
        self.unreadable += 1
        # Only a few messages are printed, since a wrong serde cannot read any of millions of rows.
        if self.unreadable <= _MAX_MESSAGES:
            say(value.why)
        return value


class JsonView(View):
    """A line of JSON for each row."""

    def _print(self, partition: int | None, row: Row) -> None:
        marks: Row = {}
        # The members are in this order, since ``type`` begins every line (json_lines.py).
        line: Row = {"type": "row", "partition": partition}
        line.update((name, self._json(name, row, value, marks)) for name, value in row.items())
        if marks:
            line["unreadable"] = marks
        # Which members a row has depends on the subcommand.
        self.results.lines([cast("QueryRowLine", line)])

    def failure_text(self, result: QueryResult[Any]) -> str:
        """Return the message that Streams has for it."""
        return result.failure_message

    def _json(self, name: str, row: Row, value: Any, marks: Row) -> Any:
        if name in self._serdes:
            cell = self._cell(name, row, value, self._serdes[name].render)
            if not isinstance(cell, Unreadable):
                return cell
            marks[name] = {"data": None if cell.data is None else jsonable(cell.data), "message": cell.why}
            return None
        if name == "headers":
            return [_header(header) for header in value]
        return value


class CsvView(View):
    """A row of RFC 4180 for each row, after a row with the names of the columns."""

    def __init__(self, request: StoreRequest, columns: Sequence[str], results: Output[QueryLine]) -> None:
        super().__init__(request, columns, results)
        # UTF-8, whatever the locale: an escaped character would be other data.
        as_data()
        self._for_people = sys.stdout.isatty()
        # The names come first, even if no row follows: a program can read the file all the same.
        _write_csv(self._columns)

    def _print(self, partition: int | None, row: Row) -> None:
        # Programs get the data unchanged; a terminal must not interpret it. A lone surrogate has no bytes.
        text_of: Callable[[str], str] = _writable
        if self._for_people:
            text_of = safe
        _write_csv([text_of(cell) for cell in self._cells(partition, row)])


class TableView(View):
    """Tables of 1000 rows each: the widths of columns need all rows of a table, and no answer is kept in memory."""

    rows_by_default = 1000

    def __init__(self, request: StoreRequest, columns: Sequence[str], results: Output[QueryLine]) -> None:
        super().__init__(request, columns, results)
        self._rows: list[tuple[str, ...]] = []

    def _print(self, partition: int | None, row: Row) -> None:
        self._rows.append(self._cells(partition, row))
        # A table for each batch, so that memory does not grow with the answer.
        if len(self._rows) == _BATCH:
            self.end()

    def end(self) -> None:
        """Print the pending rows, without columns that are empty in all of them, and flush."""
        rows, self._rows = self._rows, []
        if rows:
            texts = [
                at
                # Columns that are empty in all rows, such as the headers of a store that keeps none, are left out.
                for at, name in enumerate(self._columns)
                if (name not in _NOT_ALWAYS or any(row[at] for row in rows))
                and (name != "partition" or any(row[at] for row in rows))
            ]
            table(
                None,
                [_column(self._title(self._columns[at]), self._columns[at]) for at in texts],
                [[row[at] for at in texts] for row in rows],
            )
        super().end()

    def _title(self, column: str) -> str:
        if column not in self._serdes:
            return column
        # bytes shows ASCII unchanged: without its name in the title, a number looks like a damaged text.
        return f"{column} ({self._serdes[column].name})"

    def _time(self, name: str, value: int) -> str:
        # For a window or a version, -1 is a time; only for a record it means "none".
        if name == "timestamp" and value == _NO_TIMESTAMP:
            return "-"
        return show_time(value)

    def _headers(self, headers: Sequence[Header]) -> str:
        return " ".join(
            f"{header.key}={'null' if header.value is None else bytes_text(header.value)}" for header in headers
        )


_VIEWS: Final[Mapping[RowFormat, tuple[type[View], Format]]] = {
    RowFormat.json: (JsonView, Format.json),
    RowFormat.csv: (CsvView, Format.table),
    RowFormat.table: (TableView, Format.table),
}
"""The view of rows, and the format of everything beside them."""


def view_of(request: StoreRequest, columns: Sequence[str], app: Path) -> View:
    """Return the view for the format of the request."""
    view, beside = _VIEWS[request.options.output]
    return view(request, columns, output_of(beside, app, quiet=request.options.quiet))


def _column(title: str, name: str) -> Column:
    fold = Fold.NEVER
    if name in ("key", "value", "headers"):
        # Of these the application decides how long they are.
        fold = Fold.ANYWHERE
    return Column(title, right=name == "partition", fold=fold)


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
