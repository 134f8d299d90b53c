"""The release that is to be started: named, or read from the jar that the application is started with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kstate_cli.releases import Release

ForJar = Annotated[
    Path | None,
    typer.Option(
        "--for-jar",
        metavar="PATH",
        help="The release in this jar, or folder of jars, of the application.",
        readable=False,
    ),
]


def chosen_release(option: str, name: str | None, jar: Path | None, *, quiet: bool) -> Release:
    """The release that ``option`` (``--to``, ``--for``) names, or the one in the jar behind its ``-jar``.

    What was read from a jar is said. Raises UsageError unless there is one of the two, and what reading them raises.
    """
    from kstate_cli.cli.output import say
    from kstate_cli.errors import UsageError
    from kstate_cli.releases import release

    from_jar = f"{option}-jar"
    if (name is None) == (jar is None):
        said = "are two answers to one question" if name is not None else "are both missing: which release is it?"
        raise UsageError(
            f"{option} and {from_jar} {said}",
            hint=f"{option} 4.2, or {from_jar} with the application's jar or the folder with its jars",
        )
    if jar is None:
        return release(str(name))
    from kstate_cli.jars import release_in

    found = release_in(jar)
    say(f"{found.where}: Kafka Streams {found.version}, release {found.release}", quiet=quiet)
    return found.release
