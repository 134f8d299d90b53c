"""``kstate examples``: the examples that come with kstate, written to a new directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kstate_cli.cli.options import Output, Quiet
from kstate_cli.cli.output import Format


def examples(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory to make; it must not be there yet.")],
    output: Output = Format.table,
    quiet: Quiet = False,
) -> int:
    """Write the examples to a new directory: Kubernetes, systemd, cron, Spark, serdes, and a changelog dump to restore.

    README.md among them says what each is. Nothing is overwritten; DIR is there with all of them, or not at all.
    """
    from kstate_cli.cli.example_files import write_examples
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.cli.output import say, table
    from kstate_cli.texts import command

    folder = Path(os.path.abspath(out))
    written = write_examples(folder)
    if output is Format.json:
        lines = JsonLines(None)
        for path, size in written:
            lines.line("file", {"path": str(folder / path), "bytes": size})
        lines.summary({"out": str(folder), "files": len(written), "bytes": sum(size for _, size in written)})
        return 0
    table(None, ("file", "bytes"), [(path, f"{size:,}") for path, size in written], right=frozenset({"bytes"}))
    say(f"what each of them is: {folder / 'README.md'}", quiet=quiet)
    restored = (out.with_name("orders"), "--from-changelog", out / "dump", "--spec", out / "dump.toml", "--for", "4.3")
    line = command("restore", *restored, "--engine", "local")
    say(f"to try a restoration of the dump, without Spark: {line}", quiet=quiet)
    return 0
