"""The catalogues of codes: one entry for each code, under a constant of its name, and no spelling of it elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import ModuleType

import pytest

from kstate_cli.check.codes import CODES, layout, logs, offsets, surroundings, topology
from kstate_cli.codes import Code
from kstate_cli.fleet import findings as fleet_findings
from kstate_cli.fleet.findings import FLEET_CODES
from kstate_cli.seed import findings as seed_findings
from kstate_cli.seed.findings import CONDITIONS
from kstate_cli.verify import findings as verify_findings
from kstate_cli.verify.findings import VERIFY_CODES
from tests import syntax

CATALOGUES: list[tuple[Mapping[str, Code], tuple[ModuleType, ...], str]] = [
    (CODES, (layout, topology, offsets, logs, surroundings), "check/"),
    (FLEET_CODES, (fleet_findings,), "fleet/"),
    (CONDITIONS, (seed_findings,), "seed/"),
    (VERIFY_CODES, (verify_findings,), "verify/"),
]
NAMES = ["check", "fleet", "seed", "verify"]


@pytest.mark.parametrize(("catalogue", "modules", "package"), CATALOGUES, ids=NAMES)
def test_an_entry_is_under_the_constant_of_its_name(
    catalogue: Mapping[str, Code], modules: tuple[ModuleType, ...], package: str
) -> None:
    constants = [(name, value) for module in modules for name, value in vars(module).items() if isinstance(value, Code)]
    assert [name for name, code in constants if name != code.name.upper().replace("-", "_")] == []
    # Two entries of one name would be one in the catalogue: the later one hides the earlier.
    assert sorted(code.name for _, code in constants) == sorted(catalogue)


@pytest.mark.parametrize(("catalogue", "modules", "package"), CATALOGUES, ids=NAMES)
def test_no_rule_spells_a_code(catalogue: Mapping[str, Code], modules: tuple[ModuleType, ...], package: str) -> None:
    """A comparison with a text is False for every entry, and mypy sees only those whose types it knows."""
    entries = {module.__name__.removeprefix("kstate_cli.").replace(".", "/") + ".py" for module in modules}
    # Outcomes, and reasons for an unknown lag, have values of their own. Two of them are the name of a code too.
    outcomes = {"start-hangs", "below-log-start"}
    spelt = [
        f"{module}:{node.lineno}: {node.value!r}"
        for module, tree in syntax.modules()
        if module.startswith(package) and module not in entries
        for node in syntax.nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value in catalogue and node.value not in outcomes
    ]
    assert not spelt


def test_equality_is_that_of_names() -> None:
    code = next(iter(CODES.values()))
    assert code == type(code)(code.name, "another text", level=code.level)
    assert len({*CODES.values(), *CODES.values()}) == len(CODES)
    assert str(code) == code.name
