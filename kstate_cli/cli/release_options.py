"""The release that is to be started: named, or read from the jar that the application is started with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from kstate_cli.releases import Release

_JAR: Final = "-jar"


def one_is_given(ctx: Any, option: Any, value: Any) -> Any:
    """The callback of ``--to-jar`` and its like: what is missing is missed where the command line is read.

    Click comes to it behind the option that names the release, unless it was given itself.
    """
    named = option.opts[0].removesuffix(_JAR)
    name = next(one.name for one in ctx.command.params if named in one.opts)
    if value is None and ctx.params.get(name) is None and not ctx.resilient_parsing:
        raise typer.BadParameter(f"Missing option: {named} RELEASE, or {option.opts[0]} PATH")
    return value


ForJar = Annotated[
    Path | None,
    typer.Option(
        "--for-jar",
        metavar="PATH",
        help="The one in the application's jar, or folder of jars.",
        readable=False,
        callback=one_is_given,
    ),
]


def chosen_release(option: str, name: str | None, jar: Path | None, *, quiet: bool) -> Release:
    """Return the release that ``option`` (``--to``, ``--for``) names, or the one in the jar behind its ``-jar``.

    Print the version in a jar, and a note about the build of a vendor. Raise UsageError unless one of the two is
    given, and what reading them raises.
    """
    from kstate_cli.cli.output import say
    from kstate_cli.errors import UsageError
    from kstate_cli.releases import build_note, release

    if jar is None:
        version, chosen = str(name), release(str(name), option)
    elif name is not None:
        raise UsageError(f"{option} and {option}{_JAR} are two answers to one question", hint="leave one of them out")
    else:
        from kstate_cli.jars import release_in

        brought = release_in(jar, option)
        version, chosen = brought.version, brought.release
        say(f"{brought.where}: Kafka Streams {version}, release {chosen.version}", quiet=quiet)
    if (note := build_note(version)) is not None:
        say(f"note: {note}", quiet=quiet)
    return chosen
