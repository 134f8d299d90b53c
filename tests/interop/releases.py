"""Kafka Streams releases and the broker: their jars from Maven Central, and the harness compiled against each."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PROVING = os.environ.get("KSTATE_INTEROP_RELEASE")
"""A release that is to be proven (scripts/prove-release.sh): what is run with several is run with this one then."""
JAVA = Path(__file__).resolve().parent / "java"
BROKER_VERSION = "4.3.1"
SILENT = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Options of a JVM that starts without its archive of classes when the archive is of no use, and does not warn."""
GLOBAL_TABLE = "global-table"
"""The global table of the topology "kinds"."""

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>kstate</groupId><artifactId>fetch</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_CLASSIFIER = "<classifier>{}</classifier>"


class InteropError(Exception):
    """The harness itself failed: no verdict on kstate."""


def home() -> Path:
    """The folder of everything that is fetched or compiled: nothing is written beside the sources."""
    get = os.environ.get("KSTATE_INTEROP_HOME")
    return Path(get).resolve() if get else Path.home() / ".cache" / "kstate-interop"


def number(version: str) -> tuple[int, int]:
    """The release line: (4, 3) of 4.3.1."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def tried(usual: Sequence[str]) -> list[str]:
    """The releases that a test is run with: these, or the one that is to be proven."""
    return [PROVING] if PROVING else list(usual)


def like(version: str, names: Sequence[str]) -> str:
    """Of the releases that are known the one that this one is like: the newest that is not newer, else the oldest."""
    ordered = sorted(names, key=number)
    return next((entry for entry in reversed(ordered) if number(entry) <= number(version)), ordered[0])


def forgets_global_tables(release: str) -> bool:
    """
    Return whether a release ends without the offsets of a small global table, so that the next start reads all of it.

    Seen with 3.7.2, 3.8.1 and 3.9.1, whatever kstate does; neither with 3.6.1 nor with 3.9.2, 4.0.2 and 4.1.0 (KAFKA-18168).
    By bytecode 3.7.1 is the first, and 3.7.0 does as 3.6.
    """
    numbers = tuple(int(part) for part in release.split("."))
    return (3, 7, 1) <= numbers < (3, 9, 2) or (4, 0, 0) <= numbers < (4, 0, 2)


def only_what_is_forgotten(ended_by: str) -> list[str]:
    """The stores that a start may restore after that release has ended."""
    return [GLOBAL_TABLE] if forgets_global_tables(ended_by) else []


def streams_jars(version: str) -> Path:
    """The folder with the jars of this Kafka Streams release; fetched on first use."""
    return _jars(home() / "lib" / version, f"org.apache.kafka:kafka-streams:{version}")


def connector_jars(version: str) -> Path:
    """The folder with Spark's own Kafka connector, of this release of Spark, and what it needs."""
    folder = home() / "lib" / f"spark-sql-kafka-{version}"
    return _jars(folder, f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}")


def broker_jars(version: str = BROKER_VERSION) -> Path:
    """The folder with the jars of a broker, the usual one by default; fetched on first use."""
    return _jars(home() / "lib" / f"broker-{version}", f"org.apache.kafka:kafka_2.13:{version}")


def tools_jars(version: str) -> Path:
    """The folder with the jars of Kafka's own command line tools; fetched on first use."""
    return _jars(home() / "lib" / f"tools-{version}", f"org.apache.kafka:kafka-tools:{version}")


def kafka_tests(version: str) -> Path:
    """
    Return the folder with the jar of Kafka's own tests of Streams of this release; fetch it on first use.

    Up to 4.3 it has the classifier "test". From 4.4 on "test-fixtures" has the classes of the smoke test, but not those of the
    relational one.
    """
    classifier = "test" if number(version) < (4, 4) else "test-fixtures"
    target = home() / "lib" / f"{version}-tests"
    with one_process(target.name):
        if not (target / "complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            _fetch(target, f"org.apache.kafka:kafka-streams:{version}", classifier, "-DexcludeTransitive=true")
            (target / "complete").touch()
    return target


def classes(version: str) -> Path:
    """The jar of the harness compiled against this release; compiled when its sources have changed."""
    return compiled(version, _sources(version))


def compiled(version: str, files: Sequence[Path], more: Sequence[Path] = ()) -> Path:
    """Return the jar of these sources compiled against a release and `more` jars, written once for each text."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    target = home() / "classes" / f"{version}-{digest}.jar"
    path = ":".join(map(str, [*more, streams_jars(version) / "*"]))
    with one_process("classes"):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                command = [
                    "javac",
                    "-nowarn",
                    "-Xlint:-deprecation",
                    "--release",
                    "17",
                    "-cp",
                    path,
                    "-d",
                    f"{folder}/all",
                ]
                process = subprocess.run([*command, *map(str, files)], stderr=subprocess.PIPE, text=True, check=False)
                if process.returncode:
                    raise InteropError(f"the harness does not compile against {version}:\n{process.stderr}")
                shutil.make_archive(f"{folder}/all", "zip", f"{folder}/all")
                Path(folder, "all.zip").rename(target)
    return target


def archive_of(name: str, class_path: str) -> Path:
    """Return the path of the archive of classes for this class path and this JVM: another JVM does not read it."""
    jvm = Path(shutil.which("java") or "java").resolve()
    digest = hashlib.sha256(f"{jvm}\n{class_path}".encode()).hexdigest()[:12]
    folder = home() / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{digest}.jsa"


def _sources(version: str) -> list[Path]:
    """java/base is compiled against every release, java/since-X.Y against releases from X.Y on."""
    folders = [JAVA / "base"]
    folders += [f for f in sorted(JAVA.glob("since-*")) if number(version) >= number(f.name.removeprefix("since-"))]
    return sorted(file for folder in folders for file in folder.rglob("*.java"))


def _jars(target: Path, artifact: str) -> Path:
    """The jars of one artifact with what they depend on, and the slf4j-simple that fits its slf4j-api."""
    if (target / "complete").exists():
        return target
    with one_process(target.name):
        if (target / "complete").exists():
            return target
        shutil.rmtree(target, ignore_errors=True)
        _fetch(target, artifact)
        api = max(target.glob("slf4j-api-*.jar")).stem.removeprefix("slf4j-api-")
        _fetch(target, f"org.slf4j:slf4j-simple:{api}")
        (target / "complete").touch()
    return target


def _fetch(target: Path, coordinates: str, classifier: str = "", *options: str) -> None:
    work = home() / "pom" / target.name
    work.mkdir(parents=True, exist_ok=True)
    which = _CLASSIFIER.format(classifier) if classifier else ""
    (work / "pom.xml").write_text(_POM.format(_DEPENDENCY.format(*coordinates.split(":"), which)))
    command = [
        "mvn",
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={target}",
        *options,
    ]
    try:
        subprocess.run(command, cwd=work, check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InteropError(f"Maven cannot fetch {coordinates}: {error}") from error


@contextlib.contextmanager
def one_process(name: str) -> Iterator[None]:
    """Let one process at a time fetch, compile or write what all use."""
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
