"""``kstate start-barrier``: wait for all hosts, so that their applications start together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import OutputFormat, Quiet, WarningsOk
from kstate_cli.cli.output import Format, output_of
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS

if TYPE_CHECKING:
    from kstate_cli.cli.lines.dumps import StartBarrierLine
    from kstate_cli.cli.output import Output

HELP_EXAMPLES: Final = {
    "start-barrier": (
        Example("Wait for three hosts that share a folder", "start-barrier /backup/app --hosts 3"),
        Example(
            "Wait in an init container, with the pod name as the host name",
            "start-barrier s3://bucket/app --hosts 3 --host app-1",
        ),
    ),
}


def start_barrier(
    place: Annotated[
        str,
        typer.Argument(metavar="PLACE", help="Path to a folder or s3://BUCKET/PREFIX that all hosts can access."),
    ],
    hosts: Annotated[int, typer.Option(option.HOSTS, metavar="N", min=1, help="Number of hosts, including this one.")],
    host: Annotated[
        str | None,
        typer.Option(option.HOST, metavar="NAME", help="Name of this host. The default is the system's host name."),
    ] = None,
    timeout: Annotated[
        int,
        typer.Option(
            option.TIMEOUT,
            metavar="SECONDS",
            min=0,
            help="Wait up to SECONDS for the other hosts, then exit with code 1.",
            show_default="3600",
        ),
    ] = 3600,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
    warnings_ok: WarningsOk = False,
) -> int:
    """Wait until all hosts have reached the barrier so that all instances start together.

    If one Kafka Streams instance starts alone, every task is assigned to that instance. It then restores all state from
    the broker, even though the other hosts have this state on disk. Each host writes one small file to PLACE and
    overwrites this file the next time.
    """
    from kstate_cli.cli.views.barrier import BarrierView, barrier_result

    # Checks the place and the name before it waits.
    view = BarrierView(place, host=host, hosts=hosts, timeout=timeout)
    results: Output[StartBarrierLine] = output_of(output, None, quiet=quiet)
    waiting = view.wait(results)
    results.lines([{"type": "summary", "barrier": barrier_result(waiting), **view.members(waiting)}])
    return EXIT_OK if waiting.all_here or warnings_ok else EXIT_WARNINGS
