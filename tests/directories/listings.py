"""What `kstate ls -o json` says of a directory, as a file: what `kstate fleet` is given."""

from __future__ import annotations

from pathlib import Path

from .support import kstate


def listed(app: Path, name: str | None = None) -> Path:
    """Written beside the directory of the application's parent, called after the host."""
    listing = app.parent.parent / f"{name or app.parent.name}.json"
    listing.write_text(kstate("ls", app, "-o", "json", status=None).out)
    return listing
