"""Which commands a call of ``kstate maintain`` runs: the one owner of their words, which ``--dry-run`` prints."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli.errors import UsageError
from kstate_cli.logs.log import shown
from kstate_cli.statedir.names import OWN_FOLDER
from kstate_cli.texts import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.maintain.memory import Memory
    from kstate_cli.specification.configuration import Configuration, Maintenance, Step

DIRECTORY: Final = "directory"
STANDBY: Final = "standby"
_JSON: Final = ("--output", "json")
_SLACK: Final = 10
"""A call comes by the clock, and a step begins when the one before has ended: a tenth early is in time."""
_NEEDS: Final = {
    "dump": ("dump", "bootstrap_server"),
    "restore": ("dump", "release"),
    "check": ("release",),
    "verify-dump": ("dump",),
}
"""Step -> keys of [defaults] without which its command would end with a usage error."""


_OF_DUMPS: Final = ("dump", "verify-dump")
"""Steps that are about the dump, not about a directory."""


@dataclass(frozen=True, slots=True)
class StepCommand:
    """One command of one step."""

    step: str
    of: str | None
    """:data:`DIRECTORY`, :data:`STANDBY`; None of a step that is about neither."""
    directory: Path | None
    words: tuple[str, ...]
    """What follows ``kstate``."""
    timeout: timedelta
    part: tuple[int, int] | None = None
    """The part of the stores that is verified, or a share of one, and of how many: from 1."""
    parts: int = 1
    """How many parts ``kstate.toml`` has; ``part`` is one of a multiple of them where it is a share."""
    not_due: str | None = None
    """Why it is not run now."""

    @property
    def plain_words(self) -> tuple[str, ...]:
        """For people: messages and tables."""
        return tuple(word for word in self.words[: -len(_JSON)] if word != "--quiet")

    @property
    def name(self) -> str:
        """``check of standby``: as people are told of it."""
        return self.step if self.of is None else f"{self.step} of {self.of}"


def maintenance_of(configuration: Configuration) -> Maintenance:
    """``[maintain]``, with all that its steps need. Raises UsageError, before anything is done."""
    path, wanted = configuration.path, configuration.maintenance
    if wanted is None or not wanted.steps:
        raise UsageError(
            f"{quoted(path)} says nothing of what is to be done",
            hint="add [maintain] with memory_file, and a table for each step: [maintain.dump], [maintain.check], …",
        )
    if wanted.memory_file is None:
        raise UsageError(
            f"{quoted(path)}: [maintain] has no memory_file",
            hint='name a file that is to be made, as memory_file = "/var/lib/kstate/my-app.json"',
        )
    for step in wanted.steps:
        for key in _NEEDS.get(step.name, ()):
            if key not in configuration.defaults:
                raise UsageError(
                    f"{quoted(path)}: [maintain.{step.name}] needs {key}", hint=f"add {key} = … to [defaults]"
                )
        if step.name == "restore" and wanted.standby is None:
            raise UsageError(f"{quoted(path)}: [maintain.restore] needs standby", hint="add standby = … to [maintain]")
        if step.name == "dump" and not configuration.has_stores and configuration.application is None:
            raise UsageError(
                f"{quoted(path)}: [maintain.dump] needs to know what is dumped",
                hint="add application = … at the top, or a table for each store",
            )
        if step.name not in (*_OF_DUMPS, "restore") and not dict(directories(configuration, wanted)):
            raise UsageError(
                f"{quoted(path)}: [maintain.{step.name}] has nothing to look at",
                hint="add directory = … to [defaults], or standby = … to [maintain]",
            )
    _apart(configuration, wanted)
    return wanted


def directories(configuration: Configuration, wanted: Maintenance) -> Iterator[tuple[str, Path]]:
    """The directories that steps are about, by what they are."""
    if "directory" in configuration.defaults:
        yield DIRECTORY, Path(configuration.defaults["directory"])
    if wanted.standby is not None:
        yield STANDBY, wanted.standby


def _apart(configuration: Configuration, wanted: Maintenance) -> None:
    """Nothing foreign goes to a state directory or a dump, nor is one directory two things. Raises UsageError."""
    places = {f"the {name}": path for name, path in directories(configuration, wanted)}
    if "dump" in configuration.defaults and "://" not in configuration.defaults["dump"]:
        places["the dump"] = Path(configuration.defaults["dump"])
    real = {name: Path(os.path.realpath(path)) for name, path in places.items()}
    for name, path in real.items():
        for other, place in real.items():
            if name != other and path.is_relative_to(place):
                raise UsageError(
                    f"{quoted(configuration.path)}: {name} {quoted(path)} is in {other}, or the same",
                    hint="each of directory, standby and dump has a place of its own",
                )
    for key, file in (("memory_file", wanted.memory_file), ("metrics_file", wanted.metrics_file)):
        if file is not None:
            require_apart(key, file, real)
    if wanted.memory_file is not None and wanted.memory_file == wanted.metrics_file:
        raise UsageError(f"{quoted(configuration.path)}: memory_file and metrics_file are one file", hint="name two")


def require_apart(key: str, file: Path, places: dict[str, Path]) -> None:
    """Raises UsageError where a file of ours would lie in a place of somebody else's, or what kstate keeps of one."""
    real = Path(os.path.realpath(file))
    inside = next((name for name, place in places.items() if real.is_relative_to(place)), None)
    if inside is None and OWN_FOLDER in real.parts:
        inside = "what kstate keeps for undo"
    if inside is not None:
        raise UsageError(
            f"{key} {quoted(file)} is in {inside}", hint="nothing foreign belongs there: name another place"
        )


def tasks(
    configuration: Configuration, wanted: Maintenance, memory: Memory, now_ms: int, *, quiet: bool = False
) -> list[StepCommand]:
    """The commands of all steps in their order; those that are not due say so.

    Unless ``quiet``, a dump shows how far it is: of all steps it may take the longest, and its lines are for people.
    """
    due = []
    for step in wanted.steps:
        places = [(None, None)] if step.name in _OF_DUMPS else [*directories(configuration, wanted)]
        for of, directory in places:
            if step.name == "restore" and of != STANDBY:
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
    of, directory = place
    before = memory.result(step.name, of)
    part = None
    more: tuple[str, ...] = ()
    if step.name == "dump" and step.keep is not None:
        more = ("--keep", str(step.keep))
    elif step.name == "restore":
        more = ("--standby",)
    elif step.name in ("verify", "verify-dump"):
        part = memory.next_part(of, step.parts)
        more = ("--subset", f"{part[0]}/{part[1]}")
    elif step.name == "clean":
        more = ("--older-than", step.older_than)
    command = "inspect-position" if step.name == "lag" else step.name
    silent = () if step.name == "lag" or (step.name == "dump" and not quiet) else ("--quiet",)
    subject: tuple[str, ...] = () if directory is None else (os.fspath(directory),)
    settings: tuple[str, ...] = ("--config", os.fspath(configuration.path))
    if step.name == "verify-dump":
        # No key of [defaults] is about its options.
        subject, settings = (str(configuration.defaults["dump"]),), ()
    words = (command, *subject, *settings, *more, *silent, *_JSON)
    not_due = None
    if step.every is not None and before is not None and before.good and before.began_ms <= now_ms:
        due_ms = before.began_ms + int(step.every.total_seconds() * 1000) * (_SLACK - 1) // _SLACK
        if now_ms < due_ms:
            not_due = f"it is due again in {shown(due_ms - now_ms)}"
    return StepCommand(step.name, of, directory, words, step.timeout, part, step.parts, not_due)
