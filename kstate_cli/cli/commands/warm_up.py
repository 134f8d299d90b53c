"""``kstate warm-up``: archive the classes of Spark's JVM, so that later starts are faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import OutputFormat, Quiet
from kstate_cli.cli.output import Format, output_of
from kstate_cli.texts import printable, size_text

if TYPE_CHECKING:
    from kstate_cli.cli.lines.dumps import WarmUpLine, WarmUpSummaryLine
    from kstate_cli.cli.output import Output

HELP_EXAMPLES: Final = {
    "warm-up": (
        Example("Run once, as the user that restores stores", "warm-up"),
        Example("Run as root when you build an image", "warm-up --for-all"),
    ),
}


def warm_up(
    for_all: Annotated[
        bool,
        typer.Option(
            option.FOR_ALL,
            help=("Create the archive in /var/cache/kstate for all users of this host or image. Requires root."),
        ),
    ] = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Cut Spark's startup time in half by archiving the classes that its JVM loads.

    Run this command once per user, or when you build an image. kstate writes the archive to the user's cache directory.
    The archive is valid only for this version of Java and Spark, so rerun this command after you update either of them.
    If the archive is missing, damaged or writable by others, Spark starts without it.
    """
    from kstate_cli.spark.warming import warm_up as make

    results: Output[WarmUpLine] = output_of(output, None, quiet=quiet)
    # Spark is started here, which takes long: each phase is reported.
    warmed = make(for_all=for_all, phase=results.say)
    size, where = size_text(warmed.bytes), printable(str(warmed.archive))
    line: WarmUpSummaryLine = {
        "type": "summary",
        "path": str(warmed.archive),
        "bytes": warmed.bytes,
        "made": warmed.is_new,
        "seconds": None,
    }
    text = f"the archive {where} already exists ({size})"
    if warmed.seconds is not None:
        line["seconds"] = round(warmed.seconds, 3)
        text = (
            f"kstate created {where} ({size}). With this archive, Spark starts, runs and stops in "
            f"{warmed.seconds:.1f} s"
        )
    results.lines([line])
    results.remark(text)
    return 0
