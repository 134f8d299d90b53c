"""The id that Streams gives to a state directory, in ``kafka-streams-process-metadata`` (``StateDirectory``)."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from kstate_cli.formats.json_text import parse_json
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.regular_files import read_small
from kstate_cli.statedir.names import PROCESS_FILE

_MOST: Final = 4096


def read_process_id(app: Path) -> str | None:
    """``processId`` as Streams reads it; None where the file is not there or says none: the next start makes a new one.

    Streams takes the file whatever else it says (``StateDirectory.initializeProcessId``).
    """
    try:
        said = parse_json(read_small(app / PROCESS_FILE, _MOST))
        return str(uuid.UUID(said["processId"])) if isinstance(said, dict) else None
    except (OSError, MalformedBytesError, KeyError, ValueError, TypeError, AttributeError):
        return None
