"""The side of a pseudo-terminal on which a person would sit."""

from __future__ import annotations

import os


def shown_on(main: int) -> bytes:
    """All that is written to the terminal, until nobody has its other side open; closes this one."""
    text = b""
    try:
        while piece := os.read(main, 1 << 16):
            text += piece
    except OSError:
        pass  # Linux says EIO at the end
    os.close(main)
    return text
