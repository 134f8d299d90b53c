"""Plan the commands of one call of ``kstate maintain``. Only this module spells them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli import option
from kstate_cli.errors import UsageError
from kstate_cli.statedir.names import OWN_FOLDER
from kstate_cli.texts import command, quoted, span_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kstate_cli.maintain.memory import Memory, Result
    from kstate_cli.specification.toml_file import Configuration, Maintenance, Step

DIRECTORY: Final = "directory"
STANDBY: Final = "standby"
# Last in each command: ``plain_words`` cuts them off for users.
_JSON: Final = (option.OUTPUT, "json")
_SLACK: Final = 10
"""Calls come at fixed times, but a step begins when the step before ends. So a step that is a tenth early is due."""
_BROKER_VARIABLE: Final = "KSTATE_INSPECT_POSITION_BOOTSTRAP_SERVER"
"""Names the broker of the step ``lag`` if [defaults] does not."""
_NEEDS: Final = {
    "dump": ("dump", "bootstrap_server"),
    "restore": ("dump", "release"),
    "check": ("release",),
    "verify-dump": ("dump",),
}
"""Step -> keys of [defaults] without which its command would end with a usage error."""


_OF_DUMPS: Final = ("dump", "verify-dump")
"""Steps of the dump, not of a directory."""
PRUNING: Final = "prune-snapshots"
"""The step of a repository, not of a directory."""


@dataclass(frozen=True, slots=True)
class StepCommand:
    """One command of one step."""

    step: str
    of: str | None
    """:data:`DIRECTORY`, :data:`STANDBY`; None for a step of the dump."""
    directory: Path | None
    words: tuple[str, ...]
    """The arguments after ``kstate``."""
    timeout: timedelta
    part: tuple[int, int] | None = None
    """Number of the part to verify, or of a share of one, from 1; and the number of all parts or shares."""
    parts: int = 1
    """The number of parts in ``kstate.toml``; the number of shares is a multiple of it."""
    not_due: str | None = None
    """Why it does not run now."""
    asks_broker: bool = False
    """Its lag comes from a broker, not only from the end of a dump."""

    @property
    def plain_words(self) -> tuple[str, ...]:
        """The arguments for a user who runs the command by hand: with messages and tables."""
        return tuple(word for word in self.words[: -len(_JSON)] if word != option.QUIET)

    @property
    def name(self) -> str:
        """The name in messages, such as ``check (standby)``."""
        if self.of is None:
            return self.step
        return f"{self.step} ({self.of})"


def maintenance_of(configuration: Configuration) -> Maintenance:
    """Return ``[maintain]`` of a configuration that has everything that its steps need. Raises UsageError otherwise."""
    path, maintenance = configuration.path, configuration.maintenance
    if maintenance is None or not maintenance.steps:
        raise UsageError(
            f"{quoted(path)} does not configure any maintenance steps",
            hint=(
                "add a [maintain] table with memory_file and a table for each step, such as [maintain.check]. To get a "
                "complete example, maintain.toml, run:"
            ),
            hint_details=[command("examples", option.OUT, "kstate-examples")],
        )
    if maintenance.memory_file is None:
        raise UsageError(
            f"[maintain] in {quoted(path)} needs memory_file",
            hint='add a file that kstate may create, such as memory_file = "/var/lib/kstate/my-app.json"',
        )
    for step in maintenance.steps:
        _require_complete(configuration, maintenance, step)
    _apart(configuration, maintenance)
    return maintenance


def _require_complete(configuration: Configuration, maintenance: Maintenance, step: Step) -> None:
    """Raise UsageError if a step lacks something."""
    path = configuration.path
    # All mistakes in the file are reported before any step: a dump of hours must not be followed by a usage error.
    for key in _NEEDS.get(step.name, ()):
        if key not in configuration.defaults:
            raise UsageError(
                (f"[maintain.{step.name}] in {quoted(path)} needs {key}"), hint=f"add {key} = … to [defaults]"
            )
    if step.name in ("snapshot", PRUNING) and step.out is None:
        raise UsageError(
            f"[maintain.{step.name}] in {quoted(path)} needs out",
            hint=f'add the repository, such as out = "/backup/snapshots", to [maintain.{step.name}]',
        )
    if step.name == "restore" and maintenance.standby is None:
        raise UsageError(f"[maintain.restore] in {quoted(path)} needs standby", hint="add standby = … to [maintain]")
    if step.name == "dump" and not configuration.has_stores and configuration.application is None:
        raise UsageError(
            f"[maintain.dump] in {quoted(path)} needs an application or stores, which determine the topics to dump",
            hint="add application = … at the top of the file or a table for each store",
        )
    if step.name not in (*_OF_DUMPS, PRUNING, "restore") and not dict(directories(configuration, maintenance)):
        raise UsageError(
            f"[maintain.{step.name}] in {quoted(path)} needs a directory",
            hint="add directory = … to [defaults] or standby = … to [maintain]",
        )


def directories(configuration: Configuration, maintenance: Maintenance) -> Iterator[tuple[str, Path]]:
    """Yield the directories of the steps, each with its role."""
    if "directory" in configuration.defaults:
        yield DIRECTORY, Path(configuration.defaults["directory"])
    if maintenance.standby is not None:
        yield STANDBY, maintenance.standby


def _apart(configuration: Configuration, maintenance: Maintenance) -> None:
    """Raise UsageError if two places are nested, or if a file of kstate would be in a state directory or a dump."""
    places = {f"the {name}": path for name, path in directories(configuration, maintenance)}
    if "dump" in configuration.defaults and "://" not in configuration.defaults["dump"]:
        places["the dump"] = Path(configuration.defaults["dump"])
    repositories = {step.out for step in maintenance.steps if step.out is not None and "://" not in step.out}
    for name, repository in zip(("the repository", "the other repository"), sorted(repositories), strict=False):
        places[name] = Path(repository)
    # Real paths are compared, because a link may lead from one place into another.
    real = {name: Path(os.path.realpath(path)) for name, path in places.items()}
    _require_disjoint(configuration, real)
    for key, file in (("memory_file", maintenance.memory_file), ("metrics_file", maintenance.metrics_file)):
        if file is not None:
            require_apart(key, file, real)
    if maintenance.memory_file is not None and maintenance.memory_file == maintenance.metrics_file:
        raise UsageError(
            f"memory_file and metrics_file in {quoted(configuration.path)} are the same file",
            hint="specify two different files",
        )


def _require_disjoint(configuration: Configuration, places: Mapping[str, Path]) -> None:
    for name, path in places.items():
        for other, place in places.items():
            # A step that changes one of the places would change the other one too.
            if name != other and path.is_relative_to(place):
                raise UsageError(
                    f"in {quoted(configuration.path)}, {name} {quoted(path)} is inside {other} or in the same place",
                    hint="use different places for directory, standby, dump and repository",
                )


def snapshots_of(maintenance: Maintenance) -> str | None:
    """Return the repository of the step ``snapshot``; None without that step."""
    return next((step.out for step in maintenance.steps if step.name == "snapshot"), None)


def require_apart(key: str, file: Path, places: dict[str, Path]) -> None:
    """Raise UsageError if a file of kstate would be in one of ``places``, or in the backups kept for undo."""
    real = Path(os.path.realpath(file))
    inside = next((name for name, place in places.items() if real.is_relative_to(place)), None)
    # ``.kstate`` of any directory: clean and undo delete or move what is in there.
    if inside is None and OWN_FOLDER in real.parts:
        inside = "a folder with kstate's undo backups"
    if inside is not None:
        raise UsageError(f"{key} {quoted(file)} is inside {inside}", hint="specify a file elsewhere")


def tasks(
    configuration: Configuration, maintenance: Maintenance, memory: Memory, now_ms: int, *, quiet: bool = False
) -> list[StepCommand]:
    """Return the commands of all steps in their order. If a step is not due, :attr:`StepCommand.not_due` is set.

    Unless ``quiet``, a dump prints its progress, because it may take the longest of all steps.
    """
    due = []
    for step in maintenance.steps:
        places: list[tuple[str | None, Path | None]] = [*directories(configuration, maintenance)]
        if step.name in (*_OF_DUMPS, PRUNING):
            places = [(None, None)]
        for of, directory in places:
            # kstate never restores the directory of the application without a user, who must decide about its rows.
            if step.name == "restore" and of != STANDBY:
                continue
            # Both directories have the same tasks. The standby is closed, so it can be captured while the application
            # is running.
            if step.name == "snapshot" and of != STANDBY and maintenance.standby is not None:
                continue
            due.append(_task(configuration, step, (of, directory), memory, now_ms, quiet=quiet))
    return due


def _task(
    configuration: Configuration,
    step: Step,
    place: tuple[str | None, Path | None],
    memory: Memory,
    now_ms: int,
    *,
    quiet: bool,
) -> StepCommand:
    """Return the command line of one step for one directory, and whether it is due."""
    of, directory = place
    part = None
    if step.name in ("verify", "verify-dump"):
        part = memory.select_next_part(of, step.parts)
    command_name = step.name
    if step.name == "lag":
        command_name = "inspect-position"
    # inspect-position prints no progress, so it has no option that hides it.
    is_silent = step.name != "lag" and (step.name != "dump" or quiet)
    subject: tuple[str, ...] = ()
    if directory is not None:
        subject = (os.fspath(directory),)
    settings: tuple[str, ...] = (option.CONFIG, os.fspath(configuration.path))
    if step.name == "verify-dump":
        # This command has no options that [defaults] could set.
        subject, settings = (str(configuration.defaults["dump"]),), ()
    if step.name == PRUNING:
        subject, settings = (str(step.out),), ()
    silent = (option.QUIET,) * is_silent
    words = (command_name, *subject, *settings, *_options(step, part), *silent, *_JSON)
    not_due = _not_due(step, memory.result(step.name, of), now_ms)
    asks_broker = "bootstrap_server" in configuration.defaults or _BROKER_VARIABLE in os.environ
    return StepCommand(step.name, of, directory, words, step.timeout, part, step.parts, not_due, asks_broker)


def _options(step: Step, part: tuple[int, int] | None) -> tuple[str, ...]:
    """Return the options that only this step has."""
    if part is not None:
        return (option.SUBSET, f"{part[0]}/{part[1]}")
    if step.name == "dump" and step.keep is not None:
        return (option.KEEP, str(step.keep))
    if step.name == "restore":
        return (option.STANDBY,)
    if step.name == "snapshot":
        return (option.OUT, str(step.out), *_retention_options(step))
    if step.name == PRUNING:
        return _retention_options(step)
    if step.name == "clean":
        return (option.OLDER_THAN, step.older_than)
    return ()


def _retention_options(step: Step) -> tuple[str, ...]:
    values = (
        (option.KEEP, step.keep),
        (option.KEEP_FOR, step.keep_for),
        (option.ABANDONED, step.abandoned),
        (option.GUARANTEE, step.guarantee),
    )
    return tuple(word for name, value in values if value is not None for word in (name, str(value)))


def _not_due(step: Step, before: Result | None, now_ms: int) -> str | None:
    """Return why a step is not due; None if it is.

    A step is due if its last result is an error, or is of a time after now: then a clock was set back.
    """
    if step.every is None or before is None or not before.good or before.began_ms > now_ms:
        return None
    due_ms = before.began_ms + int(step.every.total_seconds() * 1000) * (_SLACK - 1) // _SLACK
    if now_ms >= due_ms:
        return None
    return f"the step is due in {span_text(due_ms - now_ms)}"
