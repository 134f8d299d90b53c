"""What a slice needs is imported while Spark starts, not in its first task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.running.engines import OF_SLICES
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from kstate_cli.spark.context import SparkSettings, run_tasks, spark_context
from tests.sorting.slicing import job_of, key_of, write_dump

from . import support

_LARGE = ("kstate_cli", "numpy", "pyarrow", "rocksdict")
_KINDS = ("timestamped-key-value", "headers-session", "time-ordered-window")


def _imported_by(job: SliceJob) -> list[str]:
    before = {*sys.modules}
    assert build_sorted_files(job).files
    return sorted(name for name in {*sys.modules} - before if name.partition(".")[0] in _LARGE)


def imported_by_slices(folder: Path) -> None:
    """In a process of its own, as PySpark goes on with a JVM that others have started."""
    (folder / "runs").mkdir()
    jobs = [
        job_of(write_dump(folder / f"dump-{kind}", [(key_of(kind), b"x" * 40)]), kind, folder / "runs")
        for kind in _KINDS
    ]
    with spark_context(SparkSettings(), modules=OF_SLICES) as context:
        assert run_tasks(context, _imported_by, jobs, lambda: None) == [[]] * len(jobs)


def test_a_slice_imports_nothing_more(tmp_path: Path) -> None:
    """In its worker, which has imported this module too: what is new is what a slice imports when it is made."""
    code = (
        "from pathlib import Path; from tests.restore.test_worker_modules import imported_by_slices; "
        f"imported_by_slices(Path({str(tmp_path)!r}))"
    )
    support.output_of(code)


@pytest.mark.parametrize("name", ["no_such_module", "os.path.nothing"])
def test_missing_module_fails_the_task_that_needs_it(name: str) -> None:
    """What starts the workers passes over it."""
    code = f"import sys; from kstate_cli.spark import daemon; daemon.import_modules(['{name}', 'decimal'])"
    command = [sys.executable, "-c", f"{code}; print('decimal' in sys.modules)"]
    process = subprocess.run(command, env=support.environment(), capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == ("True\n", "")
