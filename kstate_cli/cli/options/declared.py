"""Declare options as fields of a dataclass, and pass them to a command as one object.

typer makes options from the parameters of a command. If there are many, or several commands share them, they are the
``Annotated`` fields of a dataclass. A field may be such a dataclass itself. ``HELP_PANEL`` of a class is the title of
its options in the help (:mod:`kstate_cli.cli.help_panels`).
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
    """Builds an object from the values of options."""

    kind: type[Any]
    fields: dict[str, _Built | None]
    """None for a field that is an option."""

    def of(self, values: dict[str, Any]) -> Any:
        """Return the object, and remove its options from ``values``."""
        return self.kind(**_take_values(self.fields, values))


def _take_values(fields: dict[str, _Built | None], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values.pop(name) if built is None else built.of(values) for name, built in fields.items()}


def declared(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command for typer: a dataclass parameter is replaced by the options of its fields."""
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
    """Return how to build the arguments of a function or dataclass, and the flat parameters for typer."""
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
    """Return the panel of the class that declares the field: a dataclass may inherit options from several."""
    bases = getattr(function, "__mro__", ())
    owner = next((base for base in bases if name in inspect.get_annotations(base)), None)
    if owner is None:
        return None
    panel: str | None = owner.__dict__.get("HELP_PANEL")
    return panel


def _in_panel(annotation: Any, panel: str | None) -> Any:
    if panel is None or is_dataclass(annotation):  # which has a panel of its own
        return annotation
    kind, option = get_args(annotation)
    option = copy.copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option]
