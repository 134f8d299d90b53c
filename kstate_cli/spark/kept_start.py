"""The archive and the command that ``kstate warm-up`` stores, for later starts of Spark.

The *archive* is a class-data archive of the JVM: the classes that Spark needs, in the form that they have in memory. So
hundreds of jars need not be read and verified at each start. The *command* is the one with which Spark's own launcher
has started the JVM. The launcher is a JVM too, and its result is the same each time.

Both are used if their inputs are unchanged (:func:`start_inputs`), and if no other user can have changed them.
Otherwise Spark starts without them, which is no error. The record with both, ``<key>.json``, is written last. It has a
checksum of the archive, since the JVM itself only checks its beginning.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kstate_cli import regular_files
from kstate_cli.formats.binary import parse_json
from kstate_cli.regular_files import kind_of
from kstate_cli.spark.engine import JAVA, RELEASE, find_java, release_file

FORMAT: Final = 1
FOR_ALL: Final = Path("/var/cache/kstate/spark")
"""What root has made for all users of a host, or of an image."""
_OF_CACHE: Final = ("kstate", "spark")
MAIN_CLASS: Final = "org.apache.spark.deploy.SparkSubmit"
_MOST_BYTES: Final = 1 << 20
_CHUNK: Final = 8 << 20

_VARIABLES: Final = re.compile(r"_?(?:SPARK|HADOOP|YARN|PYSPARK|JAVA|JDK|LD)_|CLASSPATH$")
"""Variables that the launcher, its scripts and the JVM read, by the beginnings of names."""
_OTHER_VARIABLES: Final = frozenset(
    {
        "JAVA_HOME",
        "PYSPARK_PYTHON",
        "PYSPARK_DRIVER_PYTHON",
        "SPARK_LOCAL_IP",
        "PYSPARK_SUBMIT_ARGS",
        # PySpark sets these, for its own, once it has run in a process.
        "SPARK_AUTH_SOCKET_TIMEOUT",
        "SPARK_BUFFER_SIZE",
    }
)
"""Variables that decide nothing here: the Java itself is examined, and Spark gets the others unchanged."""
_OF_THE_RUN: Final = re.compile(
    r"spark\.(?:master|app\.name|driver\.(?:host|bindAddress)|executor\..*|executorEnv\..*|task\..*|cores\..*"
    r"|speculation.*|hadoop\..*|network\..*|eventLog\..*|locality\..*|ui\..*|local\.dir|python\..*)"
)
"""Settings that are handed on to Spark as they are. Any other one may change the command."""


class NotKept(Exception):
    """Such a start cannot be recorded; the message states why."""


@dataclass(frozen=True, slots=True)
class KeptStart:
    """A command and an archive that fit this host."""

    archive: Path
    command: tuple[str, ...]
    """Up to the main class: what follows are settings."""
    environment: Mapping[str, str]
    """Variables that Spark's scripts have set."""

    def argv(self, conf: Mapping[str, str]) -> list[str]:
        """Return the command of a JVM with these settings, without the JVM's own messages about the archive."""
        *before, main = self.command
        options = ["-Xshare:auto", f"-XX:SharedArchiveFile={self.archive}", "-Xlog:disable"]
        # Settings are no part of the record: each run has its own.
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        return [*before, *options, main, *settings, "pyspark-shell"]


def of_user() -> Path | None:
    """Return the folder of this user, which may not exist; None if nothing names the place of the user's files."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(cache):
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        cache = os.path.join(home, ".cache")
    return Path(cache).joinpath(*_OF_CACHE)


def find(conf: Mapping[str, str]) -> KeptStart | None:
    """Return the recorded start for these settings; None without one, or if it may not be trusted."""
    try:
        key = key_of(start_inputs(conf))
    except (NotKept, OSError):
        return None
    # The user's own first, so that a user can replace what root has made.
    for folder in (of_user(), FOR_ALL):
        if folder is not None and (start := read(folder, key)) is not None:
            return start
    return None


def read(folder: Path, key: str) -> KeptStart | None:
    """Return the archive and the command for a key in ``folder``; None if they are missing, incomplete or not safe."""
    try:
        folder = Path(os.path.realpath(folder))
        note = folder / f"{key}.json"
        # A user who can write to the record decides which command this process starts.
        if why_not_safe(note) is not None:
            return None
        record = parse_json(regular_files.read_small(note, _MOST_BYTES))
        archive = folder / _name(record["archive"])
        command, environment = record["command"], record["environment"]
        if record["format"] != FORMAT or why_not_safe(archive) is not None or ":" in str(archive):
            return None
        if not _texts(command) or not _texts([*environment, *environment.values()]) or command[-1:] != [MAIN_CLASS]:
            return None
        # The JVM maps the archive into memory without checking it: a changed bit would change the code of a class.
        if checksum(archive) != (record["bytes"], record["crc32"]):
            return None
        return KeptStart(archive, tuple(command), environment)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None


def _name(text: str) -> str:
    if os.path.basename(text) != text:
        raise ValueError(text)
    return text


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and "\0" not in value for value in values)


def checksum(path: Path) -> tuple[int, int]:
    """Return bytes and CRC-32 of a regular file: against rot, not against other writers."""
    size, crc = 0, 0
    with os.fdopen(regular_files.open_regular(path), "rb", 0) as file:
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
    return size, crc


def key_of(decides: Mapping[str, Any]) -> str:
    """Return a name for the inputs of a start."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32]


def start_inputs(conf: Mapping[str, str]) -> dict[str, Any]:
    """Return all facts that the command and the archive depend on. Raises NotKept, and OSError."""
    home = _spark_home()
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    # Settings in these files may change the command. And a folder in the class path makes a class-data archive invalid.
    if os.path.isdir(folder) and os.listdir(folder):
        raise NotKept(f"Spark has custom settings in {folder}, but an archive can contain only jars, not a folder")
    if os.environ.get("PYSPARK_SUBMIT_ARGS"):
        raise NotKept("PYSPARK_SUBMIT_ARGS has arguments for Spark's launcher")
    variables = {
        name: value
        for name, value in os.environ.items()
        if _VARIABLES.match(name) and name not in _OTHER_VARIABLES and value
    }
    settings = {name: value for name, value in conf.items() if not _OF_THE_RUN.fullmatch(name)}
    return {
        "format": FORMAT,
        "java": of_java(find_java()),
        "spark": of_spark(home),
        "variables": variables,
        "settings": settings,
    }


def _spark_home() -> str:
    """Return ``spark_home`` without the time that importing PySpark takes. Raises NotKept."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return home
    # Finding a package does not run it.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NotKept("PySpark is not installed")
    return os.path.dirname(os.path.realpath(spec.origin))


def of_java(java: str | None) -> dict[str, Any]:
    """Return facts that identify a JVM, without starting it. Raises NotKept, and OSError."""
    if java is None:
        raise NotKept("Java is not installed")
    path = Path(os.path.realpath(java))
    home = path.parent.parent
    try:
        release = release_file(java)
        files = [_identity(file) for file in (path, home / "lib" / "server" / "libjvm.so", home / "lib" / "modules")]
    except OSError:
        raise NotKept(f"{path} is not part of a complete Java installation. Set JAVA_HOME to one") from None
    version = RELEASE.search(release)
    if version is None or int(version[1]) < JAVA:
        raise NotKept(f"creating an archive needs Java {JAVA} or later, but {path} is older")
    return {"path": str(path), "files": files, "release": release}


def of_spark(home: str) -> dict[str, Any]:
    """Return the identity of a Spark: its jars, in the order in which the JVM finds them.

    Raises NotKept, and OSError.
    """
    folder = os.path.join(home, "jars")
    if not os.path.isdir(folder):
        raise NotKept(f"{home} is not an installation of Spark, because it has no jars")
    return {"home": home, "jars": [_identity(Path(folder, name)) for name in os.listdir(folder)]}


def _identity(path: Path) -> list[Any]:
    status = os.stat(path)
    return [path.name, status.st_size, status.st_mtime_ns]


_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def why_not_safe(path: Path) -> str | None:
    """Return why another user can change or replace a file or folder; None if no other user can.

    ``path`` is absolute and contains no links. Raises OSError if it does not exist.
    """
    # Every folder of the path is checked, because its owner can replace everything below it.
    for folder in reversed(path.parents):
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode):
            return f"{folder} is {kind_of(status.st_mode)}, not a directory"
        # In a folder with the sticky bit, such as /tmp, other users may add names, but not remove ours.
        if (why := _of_others(folder, status, sticky=bool(status.st_mode & stat.S_ISVTX))) is not None:
            return why
    status = os.lstat(path)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return f"{path} is {kind_of(status.st_mode)}"
    return _of_others(path, status, sticky=False)


def _of_others(path: Path, status: os.stat_result, *, sticky: bool) -> str | None:
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to uid {status.st_uid}"
    if status.st_mode & _OTHERS_MAY_WRITE and not sticky:
        return f"other users may write to {path} (mode {stat.S_IMODE(status.st_mode):04o})"
    return None
