"""Jobs in worker processes: in order, with their own errors, and never alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.cli.ending import exit_code_of, report_errors
from kstate_cli.errors import Refused
from kstate_cli.host import HostError
from kstate_cli.parallel import Processes, Workers
from kstate_cli.rocks.errors import RocksError

pytestmark = pytest.mark.rotating(3)

MANY = 100


def double(job: int) -> tuple[int, int]:
    return job * 2, os.getpid()


def refuse(job: int) -> int:
    if job == 7:
        raise Refused("seven", where="there", hint="not seven")
    return job


def die(job: int) -> int:
    if job == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def noisy(job: int) -> int:
    print("what is printed is no answer", flush=True)
    os.write(1, b"nor is this")
    return job


def slow(folder: str) -> int:
    if folder:
        Path(folder, str(os.getpid())).touch()
        time.sleep(3600)
    return 0


def test_many_jobs_run_in_processes_and_few_do_not() -> None:
    with Workers(2) as workers:
        few = list(workers.map(double, range(3)))
        many = list(workers.map(double, range(MANY)))
        again = list(workers.map(double, range(3)))
    assert [answer for answer, _ in many] == [job * 2 for job in range(MANY)]
    assert {pid for _, pid in few} == {os.getpid()}
    assert 1 <= len({pid for _, pid in many}) <= 2
    assert os.getpid() not in {pid for _, pid in [*many, *again]}


def test_a_single_worker_is_this_process() -> None:
    with Workers(1) as workers:
        assert {pid for _, pid in workers.map(double, range(MANY))} == {os.getpid()}


def short(job: int) -> int:
    time.sleep(0.001)
    return job


def calls(jobs: int) -> int:
    """How many functions the thread calls that waits for so many jobs."""
    count = 0

    def called(frame: Any, event: str, _: object) -> None:
        nonlocal count
        count += event.endswith("call")

    with Workers(1) as workers:
        sys.setprofile(called)
        try:
            answers = list(workers.map(short, range(jobs)))
        finally:
            sys.setprofile(None)
    assert answers == list(range(jobs))
    return count


def test_waiting_for_jobs_costs_as_much_as_there_are() -> None:
    few, many = calls(100), calls(400)
    assert many < 6 * few, (few, many)


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_comes_back_whole(count: int) -> None:
    with Workers(count) as workers:
        with pytest.raises(Refused, match="seven") as caught:
            list(workers.map(refuse, range(MANY)))
        assert (caught.value.where, caught.value.hint) == ("there", "not seven")
        assert [answer for answer, _ in workers.map(double, range(MANY))] == [job * 2 for job in range(MANY)]


def test_a_dead_worker_is_an_error() -> None:
    """What the system kills for want of memory has met no damage: no advice to look for any."""
    with Workers(2) as workers, pytest.raises(HostError, match="a worker process exited with status -9") as caught:
        list(workers.map(die, range(MANY)))
    assert exit_code_of(caught.value) == 6
    assert caught.value.hint is not None
    assert "--workers" in caught.value.hint


def corrupt(job: int) -> int:
    raise RocksError(f"Corruption: block checksum mismatch in /data/app/{job}.sst")


def test_an_error_of_rocksdb_in_a_worker_is_not_called_want_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    with Processes(2) as workers, pytest.raises(RocksError) as caught:
        list(workers.map(corrupt, [7]))
    report_errors(caught.value)
    assert "--workers" not in capsys.readouterr().err


def test_printed_text_does_not_disturb_the_results() -> None:
    with Workers(2) as workers:
        assert list(workers.map(noisy, range(MANY))) == list(range(MANY))


def test_leaving_does_not_wait_for_jobs_in_processes(tmp_path: Path) -> None:
    begin = time.monotonic()
    jobs = [*["" for _ in range(10)], *[str(tmp_path)] * MANY]
    with pytest.raises(KeyboardInterrupt), Workers(2) as workers:
        assert next(workers.map(slow, jobs)) == 0
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 3600


def write_later(path: str) -> int:
    """A job that writes when others have failed long since."""
    Path(f"{path}.begun").touch()
    time.sleep(0.5)
    Path(path).touch()
    return 0


def fail_or_write(path: str) -> int:
    """The one job fails once the other has begun, which writes later than the test has seen the failure."""
    if not path.endswith("fails"):
        Path(f"{path}.begun").touch()
        _until(lambda: Path(f"{path}.failed").exists())
        return write_later(path)
    _until(lambda: Path(path).with_name("late.begun").exists())
    raise Refused("it fails", hint="none")


def test_after_a_stop_no_job_in_a_thread_writes(tmp_path: Path) -> None:
    late = tmp_path / "late"
    with Workers(2) as workers:
        with pytest.raises(Refused):
            list(workers.map(fail_or_write, [str(tmp_path / "fails"), str(late)]))
        assert not late.exists(), "the error is told at once"
        late.with_name("late.failed").touch()
        workers.stop()
        assert late.exists()


def test_after_a_stop_no_process_is_left_and_others_follow(tmp_path: Path) -> None:
    with Workers(2) as workers:
        answers = workers.map(slow, [*["" for _ in range(10)], *[str(tmp_path)] * MANY])
        assert next(answers) == 0
        _until(lambda: len(list(tmp_path.iterdir())) == 2)
        workers.stop()
        assert not any(Path("/proc", path.name).exists() for path in tmp_path.iterdir())
        assert [answer for answer, _ in workers.map(double, range(MANY))] == [job * 2 for job in range(MANY)]


def test_a_signal_amid_the_handing_out_leaves_no_job_unknown(tmp_path: Path) -> None:
    """It is raised before anybody has a list of what runs, but for the one who stops it."""
    late = tmp_path / "late"
    program = (
        "import os, signal\n"
        "from kstate_cli import parallel as workers\n"
        "from tests.processes.test_workers import write_later\n"
        "class Pool(workers.ThreadPoolExecutor):\n"
        "    def submit(self, *a):\n"
        "        future = super().submit(*a)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        return future\n"
        "workers.ThreadPoolExecutor = Pool\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it\n"
        "with workers.Workers(2) as pool:\n"
        f"    try: list(pool.map(write_later, [{str(late)!r}]))\n"
        "    except KeyboardInterrupt:\n"
        "        pool.stop()\n"
        f"        assert os.path.exists({str(late)!r}) == os.path.exists({str(late) + '.begun'!r})\n"
        "        os._exit(42)\n"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False, timeout=300)
    assert process.returncode == 42


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    program = (
        "from kstate_cli.parallel import Workers\n"
        "from tests.processes.test_workers import MANY, slow\n"
        f"with Workers(2) as workers: list(workers.map(slow, [{str(tmp_path)!r}] * MANY))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        _until(lambda: len(list(tmp_path.iterdir())) == 2)
    finally:
        parent.kill()
        parent.wait()
    _until(lambda: not any(Path("/proc", path.name).exists() for path in tmp_path.iterdir()))


def test_a_worker_that_comes_after_its_parent_has_died_does_nothing(tmp_path: Path) -> None:
    """Killed while its workers import: a job that is in the pipe already is carried out by nobody."""
    program = (
        "import os, pickle, subprocess, sys\n"
        "from kstate_cli import parallel as workers\n"
        "from tests.processes.test_workers import write_later\n"
        "late = workers.another_python(f'import time; time.sleep(1); '"
        "    f'from kstate_cli.parallel import serve; serve({os.getpid()})')\n"
        "one = subprocess.Popen(late, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        f"pickle.dump((write_later, {str(tmp_path / 'late')!r}), one.stdin)\n"
        "one.stdin.flush()\n"
        "print(one.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    parent = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=False, capture_output=True, timeout=300
    )
    worker = int(parent.stdout)
    _until(lambda: not Path("/proc", str(worker)).exists())
    assert parent.stderr == b""
    assert not [*tmp_path.iterdir()]


def _until(condition: object) -> None:
    deadline = time.monotonic() + 300
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
