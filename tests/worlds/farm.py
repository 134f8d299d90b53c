"""The JVMs of generated worlds: those of the generator of kills, with more topologies and the comparison."""

from __future__ import annotations

from pathlib import Path

from tests.interop.jvm import Jvm
from tests.interop.releases import classes, compiled
from tests.kills import farm

JAVA = Path(__file__).resolve().parent / "java"
_MAIN = "interop.Worlds"
_HEAP = "512m"


class Farm(farm.Farm):
    """A broker, a JVM for each release that starts and compares, and a JVM for each kill."""

    def __enter__(self) -> Farm:
        """Nothing to do."""
        return self

    def _new(self, version: str, name: str) -> Jvm:
        sources = sorted([*farm.JAVA.rglob("*.java"), *JAVA.rglob("*.java")])
        folder = compiled(version, sources, [classes(version)])
        return Jvm(version, self.folder / "logs" / f"{version}-{name}.log", heap=_HEAP, main=_MAIN, more=[folder])
