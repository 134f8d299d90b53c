"""``kstate warm-up``: archive the classes of Spark's JVM, so that later starts are faster."""

from __future__ import annotations

from typing import Annotated

import typer

from kstate_cli.cli.options.shared import OutputFormat, Quiet
from kstate_cli.cli.output import Format


def warm_up(
    for_all: Annotated[
        bool,
        typer.Option("--for-all", help="For all users of this host or image: in /var/cache/kstate, as root."),
    ] = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Make Spark start in half the time: archive the classes that its JVM loads.

    Run it once per user, or when you build an image. The archive is in the user's cache directory, for this Java and
    this Spark. Run it again after an update of either. If the archive is missing, damaged or writable by others, Spark
    starts without it.
    """
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.cli.output import say
    from kstate_cli.spark.warming import warm_up as make
    from kstate_cli.texts import printable, size_text

    warmed = make(for_all=for_all, phase=lambda text: say(text, quiet=quiet))
    if output is Format.json:
        JsonLines(None).summary(
            {
                "path": str(warmed.archive),
                "bytes": warmed.bytes,
                "made": warmed.is_new,
                "seconds": None if warmed.seconds is None else round(warmed.seconds, 3),
            }
        )
        return 0
    size, where = size_text(warmed.bytes), printable(str(warmed.archive))
    if warmed.seconds is None:
        say(f"exists already: {where}, {size}", quiet=quiet)
    else:
        say(f"created: {where}, {size}; Spark starts, works and ends in {warmed.seconds:.1f} s", quiet=quiet)
    return 0
