"""An empty argument is what an unset variable of a shell leaves: ``kstate wipe "$APP" --all``.

As a path it would be the working directory, as the name of a store no store at all, and each command would make of that
what it can. So it is refused where the command line is read, for every argument and option at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kstate_cli.errors import UsageError
from kstate_cli.texts import command

MAY_BE_EMPTY: Final = frozenset({"KEY"})
"""A key may be the empty string. Nothing but whitespace counts as empty otherwise: ``"$A $B"`` leaves that."""


def refuse_empty(click_command: Any, path: str) -> None:
    """From now on ``click_command``, called as ``path``, refuses empty values of its arguments and options."""
    for parameter in click_command.params:
        _guard(parameter, path)


def _guard(parameter: Any, path: str) -> None:
    name = shown_name(parameter)
    if name in MAY_BE_EMPTY:
        return
    process = parameter.process_value

    def checked(ctx: Any, value: Any) -> Any:
        if any(not text.strip() for text in _texts(value)):
            raise UsageError(
                f"{name} is empty",
                where=command(*path.split()),
                hint='is a variable of the shell not set? Written as "${NAME:?}" the shell says so',
            )
        return process(ctx, value)

    parameter.process_value = checked


def shown_name(parameter: Any) -> str:
    """``APP``, ``--store``: as a person writes it."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name).upper()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
