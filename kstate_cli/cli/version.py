"""List what a bug report needs: versions of kstate, libraries and host (``kstate --version --verbose``).

No slow program is started, and a missing or broken part does not hide the rest.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path

from kstate_cli import __version__
from kstate_cli.texts import DOCS_URL, INTERNALS, first_line, printable

_NOT_INSTALLED = "not installed"


def lines(*, verbose: bool) -> Iterator[str]:
    """Return ``kstate 0.1.0``, and with ``verbose`` a line for each library and program below it."""
    yield f"kstate {__version__}"
    if verbose:
        for name, read in _SURROUNDINGS.items():
            yield printable(f"{name}: {_read_or_unknown(read)}")


def _read_or_unknown(read: Callable[[], str]) -> str:
    try:
        return read()
    # A report about a broken installation is what --verbose is for: no line may keep the others from being printed.
    except Exception as error:
        return f"unknown: {type(error).__name__}: {first_line(error)}"


def _installed(distribution: str) -> Callable[[], str]:
    """Return the version of a package from its metadata: an import may take a second, or fail."""

    def read() -> str:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            # In an archive for spark-submit the package has no metadata.
            spec = util.find_spec(distribution)  # on the path, as spark-submit has it there
            return _NOT_INSTALLED if spec is None else f"unknown version, {spec.origin}"

    return read


def _rocksdb() -> str:
    from kstate_cli.rocks.create import rocksdb_version

    return rocksdb_version()


def _java() -> str:
    from kstate_cli.spark.engine import find_java, version_text

    java = find_java()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        return f"not found, because JAVA_HOME is {home}, which has no bin/java" if home else "not found on the PATH"
    return f"{version_text(java).partition(os.linesep)[0]}, {java}"


def _documentation() -> str:
    """Return the folder of the pages that messages name as ``docs/…``, or the address of their site."""
    site = os.environ.get(DOCS_URL)
    if site:
        return site
    repository = Path(__file__).parents[2]
    # kstate runs from a checkout, whose pages are those of this version.
    if (repository / INTERNALS).is_dir():
        return str(repository)
    # The installer has put the pages below a virtual environment, the user's own files, or those of the whole system.
    pages = [file for file in metadata.files("kstate") or () if file.as_posix().endswith(f"{INTERNALS}/README.md")]
    paths = [Path(os.path.realpath(str(file.locate()))) for file in pages]
    return next((str(path.parents[2]) for path in paths if path.is_file()), _NOT_INSTALLED)


def _settings() -> str:
    """Return the environment variables that set options or change how kstate works, without secrets."""
    from kstate_cli.diagnosis import redacted

    names = sorted(name for name in os.environ if name.startswith(_PREFIX))
    return " ".join(redacted([f"{name}={os.environ[name]}" for name in names])) or "none"


_PREFIX = "KSTATE_"


def _file_system() -> str:
    from kstate_cli.statedir.locks import mount_of, read_mounts

    here = Path.cwd()
    # The working directory, since bug reports are written where the state is.
    mount = mount_of(here.resolve(), read_mounts())
    return f"{'unknown' if mount is None else mount.kind}, of {here}"


_SURROUNDINGS: dict[str, Callable[[], str]] = {
    "installed in": lambda: str(Path(__file__).parents[2]),
    "documentation": _documentation,
    "Python": lambda: f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}",
    "platform": lambda: f"{platform.platform()}, {'-'.join(platform.libc_ver())}",
    "rocksdict": _installed("rocksdict"),
    "RocksDB": _rocksdb,
    "pyarrow": _installed("pyarrow"),
    "PySpark": _installed("pyspark"),
    "Java": _java,
    "file system": _file_system,
    "KSTATE_ variables": _settings,
}
