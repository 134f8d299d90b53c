"""Read the start and end of logs from a file, a broker or a dump."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kstate_cli.errors import Refused, UsageError

if TYPE_CHECKING:
    from kstate_cli.broker.facts import Facts
    from kstate_cli.broker.tails import Tail
    from kstate_cli.check.logs import LogSource, ReadTails
    from kstate_cli.formats.topic_partition import TopicPartition
    from kstate_cli.specification.homes import StoreKey
    from kstate_cli.statedir.model import Application


def refuse_settings_alone(bootstrap: str | None, settings: Path | None) -> None:
    """Raise UsageError for client settings without a broker."""
    if settings is not None and bootstrap is None:
        raise UsageError("--kafka-settings works only with --bootstrap-server")


def facts_source(
    offsets: Path | None, bootstrap: str | None, settings: Path | None, *, group: str | None
) -> Callable[[Iterable[str]], Facts] | None:
    """Return a function from topics to their log bounds; None without file and broker. Raise UsageError."""
    if offsets is not None and bootstrap is not None:
        raise UsageError("--offsets and --bootstrap-server cannot be used together", hint="omit one of them")
    refuse_settings_alone(bootstrap, settings)
    if offsets is not None:
        from kstate_cli.broker.facts import read_facts

        # Read now, so that a wrong file is reported before the directory is read.
        facts = read_facts(offsets)
        return lambda _: facts
    if bootstrap is not None:
        from kstate_cli.broker.client import ask_broker
        from kstate_cli.broker.settings import client_settings

        # Read now for the same reason. The broker is asked later, when the topics are known.
        conf = client_settings(settings)
        return lambda topics: ask_broker(bootstrap, conf, group=group, topics=topics)
    return None


def log_reader(
    bootstrap: str | None, settings: Path | None
) -> Callable[[TopicPartition, int, int], Iterable[tuple[int, bytes | None]]] | None:
    """Return a function that reads offset and key of records of a log; None without a broker. Raise UsageError."""
    if bootstrap is None:
        return None
    from kstate_cli.broker.settings import client_settings
    from kstate_cli.broker.tails import read_keys

    conf = client_settings(settings)
    return lambda key, first, last: read_keys(bootstrap, conf, key, first, last)


@dataclass(frozen=True, slots=True)
class LogSources:
    """The sources of log bounds that the command line names."""

    offsets: Path | None = None
    bootstrap: str | None = None
    settings: Path | None = None
    dump: str | None = None
    times: bool = False
    """Read the age of records from the dump too, not only from a broker."""

    @property
    def up_to(self) -> str:
        """Return which log ends these are, as text: only a broker has the current ones."""
        if self.bootstrap is not None:
            return "until RUNNING"
        also = ""
        if self.offsets is not None and self.dump is not None:
            also = " and in the dump"
        return f"up to {self.end}{also}"

    @property
    def end(self) -> str:
        """Return the place of the log ends as text: ``the end of the dump``."""
        if self.bootstrap is not None:
            return "the log ends on the broker"
        if self.offsets is None:
            return "the end of the dump"
        return "the log ends in the file"

    def validate(self) -> None:
        """Raise UsageError for options that exclude each other, before anything is read."""
        # The group does not matter here: nothing is asked.
        facts_source(self.offsets, self.bootstrap, self.settings, group="")

    def sources(self, app: Application, more: Iterable[StoreKey] = ()) -> tuple[LogSource, ...]:
        """Return the sources, the broker or its file before the dump, which is older.

        ``more``: stores of another topology, whose changelogs are read too.

        Raise UsageError and DumpError for unreadable files, RunFailed if a broker does not answer, Refused for a dump
        without a manifest.
        """
        from kstate_cli.check.logs import DumpLogs, FactLogs
        from kstate_cli.check.predict import topics_of

        sources: list[LogSource] = []
        ask = facts_source(self.offsets, self.bootstrap, self.settings, group=app.path.name)
        if ask is not None:
            topics, live = topics_of(app, more), self.bootstrap is not None
            sources.append(FactLogs(ask(topics), frozenset(topics) if live else frozenset(), self._tails()))
        if self.dump is not None:
            from kstate_cli.dump_reader.errors import NoManifestError
            from kstate_cli.dump_reader.location import uri_text
            from kstate_cli.dump_reader.open import read_dump

            try:
                # Only the manifest of the dump is used here. So nothing that a user vouches for may make an incomplete
                # dump count as the end of a log.
                dump = read_dump(self.dump, complete=False, committed_only=False)
            except NoManifestError:
                raise Refused(
                    (f"{uri_text(self.dump)} has no manifest, so kstate does not know where the logs begin and end"),
                    hint="instead of --dump, pass --offsets FILE or --bootstrap-server HOST:PORT",
                ) from None
            sources.append(DumpLogs(dump, times=self.times))
        return tuple(sources)

    def _tails(self) -> ReadTails | None:
        """Return the function that reads the ends of logs from the broker; None without a broker."""
        if self.bootstrap is None:
            return None
        from kstate_cli.broker.settings import client_settings
        from kstate_cli.broker.tails import read_tails

        bootstrap, conf = self.bootstrap, client_settings(self.settings)

        def read(
            requests: Mapping[TopicPartition, tuple[set[int], int]], *, committed: bool
        ) -> Mapping[TopicPartition, Tail]:
            return read_tails(bootstrap, conf, requests, committed=committed)

        return read
