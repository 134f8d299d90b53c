"""The verdicts on mutants: a line of JSON for each, by module and line."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from .operators import Identity, Module

RECORD: Final = Path(__file__).with_name("record.jsonl")


class Entry(NamedTuple):
    """A verdict: ``killed`` by a test, ``equivalent`` for a reason, or ``survived``."""

    identity: Identity
    line: int
    verdict: str
    test: str
    """The test that killed it, or why it survived."""

    def text(self) -> str:
        """Return the line of the record."""
        proof = "test" if self.verdict == "killed" else "why"
        fields = {**self.identity._asdict(), "line": self.line, "verdict": self.verdict, proof: self.test}
        return json.dumps(fields, ensure_ascii=False)


class Record:
    """A file of entries. New ones are appended at once, so that a run that ends early is resumed."""

    def __init__(self, path: Path = RECORD) -> None:
        self._path = path
        self.entries: dict[Identity, Entry] = {}
        self.read()

    def read(self) -> None:
        """Read the file: the last entry of a mutant counts."""
        self.entries = {}
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                fields = json.loads(line)
                identity = Identity(*(fields[name] for name in Identity._fields))
                proof = fields.get("test", fields.get("why"))
                self.entries[identity] = Entry(identity, fields["line"], fields["verdict"], proof)

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self.entries[entry.identity] = entry
        with self._path.open("a", encoding="utf-8") as file:
            file.write(entry.text() + "\n")

    def lacks(self, identity: Identity, *, retry: bool) -> bool:
        """Return whether a mutant needs a run."""
        entry = self.entries.get(identity)
        return entry is None or (retry and entry.verdict == "survived")

    def forget(self, modules: Iterable[Module]) -> None:
        """Drop entries of code that has changed since, and follow moved lines."""
        for module in modules:
            lines = {mutant.identity: mutant.line for mutant in module.mutants}
            for identity in [identity for identity in self.entries if identity.module == module.name]:
                if identity in lines:
                    self.entries[identity] = self.entries[identity]._replace(line=lines[identity])
                else:
                    del self.entries[identity]

    def judge(self, numbers: Collection[str], reason: str) -> None:
        """Record that no test can kill these survivors."""
        for identity, entry in [*self.entries.items()]:
            if number_of(identity) in numbers and entry.verdict != "killed":
                self.entries[identity] = entry._replace(verdict="equivalent", test=reason)
        self.write()

    def write(self) -> None:
        """Write the file again in order, one entry for each mutant."""
        entries = sorted(self.entries.values(), key=lambda entry: (entry.identity.module, entry.line, entry.identity))
        self._path.write_text("".join(f"{entry.text()}\n" for entry in entries), encoding="utf-8")

    def figures(self, package: str, identities: Collection[Identity]) -> str:
        """Return a line: mutants, verdicts, and the rate of the killed among those that can be killed."""
        verdicts = Counter(self.entries[identity].verdict for identity in identities if identity in self.entries)
        killed, total = verdicts["killed"], verdicts.total()
        rate = 100 * killed / max(1, total - verdicts["equivalent"])
        return (
            f"{package:20} {len(identities):>6,} mutants {total:>6,} run {killed:>6,} killed "
            f"{verdicts['equivalent']:>5,} equivalent {verdicts['survived']:>5,} survived {rate:6.1f} %"
        )


def number_of(identity: Identity) -> str:
    """Return the short number under which a mutant is listed."""
    return hashlib.sha256(repr(tuple(identity)).encode()).hexdigest()[:8]
