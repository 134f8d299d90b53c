"""The release to start, named or read from the application's jar, and the texts of its topologies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kstate_cli import option
from kstate_cli.cli.output import say
from kstate_cli.errors import Refused, UsageError
from kstate_cli.texts import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstate_cli.check.snapshot import RequestedTopology
    from kstate_cli.releases import Release
    from kstate_cli.statedir.model import Application


_JAR: Final = "-jar"
_SEED_TO: Final = "seed_to"
"""The parameter of ``check`` that replaces the prediction."""


def require_release(ctx: Any, parameter: Any, value: Any) -> Any:
    """Raise UsageError if neither the release nor its jar is given: the callback of ``--to-jar`` and ``--for-jar``.

    Click processes it after the option of the release, unless the jar is given.
    """
    # The name of the other option follows from this one: --to from --to-jar, and --for from --for-jar.
    release_option = parameter.opts[0].removesuffix(_JAR)
    name = next(parameter.name for parameter in ctx.command.params if release_option in parameter.opts)
    # While a shell completes, nothing is required: the release may be typed next. --seed-to is about no release.
    alternatives = (value, ctx.params.get(name), ctx.params.get(_SEED_TO))
    if all(entry is None for entry in alternatives) and not ctx.resilient_parsing:
        # Not BadParameter: Click would call this an invalid value of the option that is missing.
        raise UsageError(
            f"Missing option: {release_option} RELEASE or {parameter.opts[0]} PATH",
            hint=f"to see its options, run {command(*ctx.info_name.split(), option.HELP)}",
        )
    return value


ForJar = Annotated[
    Path | None,
    typer.Option(
        option.FOR_JAR,
        metavar="PATH",
        help="Read the release from this jar or folder of jars.",
        readable=False,
        callback=require_release,
    ),
]


def chosen_release(option_name: str, name: str | None, jar: Path | None, *, quiet: bool) -> Release:
    """Return the release that ``option`` (``--to``, ``--for``) names, or the one in the jar behind its ``-jar``.

    Print the version in a jar, and a note about the build of a vendor. Raise UsageError unless one of the two is
    given, and what reading them raises.
    """
    from kstate_cli.releases import build_note, release

    if jar is None:
        # The version is kept as it was typed: that of a vendor (cp-8.2) gets a note.
        version, row = str(name), release(str(name), option_name)
    elif name is not None:
        raise UsageError(f"{option_name} and {option_name}{_JAR} cannot be used together", hint="omit one of them")
    else:
        # Imported here, because only --to-jar and --for-jar read zip archives.
        from kstate_cli.jars import release_in

        jar_release = release_in(jar, option_name)
        version, row = jar_release.version, jar_release.release
        say(f"{jar_release.where} contains Kafka Streams {version} (release {row.version})", quiet=quiet)
    if (note := build_note(version)) is not None:
        say(f"note: {note}", quiet=quiet)
    return row


PANEL: Final = "Changed topology"
NewTopology = Annotated[
    Path | None,
    typer.Option(
        option.TOPOLOGY,
        metavar="FILE",
        help="Read the new topology from FILE, the output of Topology#describe.",
        rich_help_panel=PANEL,
        readable=False,
    ),
]
OldTopology = Annotated[
    Path | None,
    typer.Option(
        option.FROM,
        metavar="FILE",
        help="Read the previous topology from FILE.",
        rich_help_panel=PANEL,
        readable=False,
    ),
]
NewKinds = Annotated[
    Path | None,
    typer.Option(
        option.SPEC,
        metavar="FILE",
        help="Read the kinds of new stores from this kstate.toml.",
        rich_help_panel=PANEL,
        readable=False,
    ),
]


def refuse_without_topology(new: Path | None, others: Sequence[str]) -> None:
    """Raise UsageError for options of a new topology without ``--topology``."""
    if others and new is None:
        raise UsageError(f"{others[0]} needs --topology", hint="pass the description of the new topology")


def read_topologies(
    application: Application, new: Path, old: Path | None, spec: Path | None, *, at_least_once: bool
) -> RequestedTopology:
    """Return both topologies, and the command of ``rehome`` that moves the stores.

    Raise UsageError for files that cannot be read, and Refused for texts of another application. Other refusals of
    rehome are part of the result.
    """
    from kstate_cli.check.snapshot import RehomePreview, RequestedTopology
    from kstate_cli.rehome.model import WhyRefused, options_of
    from kstate_cli.rehome.planner import plan_rehome

    words: list[str | Path] = [new]
    if old is not None:
        words += [option.FROM, old]
    if spec is not None:
        words += [option.SPEC, spec]
    if at_least_once:
        words += [option.GUARANTEE, "at_least_once"]
    options = options_of(new, old, (), spec, at_least_once=at_least_once, wipe_unclean=False)
    options = options.of_application(application.app_id)
    try:
        plan = plan_rehome(application, options)
        mending = RehomePreview(tuple(words), warnings=plan.warnings if plan.steps else ())
    except Refused as error:
        # The text is of another application, so every prediction would be about other stores.
        if error.code in (WhyRefused.OTHER_APPLICATION, WhyRefused.OLD_DOES_NOT_FIT):
            raise
        # Other refusals of rehome do not keep Streams from starting: check predicts what happens without rehome.
        why = ": ".join(filter(None, (error.headline, ", ".join(error.details))))
        mending = RehomePreview(tuple(words), why, " ".join(filter(None, (error.hint, *error.hint_details))))
    assert options.new is not None
    return RequestedTopology(options.new, options.old, options.spec, mending)
