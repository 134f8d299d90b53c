"""Who runs kstate, for the journal: an incident begins with the question who did what, when, and why."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import sys
from collections.abc import Sequence
from typing import Any

from kstate_cli import __version__

_USER_INFO = re.compile(r"(?<=://).*@")
_QUERY = re.compile(r"(?<=[a-z0-9])(\?[^\s]*)$")
_SECRET = re.compile(
    r"(?is)((?:pass(?:word|wd|phrase)|secret|token|credential|jaas|sas|private|(?:api|access|account|keystore)[-_.]?key)"
    r"[^=\s]*=).*"
)
_LEFT_OUT = "***"


def who() -> dict[str, Any]:
    """``argv`` without secrets, ``user``, ``host``, ``pid`` and ``version``."""
    user = str(os.geteuid())
    with contextlib.suppress(ImportError, KeyError, OSError):  # a uid without a name: containers have them
        user = getpass.getuser()
    return {
        "argv": redacted(sys.argv[1:]),
        "user": user,
        "uid": os.geteuid(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": __version__,
    }


def redacted(arguments: Sequence[str]) -> list[str]:
    """Arguments without what may be a secret: user and password of a URI, its query, and ``…secret…=VALUE``."""
    return [_redacted(argument) for argument in arguments]


def _redacted(argument: str) -> str:
    argument = _SECRET.sub(rf"\g<1>{_LEFT_OUT}", argument)
    if "://" in argument:
        argument = _QUERY.sub(f"?{_LEFT_OUT}", _USER_INFO.sub(f"{_LEFT_OUT}@", argument))
    return argument
