"""Who runs kstate, for the journal: an incident begins with the question who did what, when, and why."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import sys
from typing import Any

from kstate_cli import __version__
from kstate_cli.redaction import redacted


def invoker() -> dict[str, Any]:
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
