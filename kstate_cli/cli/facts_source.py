"""Who is asked for the bounds of logs: a file, a broker, or nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kstate_cli.errors import UsageError

if TYPE_CHECKING:
    from kstate_cli.broker.facts import Facts


def facts_source(
    offsets: Path | None, bootstrap: str | None, settings: Path | None, *, group: str | None
) -> Callable[[Iterable[str]], Facts] | None:
    """What tells the logs of topics; None where neither a file nor a broker was named. Raises UsageError."""
    if offsets is not None and bootstrap is not None:
        raise UsageError("--offsets and --bootstrap-server are two answers to one question", hint="give one of them")
    if settings is not None and bootstrap is None:
        raise UsageError("--kafka-settings goes with --bootstrap-server")
    if offsets is not None:
        from kstate_cli.broker.facts import read_facts

        known = read_facts(offsets)
        return lambda _: known
    if bootstrap is not None:
        from kstate_cli.broker.client import ask_broker
        from kstate_cli.broker.settings import client_settings

        conf = client_settings(settings)
        return lambda topics: ask_broker(bootstrap, conf, group=group, topics=topics)
    return None
