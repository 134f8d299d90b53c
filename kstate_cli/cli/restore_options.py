"""What the options of ``kstate restore`` mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstate_cli.formats.numbers import MAX_I64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstate_cli.formats.topic_partition import TopicPartition
    from kstate_cli.restore.engines import RestoreEngine

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def pair_of(text: str) -> tuple[str, str]:
    """``K=V``. Raises UsageError."""
    from kstate_cli.errors import UsageError

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--conf {text!r} is not K=V")
    return key, value


def engine_of(text: str, *, master: str | None, conf: Sequence[str] | None) -> RestoreEngine:
    """``spark`` or ``local``, which leaves nothing to say about Spark. Raises UsageError."""
    from kstate_cli.errors import UsageError
    from kstate_cli.restore.engines import RestoreEngine

    if text not in {one.value for one in RestoreEngine}:
        raise UsageError(f"--engine {text!r} is neither spark nor local")
    unused = [name for name, given in (("--master", master), ("--conf", conf)) if given]
    if text == RestoreEngine.local and unused:
        raise UsageError(f"{unused[0]} is about Spark, and --engine local uses none", hint="leave one of them out")
    return RestoreEngine(text)


def bytes_of(text: str) -> int:
    """``2G``, ``1500M`` as a number. Raises UsageError."""
    from kstate_cli.errors import UsageError

    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = number[-1:] if number[-1:] in _UNITS and not number[-1:].isdigit() else ""
    digits = number.removesuffix(unit) if unit else number
    if not digits.isascii() or not digits.isdigit():
        raise UsageError(f"--memory {text!r} is not a number of bytes", hint="such as 2G, 1500M")
    return int(digits) * _UNITS[unit]


def committed_of(path: Path | None) -> dict[TopicPartition, int]:
    """The file of ``--committed-offsets``. Raises UsageError."""
    from kstate_cli.errors import UsageError
    from kstate_cli.formats.json_text import parse_json
    from kstate_cli.formats.topic_partition import TopicPartition, legal_topic, parse_partition
    from kstate_cli.regular import read_given

    if path is None:
        return {}
    found = {}
    try:
        for topic, offsets in _object(parse_json(read_given(path)), "the file").items():
            if not legal_topic(topic):
                raise ValueError(f"{topic[:100]!r} is not the name of a topic")
            for partition, offset in _object(offsets, topic).items():
                key = TopicPartition(topic, parse_partition(partition))
                if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= MAX_I64:
                    raise ValueError(f"{key}: {str(offset)[:100]} is not an offset")
                found[key] = offset
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint='it holds JSON: {"topic": {"0": 42}}') from None
    return found


def _object(content: Any, what: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{what} is not a JSON object")
    return content
