"""``kstate examples``: write the examples that come with kstate to a new directory.

They are in ``examples`` of the repository. ``kstate_cli/examples`` is a link to it there, and a directory in an
installation, so that every kstate has the examples of its own version.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option, temporary
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import OutputFormat, Quiet
from kstate_cli.cli.output import Format, output_of, screen_width, table
from kstate_cli.errors import Refused, UsageError
from kstate_cli.statedir.find import looks_like_application
from kstate_cli.statedir.names import OWN_FOLDER
from kstate_cli.texts import EXAMPLES, command, quoted

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from kstate_cli.cli.lines.dumps import ExamplesLine
    from kstate_cli.cli.output import Output

HELP_EXAMPLES: Final = {
    "examples": (
        Example(
            "Write Kubernetes manifests, systemd units, a crontab and a dump", "examples --out /tmp/kstate-examples"
        ),
        Example("Print the paths of the files as JSON", "examples --out /tmp/kstate-examples -o json"),
    ),
}


def examples(
    out: Annotated[Path, typer.Option(option.OUT, metavar="DIR", help="Directory to create. It must not exist yet.")],
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Write examples to a new directory: Kubernetes, systemd, cron, Spark, serdes, and a changelog dump to restore.

    README.md in that directory describes each example. kstate does not overwrite files. If an error occurs, kstate does
    not create DIR.
    """
    folder = Path(os.path.abspath(out))
    files = write_examples(folder)
    results: Output[ExamplesLine] = output_of(output, None, quiet=quiet)

    def show() -> None:
        # The table reports only what has succeeded.
        if not quiet:
            _show_files(files)

    results.show(_lines(folder, files), show)
    results.remark(f"{folder / 'README.md'} describes each example")
    restored = (
        out.with_name("orders"),
        option.FROM_CHANGELOG,
        out / "dump",
        option.SPEC,
        out / "dump.toml",
        option.FOR,
        "4.3",
    )
    results.remark(f"to try restoring a directory from the dump: {command('restore', *restored)}")
    return 0


def _show_files(files: list[tuple[PurePosixPath, int]]) -> None:
    """Print a row for each file; on a terminal, which would scroll them away, a row for each folder."""
    if screen_width() is None:
        rows = [(path, f"{size:,}") for path, size in files]
        table(None, ("file", "bytes"), rows, right=frozenset({"bytes"}))
        return
    sizes: dict[str, list[int]] = {}
    for path, size in files:
        top = path.parts[0]
        sizes.setdefault(f"{top}/" if len(path.parts) > 1 else top, []).append(size)
    table(
        None,
        ("file or folder", "files", "bytes"),
        [(name, len(of_name), f"{sum(of_name):,}") for name, of_name in sizes.items()],
        right=frozenset({"files", "bytes"}),
    )


def _lines(folder: Path, files: list[tuple[PurePosixPath, int]]) -> Iterator[ExamplesLine]:
    for path, size in files:
        yield {"type": "file", "path": str(folder / path), "bytes": size}
    yield {"type": "summary", "out": str(folder), "files": len(files), "bytes": sum(size for _, size in files)}


_SCRIPT = b"#!"
_LEFT_BY_PYTHON = "__pycache__"
_SOMETHING_IS_THERE = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
"""Errors of renaming a directory to an existing name."""


def example_files() -> Iterator[tuple[PurePosixPath, Traversable]]:
    """Yield each file with its path among the examples, sorted by name."""
    yield from _below(files("kstate_cli").joinpath(EXAMPLES), PurePosixPath())


def _below(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda child: child.name):
        if entry.is_file():
            yield path / entry.name, entry
        # Python leaves it beside examples that were run from an installation.
        elif entry.name != _LEFT_BY_PYTHON:
            yield from _below(entry, path / entry.name)


def write_examples(out: Path) -> list[tuple[PurePosixPath, int]]:
    """Write the examples to the new directory ``out``, all or none; return paths and bytes.

    Raise UsageError and Refused if it cannot be created there, and OSError: then nothing is written.
    """
    # Links in the parent are resolved; the name itself must not exist yet.
    out = Path(os.path.realpath(out.parent)) / out.name
    _check(out)
    files = []
    with temporary.private_folder("examples", out.parent) as folder:
        new = folder / EXAMPLES
        for path, content in example_files():
            data = content.read_bytes()
            target = new / path
            # Files are written to a temporary folder, so that DIR does not exist before all are complete.
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            if data.startswith(_SCRIPT):
                mode = target.stat().st_mode
                target.chmod(mode | (mode & 0o444) >> 2)  # A script can be run by all users who can read it.
            files.append((path, len(data)))
        try:
            # One rename creates DIR, so that no reader sees half of the examples.
            new.rename(out)
        except OSError as error:
            if error.errno in _SOMETHING_IS_THERE:
                raise _exists_already(out) from None
            raise
    return files


def _check(out: Path) -> None:
    """Raise UsageError or Refused unless the new directory can be created, outside of any application directory."""
    parent = out.parent
    if not parent.is_dir():
        raise UsageError(
            f"kstate cannot create --out {quoted(out)}, because {parent} is not a directory",
            hint="pass a new directory whose parent directory exists",
        )
    if os.path.lexists(out):
        raise _exists_already(out)
    if OWN_FOLDER in parent.parts or looks_like_application(parent):
        raise UsageError(
            f"--out {quoted(out)} is inside an application directory or its backups",
            hint="pass a new directory elsewhere",
        )


def _exists_already(out: Path) -> Refused:
    return Refused(
        f"{out} already exists, and kstate does not overwrite files",
        hint=f"pass a new directory: {command('examples', option.OUT, out.with_name(f'{out.name}-new'))}",
    )
