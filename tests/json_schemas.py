"""The JSON Schemas of the package, from the types of the lines. `python -m tests.json_page` writes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from typing_extensions import NotRequired, get_type_hints, is_typeddict

import kstate_cli
from kstate_cli.cli.lines import CHANGE, LINES, PROGRESS, WITHOUT_APP, shared
from kstate_cli.cli.registry import COMMANDS, Purpose

FOLDER: Final = Path(kstate_cli.__file__).parent / "schemas"
MEMBERS: Final = "members"
SHARED: Final = "lines"
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_HEAD: Final = ("schema_version", "type", "app")
_WIDTH: Final = 110
_SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schemas() -> dict[str, Any]:
    """Return each schema by the name of its file."""
    outputs = {MEMBERS: _members(), SHARED: _shared_members()}
    changes = {name: CHANGE for name, entry in COMMANDS.items() if entry.purpose is Purpose.CHANGE}
    for command, union in (changes | LINES).items():
        own = {kind: line for kind, line in _lines(union) if not _is_shared(line)}
        references = [f"{SHARED}.json" if _is_shared(line) else "" for _, line in _lines(union)]
        title = f"A line of kstate {command} -o json"
        if command == PROGRESS:
            title = "A line of kstate restore -o json on standard error"
        outputs[command] = {
            "$schema": _DRAFT,
            "title": title,
            "oneOf": [
                {"$ref": f"{file}#/$defs/{kind}"} for file, (kind, _) in zip(references, _lines(union), strict=True)
            ],
            "$defs": {kind: _line(kind, line, null_app=command in WITHOUT_APP) for kind, line in own.items()},
        }
    return outputs


def files() -> dict[str, str]:
    """Return the text of each file of the package."""
    return {f"{name}.json": f"{text(schema)}\n" for name, schema in schemas().items()}


def write() -> None:
    """Write the files."""
    for name, content in files().items():
        (FOLDER / name).write_text(content, encoding="utf-8")


def text(schema: Any, indent: str = "") -> str:
    """Return JSON in which a value is on one line if it fits there."""
    short = json.dumps(schema, ensure_ascii=False)
    is_flat = not isinstance(schema, dict) and not (isinstance(schema, list) and isinstance(schema[0], dict))
    if is_flat or len(indent) + len(short) <= _WIDTH:
        return short
    deeper = f"{indent}  "
    if isinstance(schema, list):
        body = ",\n".join(deeper + text(value, deeper) for value in schema)
        return f"[\n{body}\n{indent}]"
    body = ",\n".join(f"{deeper}{json.dumps(name)}: {text(value, deeper)}" for name, value in schema.items())
    return f"{{\n{body}\n{indent}}}"


def member_name(alias: str) -> str:
    """Return ``kind_certain`` for ``KindCertain``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in alias).lstrip("_")


def aliases() -> Iterator[tuple[str, Any]]:
    """Yield each member and its annotation, from all modules of lines; raise if one has two definitions."""
    names = [name for name in sys.modules if name.startswith(f"{shared.__package__}.")]
    values: set[str] = set()
    for module in sorted(names, key=lambda name: (name != shared.__name__, name)):
        for alias, annotation in vars(sys.modules[module]).items():
            if get_origin(annotation) is Annotated:
                name = member_name(alias)
                assert name not in values, f"two definitions of {name}"
                values.add(name)
                yield name, annotation


def _members() -> Any:
    return {
        "$schema": _DRAFT,
        "title": "Members of lines: each means the same in every command",
        "$defs": {
            **{name: _value(annotation) for name, annotation in aliases()},
            "type": {"description": "The type of the line.", "type": "string"},
        },
    }


def _shared_members() -> Any:
    lines = {
        _kind(line): _line(_kind(line), line, null_app=line is shared.ErrorLine)
        for line in vars(shared).values()
        if is_typeddict(line) and "type" in line.__annotations__
    }
    return {"$schema": _DRAFT, "title": "Lines that several commands print", "$defs": lines}


def _lines(union: Any) -> list[tuple[str, Any]]:
    return [(_kind(line), line) for line in get_args(union)]


def _is_shared(line: Any) -> bool:
    return bool(line.__module__ == shared.__name__)


def _kind(line: Any) -> str:
    return str(get_args(get_type_hints(line)["type"])[0])


def _line(kind: str, line: Any, *, null_app: bool) -> Any:
    """Return the schema of a line. Each member refers to its only definition."""
    app: Any = {"$ref": "members.json#/$defs/app"}
    properties: dict[str, Any] = {
        "schema_version": {"$ref": "members.json#/$defs/schema_version"},
        "type": {"const": kind},
        "app": {"anyOf": [app, {"type": "null"}]} if null_app else app,
    }
    required = list(_HEAD)
    definitions = dict(aliases())
    for name, annotation in get_type_hints(line, include_extras=True).items():
        if name == "type":
            continue
        origin: Any = get_origin(annotation)
        if origin is NotRequired:
            (annotation,) = get_args(annotation)
        else:
            required.append(name)
        of_value, *null = _parts(annotation)
        assert of_value is definitions[name] or of_value == definitions[name], f"{line.__name__}.{name}"
        reference = {"$ref": f"members.json#/$defs/{name}"}
        properties[name] = {"anyOf": [reference, {"type": "null"}]} if null else reference
    return {
        "description": " ".join(str(line.__doc__).split()),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _value(annotation: Any) -> Any:
    """Return the schema of a value. Inside members, a value that is a member itself is a reference to it."""
    if get_origin(annotation) is Annotated:
        kind, meaning = get_args(annotation)
        limits = {name: list(limit) if isinstance(limit, tuple) else limit for name, limit in meaning.limits.items()}
        each = limits.pop("each", None)
        described = {"description": meaning.text, **_value(kind), **limits}
        if "enum" in limits or "const" in limits:
            described.pop("type")  # The values are enough.
        if each is not None:
            described["additionalProperties"].update(each)
        return described
    if annotation is Any:
        return {}
    if is_typeddict(annotation):
        return _object(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        return {"type": "array", "items": _value(arguments[0])}
    if origin is not None and issubclass(dict, origin):
        return _mapping(*arguments)
    names = [_SCALARS[part] for part in _parts(annotation)]
    return {"type": names if len(names) > 1 else names[0]}


def _object(kind: Any) -> Any:
    definitions = dict(aliases())
    hints = get_type_hints(kind, include_extras=True)
    properties = {
        name: {"$ref": f"#/$defs/{name}"} if hint == definitions.get(name) else _value(hint)
        for name, hint in hints.items()
    }
    schema: Any = {"type": "object", "properties": properties}
    if kind.__required_keys__:
        schema["required"] = [name for name in hints if name in kind.__required_keys__]
    return {**schema, "additionalProperties": False}


def _mapping(key: Any, value: Any) -> Any:
    if value is Any:
        return {"type": "object"}
    if key is int:
        # JSON has texts for keys only: partitions are their digits.
        return {"type": "object", "patternProperties": {"^[0-9]+$": _value(value)}, "additionalProperties": False}
    return {"type": "object", "additionalProperties": _value(value)}
