"""What the user allows a migration, and says about the directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kstate_cli.texts import TRANSACTIONAL_STORES, UNPROVEN, command


@dataclass(frozen=True, slots=True)
class MigrateOptions:
    """What the user says about the directory and allows."""

    at_least_once: bool = False
    """Uncommitted data cannot be in the stores: the application never ran with exactly-once."""
    wipe_unclean: bool = False
    """Tasks that may hold uncommitted data are left out, so that Streams restores them."""
    drop_headers: bool = False
    """Headers stores are converted to the older layout; their headers are lost."""
    headers_format: bool = False
    """The application is to be started with ``dsl.store.format=HEADERS``."""
    transactional: bool = False
    """The application runs with transactional stores (KIP-892)."""
    unproven: bool = False
    """A release that kstate was never run against is allowed as the target."""

    def command(self, app: Path, target: str, *more: str) -> str:
        """Return the command line that states these options, and ``more``."""
        options = (
            (self.at_least_once, ("--guarantee", "at_least_once")),
            (self.wipe_unclean, ("--wipe-unclean",)),
            (self.drop_headers, ("--drop-headers",)),
            (self.headers_format, ("--dsl-store-format", "HEADERS")),
            (self.transactional, (TRANSACTIONAL_STORES,)),
            (self.unproven, (UNPROVEN,)),
        )
        words = (word for given, words in options if given for word in words)
        return command("migrate", app, "--to", target, *words, *more)
