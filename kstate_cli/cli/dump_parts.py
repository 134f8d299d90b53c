"""When the parts of a dump were last read in full, as ``kstate check --dump`` shows it."""

from __future__ import annotations

from typing import Any

from kstate_cli.errors import ConditionNotMet


def parts_of(dump: str) -> list[dict[str, Any]]:
    """Return each part with the time of its last verification, null where there was none; empty without a record."""
    from kstate_cli.clock import utc_text
    from kstate_cli.dump_writer.verified import read_verified

    try:
        record = read_verified(dump)
    except OSError:
        record = None  # unknown is the same as never
    if record is None:
        return []
    parts = []
    for number in range(1, record.parts + 1):
        part = record.verified.get(number)
        parts.append(
            {
                "subset": f"{number}/{record.parts}",
                "verified": None if part is None else utc_text(part.at_ms),
                "generation": None if part is None else part.generation,
                "files": None if part is None else part.files,
                "damaged": None if part is None else part.damaged,
            }
        )
    return parts


def say_parts(dump: str, parts: list[dict[str, Any]], *, quiet: bool) -> None:
    """Print when each part was read in full."""
    from kstate_cli.cli.output import say
    from kstate_cli.texts import command

    if not parts:
        say(f"dump verified: never here: {command('verify-dump', dump)}", quiet=quiet)
        return
    say(f"dump verified: {', '.join(_text(part) for part in parts)}", quiet=quiet)


def _text(part: dict[str, Any]) -> str:
    damage = f" ({part['damaged']} damaged)" if part["damaged"] else ""
    return f"{part['subset']} {part['verified'] or 'never'}{damage}"


def damage_in(dump: str, parts: list[dict[str, Any]]) -> ConditionNotMet | None:
    """Return the error for a dump with files that were damaged when they were last read."""
    from kstate_cli.dump_reader.location import shown
    from kstate_cli.dump_reader.verification import ROT
    from kstate_cli.texts import command, some

    damaged = [part["subset"] for part in parts if part["damaged"]]
    if not damaged:
        return None
    return ConditionNotMet(
        f"the dump has damaged files, in part {some(damaged, 5)}",
        where=shown(dump),
        hint="see which files, and what to do:",
        hint_details=[command("verify-dump", dump, "--subset", part) for part in damaged[:5]],
        code=ROT,
    )
