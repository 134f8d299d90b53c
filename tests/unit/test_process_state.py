"""What a process remembers from one command to the next: tests share processes, in another order each time."""

from __future__ import annotations

import ast
from pathlib import Path

from kstate_cli import option, texts
from kstate_cli.change.commits_made import committed, note_commit
from kstate_cli.cli import subject
from tests.conftest import a_new_process
from tests.syntax import modules

FORGOTTEN = {
    ("texts.py", "_options"),
    ("texts.py", "_declared"),
    ("cli/subject.py", "_app"),
    ("cli/subject.py", "_workers"),
    ("change/commits_made.py", "_commits"),
    ("deadline.py", "_services"),
    ("deadline.py", "_remains"),
    ("deadline.py", "_closing"),
    ("deadline.py", "_exit_codes"),
}
"""What `tests.conftest.a_new_process` empties before each test."""
LASTING = {
    ("temporary.py", "_swept"),
    ("texts.py", "_base"),
    ("formats/parquet_footer.py", "_NOTHING"),
    ("dump_reader/parquet_file.py", "_CHECKED"),
    ("deadline.py", "_reports"),
    ("deadline.py", "_watchers"),
}
"""By process id, folder or digest; set by `main` or emptied by its block: true for as long as the process lives."""


def test_module_state_is_listed() -> None:
    """Containers that are empty when their module is imported are there to be filled."""
    names = {
        (name, target.id)
        for name, module in modules()
        for statement in module.body
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None and empty(statement.value)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name)
    }
    assert names == {*FORGOTTEN, *LASTING}


def empty(value: ast.expr) -> bool:
    match value:
        case ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id="set" | "list" | "dict"), args=[]):
            return True
    return False


def test_a_new_process_remembers_nothing(tmp_path: Path) -> None:
    texts.carry_option(option.LOCK_IS_SHARED, frozenset({"wipe"}), True)
    subject.set_app(tmp_path)
    note_commit("0001-migrate")
    a_new_process()
    assert texts.lacking_options(["wipe"]) == [] and subject.app_path() is None and committed() is None


def test_the_packages_that_forked_helpers_import_exist() -> None:
    """A package that was renamed would end every sweep of faults, walk and round at its first command."""
    from tests.faults import zygote as faults
    from tests.loop import zygote as loop
    from tests.walker import zygote as walker

    packages = {*faults._PACKAGES, *faults._OF_RESTORE, *loop._PACKAGES, *walker._PACKAGES}
    root = Path(texts.__file__).parent
    paths = [root / name.replace(".", "/") for name in packages]
    assert not [path for path in paths if not path.is_dir() and not path.with_suffix(".py").is_file()]
