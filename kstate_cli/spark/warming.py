"""``kstate warm-up``: create the files that later starts of Spark use (:mod:`kstate_cli.spark.kept_start`).

The JVM is started three times, each time as a separate process, and without a restoration. The first start is a usual
one that records its command and the classes that it loads. The second one creates the class-data archive of these
classes. The third one uses the command and the archive, to prove that they work before they get their final names. If
two processes do this in one folder, the second waits for the first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kstate_cli import option
from kstate_cli.errors import InUse, Refused, RunFailed
from kstate_cli.formats.binary import parse_json
from kstate_cli.regular_files import read_small, replace_text
from kstate_cli.spark import kept_start
from kstate_cli.spark.context import Launches, SparkSettings, conf_of, run_tasks, slots_of, spark_context
from kstate_cli.spark.engine import Launch, by_spark_submit, check_java, under_spark_submit
from kstate_cli.spark.kept_start import FORMAT, MAIN_CLASS, KeptStart, NotKept, why_not_safe

if TYPE_CHECKING:
    from pyspark import SparkContext

_MAKING: Final = ".making-"
_DUMP_SECONDS: Final = 900
_OUTPUT_LINES: Final = 5
_MOST_BYTES: Final = 1 << 20
_NAME: Final = "kstate warm-up"
_FILES: Final = ("java", "spark")
_SCRIPT_VARIABLES: Final = re.compile(r"(?:SPARK|HADOOP|YARN|LD)_|PYTHONHASHSEED$")
"""Variables that Spark's scripts may set for the JVM. A later start needs them too, because it skips the scripts."""
_OF_WORK: Final = ("-Xmx", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel")
"""Options of the JVM that works, which the one that makes an archive is not given."""
_DUMPING: Final = ("-Xmx1g", "-XX:+UseG1GC", "-Xshare:dump")
"""Objects of the JVM's own get into an archive with this collector alone; others can use them."""
Phase = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Warmed:
    """The archive after ``warm_up``."""

    archive: Path
    bytes: int
    is_new: bool
    """False if a complete archive existed already."""
    seconds: float | None = None
    """Duration of a start with it, the first jobs and the end of Spark; None if it existed already."""


def warm_up(*, for_all: bool, phase: Phase) -> Warmed:
    """Create the archive and the record, unless they exist. ``phase`` gets a text for each step.

    Raises Refused if that is impossible, InUse, RunFailed and OSError.
    """
    if under_spark_submit():
        raise Refused("spark-submit has started a JVM already", hint="run kstate itself, without spark-submit")
    check_java()
    conf = conf_of(SparkSettings(), _NAME)
    try:
        decides = kept_start.start_inputs(conf)
    except NotKept as error:
        raise Refused(
            f"kstate cannot create an archive that speeds up the start of this Spark: {error}",
            hint="you do not have to do anything, because Spark also starts without an archive",
        ) from None
    folder = _made_folder(for_all=for_all)
    # Creating an archive takes long. A second process waits, and then uses the archive of the first one.
    with _alone(folder):
        key = kept_start.key_of(decides)
        there = kept_start.read(folder, key)
        if there is not None:
            return Warmed(there.archive, there.archive.stat().st_size, is_new=False)
        # These files belong to a process that was killed: no other one is at work, because this one holds the lock.
        for path in folder.glob(f"{_MAKING}*"):
            path.unlink()
        warmed = _make(folder, key, decides, phase)
        _sweep(folder)
        return warmed


def _made_folder(*, for_all: bool) -> Path:
    """Return the folder for archives, which is created if it is missing. Raises Refused and OSError.

    The path contains no links, and no other user may change the folder.
    """
    folder, mode = kept_start.of_user(), 0o700
    if for_all:
        # All users may read this folder, and only root may change it.
        folder, mode = kept_start.FOR_ALL, 0o755
    if folder is None:
        raise Refused(
            "kstate does not know the cache folder, because neither XDG_CACHE_HOME nor HOME is set",
            hint=f"set HOME. To create the archive for all users, run this as root with {option.FOR_ALL}",
        )
    for parent in (*reversed(folder.parents), folder):
        with contextlib.suppress(FileExistsError):
            if not parent.is_dir():
                parent.mkdir(mode)
                # The mode of mkdir is reduced by the umask.
                parent.chmod(mode)
    # Links are resolved, so that why_not_safe checks each folder of the real path.
    folder = Path(os.path.realpath(folder))
    why = why_not_safe(folder)
    if why is None and ":" in str(folder):
        why = "the JVM treats a colon as the end of a path"
    if why is not None:
        raise Refused(
            f"kstate would not use an archive in {folder}: {why}",
            hint="remove that permission or set XDG_CACHE_HOME to a different folder",
        )
    return folder


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder while its archive is created. Raises InUse if another process holds it for long."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _DUMP_SECONDS
        while True:
            try:
                # The call does not block, so that a signal can end the command.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InUse(
                        f"another process is creating an archive in {folder}",
                        hint="check what that process is waiting for",
                    ) from None
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _make(folder: Path, key: str, decides: Mapping[str, Any], phase: Phase) -> Warmed:
    """Start the JVM three times to create an archive and its record, as the docstring of the module describes."""
    classes = folder / f"{_MAKING}{os.getpid()}.classes"
    new = folder / f"{_MAKING}{os.getpid()}.jsa"
    try:
        phase("starting Spark without an archive, to see which classes it loads")
        command, environment = _launcher_command(classes)
        phase("creating an archive of these classes")
        _dump(command, classes, new)
        phase("starting Spark with the archive")
        # Both are tried before they get their final names, so that an archive that does not work is never used.
        tried = KeptStart(new, command, environment)
        began = time.monotonic()
        _run(lambda conf: [lambda: Launch(tried.argv(conf), tried.environment)])
        seconds = time.monotonic() - began
        size, crc = kept_start.checksum(new)
        archive = folder / f"{key}-{crc:08x}.jsa"
        # The name contains the checksum, so that an older record still leads to its own archive.
        new.replace(archive)
    finally:
        for path in (classes, new):
            path.unlink(missing_ok=True)
    record = {
        "format": FORMAT,
        "archive": archive.name,
        "bytes": size,
        "crc32": crc,
        "command": list(command),
        "environment": dict(environment),
        **{name: decides[name] for name in _FILES},
    }
    replace_text(folder / f"{key}.json", json.dumps(record, indent=1) + "\n", mode=0o644)
    return Warmed(archive, size, is_new=True, seconds=seconds)


def _launcher_command(classes: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command and the variables with which Spark's launcher starts the JVM.

    For this, Spark is started once by its launcher. That start also writes the names of the loaded classes to the file
    ``classes``, and from them the JVM creates the archive (class-data sharing). The command ends with the main class:
    what follows are settings. kstate starts the JVM with it later, without the launcher: :class:`KeptStart`.
    """
    launches: list[tuple[tuple[str, ...], dict[str, str]]] = []
    setting, class_list_option = "spark.driver.extraJavaOptions", f"-XX:DumpLoadedClassList={classes}"

    def look(context: SparkContext) -> None:
        """Record the command line and the variables with which the launcher started the JVM."""
        pid = int(context._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        # Both are read from the running process, because the command of the launcher cannot be derived from settings.
        words, variables = (_words_of(Path(f"/proc/{pid}/{name}")) for name in ("cmdline", "environ"))
        if MAIN_CLASS not in words or class_list_option not in words:
            raise RunFailed(
                "Spark's launcher has started a program that kstate does not know",
                details=words[:1],
                hint="you do not have to do anything, because Spark also starts without an archive",
            )
        # Words after the main class are settings, and each run has its own. The option that writes ``classes`` belongs
        # to this start only.
        command = tuple(word for word in words[: words.index(MAIN_CLASS) + 1] if word != class_list_option)
        settings = dict(variable.split("=", 1) for variable in variables if "=" in variable)
        # Only variables that the scripts have set: a later start gets the others from its own environment. The pattern
        # excludes those that PySpark sets for one start.
        script_variables = {
            name: text
            for name, text in settings.items()
            if _SCRIPT_VARIABLES.match(name) and os.environ.get(name) != text
        }
        launches.append((command, script_variables))

    # The launcher is the only way to start here. It gets the usual settings, and the option that writes ``classes``.
    _run(lambda conf: [lambda: by_spark_submit({**conf, setting: f"{conf[setting]} {class_list_option}"})], look)
    return launches[0]


def _words_of(path: Path) -> list[str]:
    """Return the words of a file of ``/proc``, each of which ends with a zero byte."""
    return [os.fsdecode(part) for part in path.read_bytes().split(b"\0")[:-1]]


def _run(launches: Launches, look: Callable[[SparkContext], None] = lambda _: None) -> None:
    """Start Spark, run a job with a task for each slot, and stop Spark, so that the JVM loads what every use needs.

    ``launches`` returns the ways to start the JVM with given settings. ``look`` gets the context after the job.
    """
    with spark_context(SparkSettings(), name=_NAME, launches=launches) as context:
        run_tasks(context, str, range(slots_of(context)), lambda: None)
        look(context)


def _dump(command: Sequence[str], classes: Path, new: Path) -> None:
    """Create the archive ``new`` of the classes in a file. Raises RunFailed, with the output of the JVM."""
    # The main class is omitted, so that the JVM ends after it has written the archive.
    *options, _ = command
    options_to_keep = [word for word in options if not word.startswith(_OF_WORK)]
    words = [*options_to_keep, *_DUMPING, f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={new}"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status = process.wait(_DUMP_SECONDS)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        finally:
            # Also ended after a signal: the process is in a separate session, and would continue for minutes.
            process.kill()
            process.wait()
        if status != 0 or not new.is_file():
            output.seek(0)
            lines = output.read().decode(errors="replace").splitlines()
            raise RunFailed(
                f"the JVM exited with status {status} and has not created an archive",
                details=[line.strip() for line in lines if line.strip()][-_OUTPUT_LINES:],
                hint="you do not have to do anything, because Spark also starts without an archive",
            )


def _sweep(folder: Path) -> None:
    """Remove records of a Java or a Spark that was removed or replaced, and archives that no record names."""
    archives = set()
    for note in folder.glob("*.json"):
        with contextlib.suppress(OSError):
            if (archive := _archive_of(note)) is None:
                note.unlink()
            else:
                archives.add(archive)
    for path in folder.glob("*.jsa"):
        if path.name not in archives:
            with contextlib.suppress(OSError):
                path.unlink()


def _archive_of(note: Path) -> str | None:
    """Return the file name of the archive in a record; None if no start can use it, because Java or Spark changed."""
    try:
        record = parse_json(read_small(note, _MOST_BYTES))
        java, spark = record["java"], record["spark"]
        # Java or Spark was replaced: no start will ever ask for this record again.
        if kept_start.of_java(java["path"]) == java and kept_start.of_spark(spark["home"]) == spark:
            return str(record["archive"])
    except (NotKept, OSError, ValueError, TypeError, KeyError):
        pass
    return None
