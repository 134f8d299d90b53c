"""Write metrics of a command for the textfile collector of Prometheus' node exporter (``--metrics-file``).

The file is replaced as a whole, so that no reader sees a partial one. A failed command keeps the time of the last
success, which alerts use. Of two commands with the same file the second is refused.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kstate_cli import clock, deadline
from kstate_cli.cli import standard
from kstate_cli.cli.ending import exit_code_of
from kstate_cli.cli.output import say
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, InUse, KstateError, Refused, UsageError
from kstate_cli.maintain.measures import MEASURES, Measure
from kstate_cli.regular_files import DENIED, access_hint, kind_of, read_given
from kstate_cli.texts import quoted

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Gauge

_SUCCESS = "kstate_last_success_timestamp_seconds"
_LABELS = ("application", "command")
_FINDINGS = "kstate_findings"
_BEGINNINGS: Final = (b"# HELP kstate_", b"# TYPE kstate_")
_NOTHING: Final = b"\0 \t\r\n"
"""Content of a file after a power failure during its replacement: kstate may overwrite it."""

METRICS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "kstate_last_run_timestamp_seconds": ("The time when the command last exited.", _LABELS),
    _SUCCESS: ("The time when the command last exited with code 0, without errors or warnings.", _LABELS),
    "kstate_last_run_duration_seconds": ("How long the command took, in seconds.", _LABELS),
    "kstate_last_run_exit_code": ("The exit code of the command.", _LABELS),
    "kstate_bytes_pinned": ("The size of the backups that kstate keeps for undo, in bytes.", _LABELS),
    "kstate_records": ("The number of records or rows that the command processed.", _LABELS),
    "kstate_warnings": ("The number of warnings that the command printed.", _LABELS),
    "kstate_held_back_offsets": (
        "dump: the number of offsets that kstate could not read at the log ends, because transactions were open.",
        _LABELS,
    ),
    _FINDINGS: ("The number of findings that the command reported, by code and level.", (*_LABELS, "code", "level")),
    "kstate_store_lag_records": (
        (
            "lag: the number of changelog records that the store has not read yet. The gauge is absent if the "
            "number is unknown."
        ),
        ("application", "task", "store"),
    ),
    "kstate_store_lag_seconds": (
        (
            "lag: the age of the first record that the store has not read yet. The gauge is absent if the "
            "age is unknown."
        ),
        ("application", "task", "store"),
    ),
    **MEASURES,
}
"""Name of each gauge -> its help and its labels. No other gauge is written."""


def folder_at(address: str) -> Path | None:
    """Return the folder of a dump or repository, which must not have the metrics file in it; None for a bucket."""
    return None if "://" in address else Path(address)


class Metrics:
    """Measure a command from ``with`` to its end. Without a path it does nothing.

    ``folder`` is the application directory, or with ``application`` a ``place`` of another kind or None.

    Raise InUse if another command writes the same file, UsageError if it cannot be written or is in ``folder``,
    Refused if kstate did not write it: it would be lost.
    """

    def __init__(
        self,
        path: Path | None,
        command: str,
        folder: Path | None,
        *,
        application: str | None = None,
        place: str = "dump",
    ) -> None:
        self._path, self._command, self._folder = path, command, folder
        self._application = application or ("" if folder is None else folder.name)
        self._has_runs = application is None
        self._place = place if application is not None else "application directory"
        self._lock: int | None = None
        self._began = 0.0
        self._code: int | None = None
        self.records: int | None = None
        self.warnings: int | None = None
        self.held_back: int | None = None
        self.findings: Mapping[tuple[str, str], int] | None = None
        """(code, level) -> how many."""
        self.more: Callable[[], Iterable[Measure]] | None = None
        """Returns further gauges when the file is written."""

    def __enter__(self) -> Metrics:
        self._began = clock.now_seconds()
        if self._path is not None:
            # The lock is held for the whole command: two that write the same file would erase each other's gauges.
            self._lock = self._take_lock(self._path)
            # A service manager may kill the process before the end of with: the file must say how far it came.
            deadline.at_the_deadline(self._at_the_deadline)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is None or self._lock is None:
            return
        try:
            if error is not None or self._code is None:
                self._try_write(self._path, EXIT_OK if error is None else exit_code_of(error))
        finally:
            # Closing releases the flock. The lock file stays: another command may have opened it already, and if it
            # were removed, two commands could hold different locks.
            os.close(self._lock)

    def _at_the_deadline(self, code: int) -> None:
        if self._code is None:
            self.round_done(code)

    def round_done(self, code: int) -> None:
        """Write the file after a round of a command that continues until a signal; ``code`` is that of the round."""
        if self._path is not None:
            self._try_write(self._path, code)

    def _try_write(self, path: Path, code: int) -> bool:
        """Write the file; return whether that worked."""
        try:
            self._write(path, code)
        except (OSError, KstateError) as wrong:
            # What is kept may be in a journal that is refused; how the command ended is what must be told.
            say(f"warning: kstate could not write the metrics to {quoted(path)}: {wrong}")
            return False
        return True

    def finish(self, code: int) -> int:
        """Write the file for a command that ended with ``code``; return that, or 1 for 0 if it cannot be written.

        Raises OutputLost: results that could not be written count as well.
        """
        # The output is flushed first: if it is lost, the exit code in the file must not be 0.
        standard.finish()
        self._code = code
        is_written = self._path is None or self._try_write(self._path, code)
        if is_written:
            return code
        # The command has done its work, but whatever watches its metrics does not learn of that, which is a warning.
        return max(code, EXIT_WARNINGS)

    def _take_lock(self, path: Path) -> int:
        """Check that ``path`` can become a file of metrics, and return the descriptor of its lock."""
        folder = self._folder
        if folder is not None and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise UsageError(
                f"--metrics-file {quoted(path)} is inside the {self._place}",
                hint="pass a file in the textfile collector's folder",
            )
        if path.is_dir():
            raise UsageError(f"--metrics-file {quoted(path)} is a directory", hint="pass a file in this directory")
        if path.exists() and not path.is_file():
            # The metrics file is read and then replaced, which only a regular file allows.
            kind = kind_of(path.stat().st_mode)
            raise UsageError(
                f"--metrics-file {quoted(path)} is {kind}",
                hint="pass a regular file or a path that does not exist yet",
            )
        # If the path is a typing error, a file of someone else must not be replaced.
        _require_ours(path)
        try:
            lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(
                f"kstate cannot write --metrics-file {quoted(path)}: {error.strerror}",
                hint=access_hint(path.parent, os.W_OK)
                if error.errno in DENIED
                else ("create this file's folder first"),
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise InUse(
                f"another kstate command is writing {path}",
                hint="wait until the other command ends, or pass a separate file for each command",
            ) from None
        return lock

    def _write(self, path: Path, code: int) -> None:
        """Write the file, with the exit code of this run and the time of the last success."""
        # Imported here, because most runs write no metrics and should not wait for the import.
        from prometheus_client import CollectorRegistry, write_to_textfile

        # A registry of its own, because the global one would add gauges about this Python process.
        registry = CollectorRegistry()
        now = clock.now_seconds()
        self._gauge(registry, "kstate_last_run_timestamp_seconds", now)
        success = now if code == EXIT_OK else _before(path, (self._application, self._command))
        if success is not None:
            self._gauge(registry, _SUCCESS, success)
        # The duration is by the clock of the day, as both times are: if that is set, all three show it.
        self._gauge(registry, "kstate_last_run_duration_seconds", now - self._began)
        self._gauge(registry, "kstate_last_run_exit_code", code)
        if self._folder is not None and self._has_runs:
            self._gauge(registry, "kstate_bytes_pinned", self._pinned(self._folder))
        if self.records is not None:
            self._gauge(registry, "kstate_records", self.records)
        if self.warnings is not None:
            self._gauge(registry, "kstate_warnings", self.warnings)
        if self.held_back is not None:
            self._gauge(registry, "kstate_held_back_offsets", self.held_back)
        if self.findings is not None:
            self._findings(registry, self.findings)
        if self.more is not None:
            self._more(registry, self.more())
        # This writes a new file and renames it, so that node_exporter never reads half a file.
        write_to_textfile(str(path), registry)

    def _gauge(self, registry: CollectorRegistry, name: str, value: float) -> None:
        _declared(registry, name).labels(self._application, self._command).set(value)

    def _findings(self, registry: CollectorRegistry, findings: Mapping[tuple[str, str], int]) -> None:
        gauge = _declared(registry, _FINDINGS)
        # Sorted, so that two files can be compared by diff.
        for (code, level), count in sorted(findings.items()):
            gauge.labels(self._application, self._command, code, level).set(count)

    def _more(self, registry: CollectorRegistry, measures: Iterable[Measure]) -> None:
        gauges: dict[str, Gauge] = {}
        for name, labels, value in measures:
            gauge = gauges.get(name) or gauges.setdefault(name, _declared(registry, name))
            gauge.labels(self._application, *labels).set(value)

    def _pinned(self, folder: Path) -> int:
        from kstate_cli.change.engine import pinned_bytes
        from kstate_cli.change.folder import read_runs

        return sum(pinned_bytes(run) for run in read_runs(folder))


def _require_ours(path: Path) -> None:
    """Raise Refused or UsageError for a file that kstate did not write: writing replaces the whole file."""
    try:
        data = read_given(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"kstate cannot read --metrics-file {quoted(path)}: {error.strerror}",
            hint=access_hint(path) if error.errno in DENIED else "pass another file",
        ) from None
    if data.strip(_NOTHING) and not data.startswith(_BEGINNINGS):
        raise Refused(
            f"kstate does not overwrite --metrics-file {quoted(path)}, because kstate did not write this file",
            hint="pass another file in the textfile collector's folder, or remove this file",
        )


def _declared(registry: CollectorRegistry, name: str) -> Gauge:
    from prometheus_client import Gauge

    help_text, labels = METRICS[name]
    return Gauge(name, help_text, labels, registry=registry)


def _before(path: Path, labels: tuple[str, str]) -> float | None:
    """Return the time of the last success in the file; None if it has none."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(read_given(path).decode("utf-8")))
    # A damaged file counts as one without that time: then the last success is unknown, and alerts fire.
    except (OSError, ValueError):
        return None
    values = dict(zip(_LABELS, labels, strict=True))
    for family in families:
        for sample in family.samples:
            if sample.name == _SUCCESS and sample.labels == values:
                return float(sample.value)
    return None
