"""``kstate warm-up``: what makes later starts of Spark quicker, made once."""

from __future__ import annotations

from typing import Annotated

import typer

from kstate_cli.cli.options.shared import Output, Quiet
from kstate_cli.cli.output import Format


def warm_up(
    for_all: Annotated[
        bool,
        typer.Option("--for-all", help="For all users of this host or image: in /var/cache/kstate, as root."),
    ] = False,
    output: Output = Format.table,
    quiet: Quiet = False,
) -> int:
    """Make Spark start in half the time: an archive of the classes that its JVM loads, made once.

    Where an image is built, or once for each user. It lies in the user's cache directory, holds for this Java and this
    Spark, and is made anew when it is asked for and they have changed. Without it, and with one that is damaged or that
    others could have changed, Spark starts as always.
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
                "made": warmed.made,
                "seconds": None if warmed.seconds is None else round(warmed.seconds, 3),
            }
        )
        return 0
    size, where = size_text(warmed.bytes), printable(str(warmed.archive))
    if warmed.seconds is None:
        say(f"it is there already: {where}, {size}", quiet=quiet)
    else:
        say(f"made: {where}, {size}; Spark starts, works and ends in {warmed.seconds:.1f} s", quiet=quiet)
    return 0
