"""``kstate query``: the subcommand first. The order of before is refused, and told as it is now, to be pasted."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from kstate_cli.cli.ending import exit_code_of
from kstate_cli.errors import UsageError
from tests.command_line import program

_CLI: Any = program()
_QUERY: Any = _CLI.commands["query"]
MORE = {
    "key": ["k"],
    "range": ["--from", "a b", "-o", "json"],
    "raw-key": ["--", "-5"],
    "raw-scan": [],
    "window-key": ["--limit", "3", "it's"],
    "window-range": ["--from=2024-05-01T12:00:00Z"],
    "session": ["$(reboot)"],
    "versioned": ["k", "--as-of", "5"],
    "multi-versioned": ["-q", "k"],
}
"""What comes after a subcommand."""


def _refusal(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        _CLI(["query", *words], standalone_mode=False, prog_name="kstate")
    assert exit_code_of(caught.value) == 2
    return caught.value


def test_every_subcommand_is_here() -> None:
    assert list(MORE) == list(_QUERY.commands)


@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("path", ["/data/app", "/data/my app", "~/a'b;reboot", "key", "-data"])
def test_the_order_of_before(path: str, name: str) -> None:
    """Whatever a path and a store are called, but for a path that is a subcommand itself."""
    ends = ["--"] if path.startswith("-") else []
    if path in _QUERY.commands:
        path = f"./{path}"
    for store in ("count", "range"):
        hint = _refusal(*ends, path, store, name, *MORE[name]).hint
        assert hint is not None
        words = shlex.split(hint[hint.index("kstate ") :])
        argument = f"./{path}" if ends else path
        assert words == ["kstate", "query", name, argument, store, *MORE[name]]
        values = _QUERY.commands[name].make_context(name, words[3:]).params
        assert (str(values["app"]), values["store"]) == (str(values["app"].__class__(argument)), store)


def test_hint_for_missing_arguments_names_the_help() -> None:
    hint = _refusal("/data/app", "key").hint
    assert hint is not None and hint.endswith("kstate query key --help")
    with pytest.raises(Exception, match="No such command '/data/app'"):
        _CLI(["query", "/data/app", "count"], standalone_mode=False, prog_name="kstate")
