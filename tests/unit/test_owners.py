"""What is known in one place is not written down in another: no module spells a name, or a number, that has an owner."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstate_cli
from kstate_cli.formats import store_kinds, topic_partition
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import all_families, kind_names
from kstate_cli.formats.topic_partition import changelog_topic
from kstate_cli.rocks.files import CURRENT
from kstate_cli.statedir import names
from tests import syntax

ROOT = Path(kstate_cli.__file__).parent
OWNERS = {
    "formats/store_kinds.py": {*all_families(), *kind_names()},
    "formats/topic_partition.py": {topic_partition.GLOBAL, changelog_topic("", "").removeprefix("-")},
    "rocks/files.py": {CURRENT},
    "statedir/names.py": {
        names.LOCK,
        names.PROCESS_FILE,
        names.OWN_FOLDER,
        names.ROCKSDB,
        names.CHECKPOINT,
        names.POSITION,
    },
}
OTHER_MEANINGS = {
    # Key schemas are called after a kind that has them.
    *(("formats/layouts.py", schema.value) for schema in KeySchema),
    *(("formats/layouts.py", name) for name in ("headers-session",)),
    # A hidden file of kstate's own.
    ("cli/metrics.py", names.LOCK),
    # The default section of OPTIONS files, which RocksDB itself requires.
    ("formats/metadata_files.py", store_kinds.DEFAULT_CF),
    # The engine's own look at what it copies, switches and takes back.
    *((f"change/{module}.py", CURRENT) for module in ("access", "edit", "fingerprint", "lockfile", "undo")),
    # Members of JSON documents and of files of kstate's own.
    ("offsets/ages.py", store_kinds.OFFSETS_CF),
    ("snapshot/generation_file.py", store_kinds.OFFSETS_CF),
    ("cli/commands/diff.py", store_kinds.OFFSETS_CF),
    # A parameter.
    ("cli/commands/check.py", store_kinds.OFFSETS_CF),
    ("specification/toml_file.py", topic_partition.GLOBAL),
    ("specification/draft.py", topic_partition.GLOBAL),
    ("specification/topology.py", topic_partition.GLOBAL),
    # Subcommands of query, parts of conversions, and shapes of exported records.
    ("cli/commands/query.py", "session"),
    ("cli/commands/query.py", "versioned"),
    ("cli/commands/query_answers.py", "session"),
    ("cli/commands/query_answers.py", "versioned"),
    # Which layout a kind that only its rows tell has: the rules of inference.
    ("formats/kind_inference.py", "list-value"),
    ("formats/kind_inference.py", "versioned"),
    ("formats/kind_inference.py", "foreign-key-subscription"),
}
"""(module, text): the same letters, and not what the owner means."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings that are used as they are, and the fixed parts of paths in f-strings; no prose, and no annotations."""
    for node in syntax.nodes(tree):
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.Constant) and " " not in str(part.value):
                    yield node.lineno, str(part.value).strip("/_")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("owner", OWNERS)
def test_nobody_else_spells_it(owner: str) -> None:
    results = [
        f"{module}:{line}: {text!r} stands in {owner}"
        for module, tree in syntax.modules()
        if owner != module
        for line, text in texts(tree)
        if text in OWNERS[owner] and (module, text) not in OTHER_MEANINGS
    ]
    assert not results, "\n".join(results)


def test_the_exceptions_are_needed() -> None:
    modules = {(module, text) for module, tree in syntax.modules() for _, text in texts(tree)}
    assert modules >= OTHER_MEANINGS


def test_the_ends_of_numbers_are_spelled_once() -> None:
    texts = [
        f"{module}:{node.lineno}"
        for module, tree in syntax.modules()
        if module != "formats/binary.py"
        for node in syntax.nodes(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.LShift | ast.Pow)
        and isinstance(node.right, ast.Constant)
        and node.right.value in (31, 63)
    ]
    assert not texts, texts


RELEASE_OWNERS = {
    "releases.py",
    # What differs between the patch releases of a row.
    "patch_releases.py",
    # Since when there are kinds of stores.
    "formats/store_kinds.py",
    # What is shown, not what is done: the releases of the demonstration and of an example.
    "cli/commands/demo.py",
    "cli/commands/examples.py",
}
_A_RELEASE = re.compile(r"[3-9]\.\d{1,2}(\.\d+)?")


def test_nobody_means_a_property_of_a_release_and_says_its_name_or_its_place() -> None:
    """What a release does is in its row: another row behind it must not change what is done for it."""
    literals = []
    for module, tree in syntax.modules():
        if module in RELEASE_OWNERS:
            continue
        docstrings = {id(node.value) for node in syntax.nodes(tree) if isinstance(node, ast.Expr)}
        for node in syntax.nodes(tree):
            names = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            spelled = names and _A_RELEASE.fullmatch(node.value) is not None  # type: ignore[attr-defined]
            table = isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in {"RELEASES", "PROVEN"}
            pair = isinstance(node, ast.Compare) and any(
                isinstance(comparator, ast.Tuple) and all(isinstance(part, ast.Constant) for part in comparator.elts)
                for comparator in node.comparators
            )
            numbered = pair and any(getattr(node_, "attr", "") == "number" for node_ in ast.walk(node))
            if spelled or table or numbered:
                literals.append(f"{module}:{node.lineno}")  # type: ignore[attr-defined]
    assert not literals, "\n".join(literals)


MAKERS = {
    # What a plan says of offsets is made where it is known how each release keeps them.
    "offsets/keeping.py": {"CreateDatabase", "OffsetsRecord"},
    # The codec reads one.
    "formats/offsets.py": {"OffsetsRecord"},
    # A snapshot states what the database holds.
    "snapshot/generation_file.py": {"OffsetsRecord"},
    # What a cut has, as if its store had been closed.
    "snapshot/rules.py": {"OffsetsRecord"},
}
FILES = {"CHECKPOINT", "position_file", "store_checkpoint"}
STEPS = {"WriteFile", "RemoveFile"}


def test_a_single_module_decides_how_a_release_keeps_offsets() -> None:
    """No planner makes a record, an empty database that carries one, or a file of offsets by itself."""
    names = []
    for module, tree in syntax.modules():
        for node in syntax.nodes(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            function_name = node.func.id
            elsewhere = function_name in {"CreateDatabase", "OffsetsRecord"} and function_name not in MAKERS.get(
                module, set()
            )
            names_file = function_name in STEPS and any(getattr(node_, "id", "") in FILES for node_ in ast.walk(node))
            if elsewhere or (names_file and module not in MAKERS):
                names.append(f"{module}:{node.lineno}: {function_name}")
    assert not names, "\n".join(names)


def test_a_single_module_reads_rows_of_parquet_files() -> None:
    """pyarrow skips rows silently, and mixes the rows of several row groups. One module counts them, row group by row group."""
    callers = {
        module
        for module, tree in syntax.modules()
        for node in syntax.nodes(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"iter_batches", "read_row_group", "read_row_groups"}
    }
    # The module of pages returns no rows: it measures the values of dictionaries.
    assert callers == {"dump_reader/footers.py", "dump_reader/pages.py"}
