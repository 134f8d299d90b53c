"""Options that are the fields of a dataclass, and come to a command as one object of it.

typer makes options of the parameters of a command. Where there are many, or several commands share them, they are
declared once, as the fields of a dataclass, ``Annotated`` as parameters are. A field may be such a dataclass itself.
A class that has a ``HELP_PANEL`` gives the options that it declares a title of their own in the help
(:mod:`kstate_cli.cli.help_panels`).
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints


@dataclass(frozen=True, slots=True)
class _Built:
    """How an object is made of the values of options."""

    kind: type[Any]
    fields: dict[str, _Built | None]
    """None for a field that is an option."""

    def of(self, values: dict[str, Any]) -> Any:
        """The object; its options are taken out of ``values``."""
        return self.kind(**_take_values(self.fields, values))


def _take_values(fields: dict[str, _Built | None], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values.pop(name) if built is None else built.of(values) for name, built in fields.items()}


def declared(command: Callable[..., int]) -> Callable[..., int]:
    """The command as typer is to read it: a parameter that is a dataclass stands for all the options of that."""
    fields, parameters = _expanded(command)

    @functools.wraps(command)
    def run(**values: Any) -> int:
        return command(**_take_values(fields, values))

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # typer would look there for annotations
    return run


@functools.cache  # subcommands share their classes of options
def _expanded(function: Callable[..., Any]) -> tuple[dict[str, _Built | None], list[inspect.Parameter]]:
    """What a function, or a dataclass, is called with; and the parameters of a command that give all of that."""
    fields: dict[str, _Built | None] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in _parameters(function):
        fields[parameter.name] = None
        if is_dataclass(parameter.annotation) and isinstance(parameter.annotation, type):
            inner, more = _expanded(parameter.annotation)
            fields[parameter.name] = _Built(parameter.annotation, inner)
            parameters += more
        else:
            parameters.append(parameter)
    return fields, parameters


def _parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    annotations = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        yield parameter.replace(annotation=_in_panel(annotations[parameter.name], _panel(function, parameter.name)))


def _panel(function: Callable[..., Any], name: str) -> str | None:
    """The panel of the class that declares a field: an object may take its options from several."""
    bases = getattr(function, "__mro__", ())
    owner = next((base for base in bases if name in inspect.get_annotations(base)), None)
    return owner.__dict__.get("HELP_PANEL") if owner is not None else None


def _in_panel(annotation: Any, panel: str | None) -> Any:
    if panel is None or is_dataclass(annotation):  # which has a panel of its own
        return annotation
    kind, option = get_args(annotation)
    option = copy.copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option]
