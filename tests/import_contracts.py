"""The contract of import-linter about the packages of kstate. Packages that it does not name implement commands.

So a new command needs no entry in `pyproject.toml`, and still no other command may import its package.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from importlinter.contracts.layers import Layer, LayersContract, ModuleTail
from importlinter.domain import fields
from importlinter.domain.contract import ContractCheck

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).resolve().parents[1]
COMMANDS: Final = "kstate_cli.*"
"""The layer of the packages that implement commands. None of them may import another one."""


class PackageLayers(LayersContract):
    """Layers of packages, of which :data:`COMMANDS` contains every package that the contract does not name."""

    type_name = "package_layers"

    shared = fields.ListField(subfield=fields.StringField())
    """Modules that every package may import. They belong to no layer."""

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """Check the layers, after the packages of commands have taken the place of :data:`COMMANDS`."""
        declared = cast("Sequence[Layer]", self.layers)
        names = [{tail.name for tail in layer.module_tails} for layer in declared]
        layers = with_commands(names, cast("Sequence[str]", self.shared))
        # A field of import-linter is declared as the parser of its value.
        cast("Any", self).layers = [Layer({ModuleTail(name) for name in packages}) for packages in layers]
        return super().check(graph, verbose)


def with_commands(layers: Sequence[Iterable[str]], shared: Iterable[str]) -> list[set[str]]:
    """Return the packages of each layer, with those that implement commands in the place of :data:`COMMANDS`."""
    named = {*shared, *(name for layer in layers for name in layer)}
    return [all_packages() - named if COMMANDS in layer else {*layer} for layer in layers]


def all_packages() -> set[str]:
    """Return the packages and modules directly below kstate's, such as `kstate_cli.wipe`."""
    paths = [*(ROOT / "kstate_cli").glob("*.py"), *(path.parent for path in ROOT.glob("kstate_cli/*/__init__.py"))]
    return {f"kstate_cli.{path.stem}" for path in paths if not path.stem.startswith("__")}


@functools.cache
def _contract() -> Any:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = [entry for entry in settings["contracts"] if entry["type"] == PackageLayers.type_name]
    return contract


def package_layers() -> list[set[str]]:
    """Return the packages of each layer, such as `wipe`, as `pyproject.toml` has them: the highest layer first."""
    layers = with_commands([layer.split(" | ") for layer in _contract()["layers"]], _contract()["shared"])
    return [{name.removeprefix("kstate_cli.") for name in layer} for layer in layers]


def command_packages() -> set[str]:
    """Return the packages that implement commands, such as `wipe`."""
    (commands,) = [
        packages for packages, layer in zip(package_layers(), _contract()["layers"], strict=True) if layer == COMMANDS
    ]
    return commands
