"""docs/reference, made from the code. `python -m tests.reference_pages` writes it anew.

Each page is a function of what the code declares, so that a test can give it one thing more and see that the page is
another one. What has no description raises :class:`Undocumented`: nothing gets in without one.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import kstate_cli
from kstate_cli import errors, option
from kstate_cli.change.journal import CREATED, DAMAGED, INTERRUPTED, RunState
from kstate_cli.check.findings import Level, Outcome
from kstate_cli.cli.help_panels import panel_of
from kstate_cli.cli.metrics import METRICS
from kstate_cli.cli.registry import COMMANDS, QuietOutput
from kstate_cli.errors import CommandEnd
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.query.result import FailureReason
from kstate_cli.releases import RELEASES, OffsetsHome, Release
from kstate_cli.restore.running.states import TRANSITIONS, RestoreState
from kstate_cli.specification.draft import spec_kinds
from kstate_cli.specification.tables import APP, DEFAULTS, DUMP, MAINTAIN, SERDES, SPARK, STEPS, keys_of
from kstate_cli.specification.toml_file import KEYS, TOP
from kstate_cli.statedir.problems import ProblemCode
from tests import json_lines, syntax
from tests.command_line import commands, groups

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"
_FINAL: Final = "<!-- from the code: KSTATE_WRITE_DOCS=1 pytest tests/unit/test_reference.py -->"

Tree = Sequence[tuple[str, Any]]
"""Commands by their path, as Click has them."""


class Undocumented(Exception):
    """Something of the code that says nothing about itself."""


def pages() -> dict[str, str]:
    """Name of each page -> its text."""
    return {
        **command_pages([*groups(), *commands()]),
        "exit-codes.md": exit_codes_page(list(endings())),
        "metrics.md": metrics_page(METRICS, list(commands())),
        "states.md": states_page(),
        "kstate-toml.md": toml_page(TOP, KEYS),
        "releases.md": releases_page(RELEASES),
    }


# --- commands ---------------------------------------------------------------------------------------------------------


def command_pages(tree: Tree) -> dict[str, str]:
    """Return the page of each command, with its arguments and options, and the list of commands.

    A group such as ``dump`` has its subcommands on one page.
    """
    parts: dict[str, list[str]] = {name: [] for name in COMMANDS}
    for path, command in tree:
        sections = parts[path.split()[0]]
        sections += _command(path, command) if not sections else [f"## kstate {path}", *_command(path, command)[2:]]
    return {
        "commands.md": _commands_page(),
        **{f"commands/{name}.md": "\n\n".join(sections) + "\n" for name, sections in parts.items()},
    }


def _commands_page() -> str:
    parts = [
        "# Commands",
        _FINAL,
        (
            "This page lists all commands. Each command has a page that describes its arguments and options, "
            "with the same text as `kstate COMMAND --help`."
        ),
        (
            "`APP` is the path to an application directory (`state.dir/application.id`), or to a `state.dir` with a "
            "single application. You can also set some options with an [environment variable](../environment.md). The "
            "tables on the command pages show these variables."
        ),
        markdown_table(
            ("command", "purpose"),
            [(f"[`{name}`](commands/{name}.md)", COMMANDS[name].help) for name in COMMANDS],
        ),
        "\n".join(["```{toctree}", ":hidden:", "", *(f"commands/{name}" for name in COMMANDS), "```"]),
    ]
    return "\n\n".join(parts) + "\n"


def _command(path: str, command: Any) -> list[str]:
    """Return the parts of a command's page: heading, mark, usage, help and tables."""
    if not command.help:
        raise Undocumented(f"kstate {path} has no help")
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    words = ["[OPTIONS]", *(_argument(argument) for argument in arguments)]
    usage = " ".join(["kstate", path, *(["COMMAND", "…"] if hasattr(command, "commands") else words)])
    parts = [f"# kstate {path}", _FINAL, f"```text\n{usage}\n```", _help(command.help)]
    panels: dict[str, list[tuple[str, ...]]] = {}
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        panels.setdefault(panel_of(parameter), []).append(_parameter(path, parameter))
    for title, rows in panels.items():
        parts += [f"**{title}**", markdown_table(("", "", "variable"), rows)]
    return parts


def _argument(entry: Any) -> str:
    name = entry.metavar or entry.name.upper()
    return name if entry.required else f"[{name}]"


def _parameter(path: str, entry: Any) -> tuple[str, str, str]:
    if not entry.help:
        raise Undocumented(f"kstate {path}: {entry.name} has no help")
    texts = [markdown(entry.help)]
    if entry.param_type_name == "argument":
        name = f"`{_argument(entry)}`"
    else:
        value = "" if entry.is_flag else f" {entry.metavar or '|'.join(_choices(entry)) or 'VALUE'}"
        name = f"`{', '.join([*entry.opts, *entry.secondary_opts])}{value}`"
        if entry.required:
            texts.append("Required.")
        elif not entry.is_flag and entry.default not in (None, [], ()) and not callable(entry.default):
            output = entry.default.value if isinstance(entry.default, Enum) else entry.default
            texts.append(f"The default is `{output}`.")
    variable = getattr(entry, "envvar", None)
    return name, " ".join(texts), f"`{variable}`" if variable else ""


def _choices(entry: Any) -> list[str]:
    kind = entry.type_descriptor.annotation
    return [str(member.value) for member in kind] if inspect.isclass(kind) and issubclass(kind, Enum) else []


def _help(text: str) -> str:
    r"""Help as Markdown: what `\b` keeps as it is stands in a block."""
    parts = []
    for paragraph in re.split(r"\n\n+", inspect.cleandoc(text)):
        if "\b" in paragraph:
            dedent = textwrap.dedent(paragraph.replace("\b\n", "").replace("\b", "")).strip("\n")
            parts.append(f"```text\n{dedent}\n```")
        else:
            parts.append(markdown(" ".join(paragraph.split())))
    return "\n\n".join(parts)


# --- how a command ends -----------------------------------------------------------------------------------------------


def endings() -> Iterator[type[CommandEnd]]:
    """Every class that a command can end with, those of all modules."""
    for module in pkgutil.walk_packages(kstate_cli.__path__, "kstate_cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    yield from sorted(
        {*_below(CommandEnd)}, key=lambda entry: (entry.exit_code, entry.code, entry.__module__, entry.__name__)
    )


def _below(kind: type[CommandEnd]) -> Iterator[type[CommandEnd]]:
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("kstate_cli."):
            yield subclass
        yield from _below(subclass)


_GIVEN_CODES: Final = {
    "system": "The operating system reported an error.",
    "database": "RocksDB reported an error.",
    "defect": "The command failed because of a bug in kstate. To log details, run the command again with `KSTATE_LOG=FILE`.",
    "failed": "The command failed for a reason that has no separate code.",
}
"""Codes that errors are given where they are raised, or that no class has."""


@functools.cache
def given_codes() -> frozenset[str]:
    """The codes that errors are given where they are raised: `KstateError(…, code="…")`."""
    kinds = {entry.__name__ for entry in _below(CommandEnd)}
    names = set()
    for path in Path(kstate_cli.__path__[0]).rglob("*.py"):
        for node in syntax.nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                codes = (keyword.value for keyword in node.keywords if keyword.arg == "code")
                names |= {str(code.value) for code in codes if isinstance(code, ast.Constant)}
    return frozenset(names)


def exit_codes_page(classes: Iterable[type[CommandEnd]]) -> str:
    """The exit codes, and the words for what they may mean."""
    table = re.findall(r"^\w+ {2,}(\S+) {2,}(\S.*)$", errors.__doc__ or "", flags=re.MULTILINE)
    meanings = {
        "0": ["the command succeeded, or there was nothing to do"],
        "1": ["the command succeeded, but printed warnings. With `--warnings-ok`, the exit code is 0 instead"],
    }
    for number, meaning in table:
        if number != "exit":
            meanings.setdefault(number, []).append(markdown(meaning))
    rows = [(number, ". Or ".join(texts)) for number, texts in meanings.items()]
    codes: dict[tuple[int, str], list[str]] = {}
    for kind in classes:
        if kind.code == "interrupted" or kind is errors.KstateError:
            continue
        statement = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
        if not statement or kind.__doc__ == CommandEnd.__doc__:
            raise Undocumented(f"{kind.__module__}.{kind.__name__} has no docstring")
        codes.setdefault((kind.exit_code, kind.code), []).append(markdown(" ".join(statement.split())))
    for name in given_codes():
        if name not in _GIVEN_CODES and name not in {code for _, code in codes}:
            raise Undocumented(f"the code {name} of an error")
    codes |= {(errors.RunFailed.exit_code, name): [markdown(code)] for name, code in _GIVEN_CODES.items()}
    codes |= {
        (128, errors.Interrupted.code): ["A signal ended the command. The exit code is 128 plus the signal's number."]
    }
    return (
        "\n\n".join(
            [
                "# Exit codes",
                _FINAL,
                markdown_table(("exit code", "meaning"), rows),
                (
                    "If a command fails after it has changed the directory, the exit code is 7 instead of 6. If "
                    "kstate cannot write all results, the exit code is never 0. If kstate cannot write a message, the "
                    "exit code does not change."
                ),
                "## Quiet output",
                (
                    "With `--quiet`, a command prints results, problems, warnings and errors. It does not print "
                    "progress, notes or hints. The exit code shows the result. With `-o json`, `--quiet` does not "
                    "change the lines on standard output."
                ),
                markdown_table(
                    ("command", "output with `--quiet`"),
                    [
                        (", ".join(f"`{name}`" for name in names), answer.value)
                        for answer in QuietOutput
                        if (names := [name for name, entry in COMMANDS.items() if entry.quiet is answer])
                    ],
                ),
                "## Codes of errors",
                (
                    "If a command fails with `-o json`, the last line is an `error` with a `code`. These codes are "
                    "stable, so programs can rely on them (see [Errors](../json.md#errors))."
                ),
                markdown_table(
                    ("code", "exit code", "meaning"),
                    [
                        (f"`{code}`", str(number), " Or: ".join(dict.fromkeys(text)))
                        for (number, code), text in sorted(codes.items())
                    ],
                ),
            ]
        )
        + "\n"
    )


# --- metrics ----------------------------------------------------------------------------------------------------------


def metrics_page(metrics: Mapping[str, tuple[str, tuple[str, ...]]], tree: Tree) -> str:
    """The gauges of `--metrics-file`."""
    of = [path for path, command in tree if any("--metrics-file" in parameter.opts for parameter in command.params)]
    for name, (subject, _) in metrics.items():
        if not subject:
            raise Undocumented(f"the metric {name} says nothing")
    return (
        "\n\n".join(
            [
                "# Metrics",
                _FINAL,
                (
                    "With `--metrics-file FILE`, kstate writes a file for the textfile collector of the Prometheus node exporter. "
                    "kstate replaces the whole file at once. It never replaces a file from a different program. If a command "
                    "fails, the file keeps the time of the last success. You can use this time for alerts."
                ),
                markdown_table(
                    ("gauge", "meaning", "labels"),
                    [
                        (f"`{name}`", markdown(topic), ", ".join(f"`{label}`" for label in labels))
                        for name, (topic, labels) in metrics.items()
                    ],
                ),
                "Only commands that count records or findings write `kstate_records` and `kstate_findings`.",
                f"These commands have the option: {_list_text(f'`{path}`' for path in of)}.",
            ]
        )
        + "\n"
    )


# --- states -----------------------------------------------------------------------------------------------------------

_SHOWN_STATES: Final = {
    CREATED: "The run's folder has no journal, because the run ended before kstate could create the journal.",
    INTERRUPTED: "The run's process has ended. The next command that changes the directory either completes the run or removes the run's files.",
    DAMAGED: "The run's journal is missing or damaged, so kstate does not change the run's files.",
}
"""States of a run that are no state of a journal."""


def states_page() -> str:
    """States, outcomes and other words of a fixed set."""
    runs = documentation_of(RunState)
    states = json_lines.schema("members")["$defs"]["state"]["enum"]
    for state in states:
        if state not in runs and state not in _SHOWN_STATES:
            raise Undocumented(f"the state {state} of a run")
    follows = {
        entry.value: ", ".join(f"`{after.value}`" for after in RestoreState if after in TRANSITIONS[entry]) or "nothing"
        for entry in RestoreState
    }
    return (
        "\n\n".join(
            [
                "# States and other words",
                _FINAL,
                "## Runs",
                (
                    "The `state` of a run in `kstate status` has one of these values. A run is a single execution of "
                    "a command that changes a directory."
                ),
                markdown_table(
                    ("state", "meaning"),
                    [(f"`{state}`", markdown(runs.get(state) or _SHOWN_STATES[state])) for state in states],
                ),
                "## Restorations",
                (
                    "`kstate status` shows one of these values as `restoration`. kstate also passes these values to "
                    "the command in `--on-state-change`. The states follow KIP-728 and KIP-696 (see the "
                    "[diagram](../internals/restoring.md#states))."
                ),
                markdown_table(
                    ("state", "meaning", "followed by"),
                    [
                        (f"`{name}`", markdown(statement), follows[name])
                        for name, statement in documentation_of(RestoreState).items()
                    ],
                ),
                "## Outcomes of the next start",
                "For each store, `kstate check` predicts one of these outcomes (`outcome`).",
                _words("outcome", Outcome),
                "## Levels of findings",
                "Each finding reported by `kstate check` has one of these levels (see the [list of findings](../check.md#findings)).",
                _words("level", Level),
                "## Failures of queries",
                (
                    "If `kstate query` fails, the `code` is one of these failure reasons. Kafka Streams uses the same reasons."
                ),
                _words("failure reason", FailureReason),
                "## Problems of a directory",
                "If `kstate ls` or `kstate inspect-position` reports a problem, the `code` has one of these values.",
                _words("code", ProblemCode),
            ]
        )
        + "\n"
    )


def _words(title: str, kind: type[Enum]) -> str:
    return markdown_table(
        (title, "meaning"), [(f"`{name}`", markdown(statement)) for name, statement in documentation_of(kind).items()]
    )


def documentation_of(kind: type[Enum]) -> dict[str, str]:
    """Value of each member -> the text below it in the source. Raises Undocumented where one has none."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    results: dict[str, str] = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        statement = after.value if isinstance(after, ast.Expr) else None
        if not (isinstance(statement, ast.Constant) and isinstance(statement.value, str)):
            raise Undocumented(f"{kind.__name__}.{node.targets[0].id}")
        results[str(kind[node.targets[0].id].value)] = " ".join(statement.value.split())
    return results


# --- kstate.toml ------------------------------------------------------------------------------------------------------


def toml_page(top: Mapping[str, str], keys: Mapping[str, Any]) -> str:
    """The keys of `kstate.toml`."""
    for name, entry in keys.items():
        if not entry.meaning:
            raise Undocumented(f"the key {name} of kstate.toml")
    return (
        "\n\n".join(
            [
                "# kstate.toml",
                _FINAL,
                (
                    "The file kstate.toml describes an application's stores, and contains default options for "
                    "commands. If an application directory is lost, `kstate restore` needs this file. To create it, "
                    "run `kstate ls APP --spec` while the directory still exists, and complete the marked lines. If "
                    "you pass `--topology`, `--bootstrap-server` or `--from-changelog`, there are [fewer "
                    "lines](../how-to/restore.md) to complete. kstate rejects unknown keys. Together, "
                    "[examples/kstate.toml](../../examples/kstate.toml) and "
                    "[examples/maintain.toml](../../examples/maintain.toml) contain all keys."
                ),
                markdown_table(
                    ("key", "meaning"), [(f"`{name}`", markdown(statement)) for name, statement in top.items()]
                ),
                "## A store",
                "The table for a store, `[stores.NAME]`, can contain these keys:",
                markdown_table(
                    ("key", "value", "meaning"),
                    [
                        (
                            f"`{name}`",
                            "a kind ([list](#kinds))" if name == "kind" else markdown(key.expected),
                            markdown(key.meaning),
                        )
                        for name, key in keys.items()
                    ],
                ),
                "## Defaults of commands",
                (
                    "Every command reads `[defaults]` from the file that you pass with `--config`. Options on the "
                    "command line take precedence over [environment variables](../environment.md), and both take "
                    "precedence over the file. If the file describes stores, commands also use it as the `--spec` "
                    "file. If you specify the file with `KSTATE_CONFIG`, kstate reads only the keys that you "
                    "can also set with an environment variable. In particular, it does not read a directory from the file. To see which "
                    "values a command uses, run it with `kstate --debug`."
                ),
                markdown_table(
                    ("key", "value", "stands for", "meaning"),
                    [
                        (
                            f"`{name}`",
                            markdown(element.expected),
                            ", ".join(map(_row_of_option, element.fills)),
                            markdown(element.meaning),
                        )
                        for name, element in DEFAULTS.items()
                    ],
                ),
                "## Serdes",
                (
                    "With `--config`, `query` and `export` read the serdes for a store from the table `[serdes.NAME]`. "
                    'If the store name contains dots, the table is `[serdes."NAME"]`. The keys accept kstate\'s serdes, '
                    "such as `string` or `long`, but not `MODULE:NAME`. Options on the command line take "
                    "precedence."
                ),
                markdown_table(
                    ("key", "value", "stands for", "meaning"),
                    [
                        (
                            f"`{name}`",
                            markdown(rule.expected),
                            ", ".join(map(_row_of_option, rule.fills)),
                            markdown(rule.meaning),
                        )
                        for name, rule in SERDES.items()
                    ],
                ),
                "## Spark",
                (
                    "With `--config`, `dump`, `restore` and `rehome` read Spark settings from the table `[spark]`. "
                    "With `--engine local`, kstate ignores this table."
                ),
                markdown_table(
                    ("key", "value", "stands for", "meaning"),
                    [
                        (
                            f"`{name}`",
                            markdown(rule.expected),
                            ", ".join(map(_row_of_option, rule.fills)),
                            markdown(rule.meaning),
                        )
                        for name, rule in SPARK.items()
                    ],
                ),
                "## Maintenance",
                (
                    "The table `[maintain]` configures [`kstate maintain`](../how-to/maintain.md). This command runs each "
                    "step that has a `[maintain.STEP]` table:"
                ),
                markdown_table(
                    ("key", "value", "meaning"),
                    [
                        (f"`{name}`", markdown(element.expected), markdown(element.meaning))
                        for name, element in MAINTAIN.items()
                    ],
                ),
                markdown_table(
                    ("step", "does"), [(f"`{name}`", markdown(statement)) for name, (statement, _) in STEPS.items()]
                ),
                markdown_table(
                    ("key", "steps", "value", "meaning"),
                    [
                        (
                            f"`{name}`",
                            _list_text(f"`{element}`" for element in of),
                            markdown(key.expected),
                            markdown(key.meaning),
                        )
                        for (name, _), (key, of) in _step_keys().items()
                    ],
                ),
                "## Kinds",
                markdown_table(
                    ("kind", "since"),
                    [(f"`{name}`", _first_release(name)) for name in sorted(spec_kinds())],
                ),
            ]
        )
        + "\n"
    )


def _row_of_option(option: str) -> str:
    """An option, or the argument, that a key stands for."""
    return f"`{option}`" if option in (APP, DUMP) else f"`{option if ' ' in option else f'--{option}'}`"


def _step_keys() -> dict[tuple[str, str], tuple[Any, list[str]]]:
    """Each key of a step by name and meaning, and the steps that have it: `keep` has two meanings."""
    results: dict[tuple[str, str], tuple[Any, list[str]]] = {}
    for step in STEPS:
        for name, key in keys_of(step).items():
            results.setdefault((name, key.meaning), (key, []))[1].append(step)
    return results


def _first_release(kind: str) -> str:
    try:
        return store_kind(kind).first_release or ""
    except ValueError:
        return "never on disk"


# --- releases ---------------------------------------------------------------------------------------------------------


def releases_page(releases: Iterable[Release]) -> str:
    """What kstate knows of each release."""
    homes = {
        OffsetsHome.FILES: "in files: `.checkpoint`, `<store>.position`",
        OffsetsHome.COLUMN_FAMILY: "in the `offsets` column family of each database (KIP-1035)",
    }
    return (
        "\n\n".join(
            [
                "# Releases",
                _FINAL,
                (
                    "`--to` and `--for` accept these releases and their patch releases. They also accept [Confluent "
                    "Platform](../how-to/confluent.md) releases with the prefix `cp-`. With `--to-jar` and "
                    "`--for-jar`, kstate reads the release from the application's jar."
                ),
                markdown_table(
                    ("release", "rocksdbjni", "newest SST format", "where it keeps offsets"),
                    [
                        (
                            f"{release.name} (unproven)" if release.unproven else release.name,
                            ", ".join(release.rocksdb),
                            str(release.reads_sst_format),
                            homes[release.offsets_home],
                        )
                        for release in releases
                    ],
                ),
                (
                    "An unproven release has not been tested. Support for it is based only on [public "
                    "changes](../internals/next-releases.md). `kstate migrate` and `kstate restore` accept such a "
                    "release only with `--unproven`. `kstate ls` lists it only if no other release can open a store."
                ),
                (
                    "For the migrations that were tested with real releases, see "
                    "[Compatibility](../compatibility.md). kstate also performs other migrations, but labels them as "
                    "unproven."
                ),
            ]
        )
        + "\n"
    )


# --- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(text: str) -> str:
    """A text of the code as Markdown: nothing in it is markup but code, which docstrings have between two backticks."""
    text = re.sub(r"``option\.([A-Z_]+)``", lambda name: f"``{getattr(option, name[1])}``", text)
    parts = re.split(r"(`[^`]+`)", re.sub(r":(?:class|meth|data|func):`([^`]+)`", r"`\1`", text.replace("``", "`")))
    return "".join(
        part if part.startswith("`") and len(part) > 1 else re.sub(r"([\\*_<>\[\]])", r"\\\1", part) for part in parts
    )


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; lines within a cell become one."""
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def _list_text(words: Iterable[str]) -> str:
    *some, last = words
    return f"{', '.join(some)} and {last}" if some else last


def write(folder: Path = FOLDER, outputs: Callable[[], dict[str, str]] = pages) -> None:
    """Writes every page."""
    for name, text in outputs().items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
