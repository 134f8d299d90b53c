"""Every command of kstate that stands in its source is one that its own parser takes: none is old, none is mistyped.

What a run says goes through ``command("wipe", app, …)`` or through the templates of ``check``, which quote what they
are given: it can be pasted as it stands, with the application directory in it. A command is written out only in help
(which knows no directory) and in docstrings. A path or a name is never put into the text of a command by hand.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstate_cli
from kstate_cli import option
from kstate_cli.check.codes import CODES
from kstate_cli.cli.registry import COMMANDS, other_words
from kstate_cli.texts import filled
from tests import named_options, syntax
from tests.command_line import commands, program

ROOT = Path(kstate_cli.__file__).parent
_CLI: Any = program()
_MENTION = re.compile(
    r"\bkstate (query [a-z][a-z-]*|[a-z][a-z-]*)((?: (?:--?[a-z][a-z-]*|[A-Z]{2,}|[0-9][0-9a-z.]*|\x00))*)"
)
_HOLE = "\x00"
# Words that follow "kstate" in sentences about it.
_VERBS = re.compile(
    "accepts?|cannot|commands?|content|doesn?|in|is|keeps?|knows|may|opens|query|reads?|takes|toml|was|which|who|writes|"
    "wrote|kept|will|with|then|and|has|its|made|never|names|says|left|found|follows|or|run|runs|"
    "again|did|undid|itself|last|still|that|for|to|would|could|can|must|should|might|had|(?!(?:ls|status|examples)$)[a-z]+(?:s|ed)"
)
_DUMMIES = {
    "APP": "/data/app", "TASK": "0_0", "STORE": "count", "RELEASE": "4.2", "STARTED": "4.2", "DUMP": "/data/dump", "A": "/a", "B": "/b",
    "KEY": "k", "FILE": "/data/file", "TOPIC": "topic", "HOST:PORT": "h:1", _HOLE: "4.2",
}  # fmt: skip


def parse(words: list[str], *, whole: bool) -> None:
    """Gives the words after ``kstate`` to the command's own parser; ``whole``: nothing that it needs may be missing."""
    name, *rest = other_words(words)
    if name.startswith("-"):  # of the program itself
        assert {*words} <= {option for parameter in _CLI.params for option in parameter.opts}, words
        return
    assert name in COMMANDS, f"there is no kstate {name}"
    command = _CLI.commands[name]
    if hasattr(command, "commands") and rest and rest != ["--help"]:
        name, *rest = rest
        if name == _HOLE and rest == ["--help"]:
            return
        assert name in command.commands, f"there is no subcommand {name}"
        command = command.commands[name]
    if rest == ["--help"] or (hasattr(command, "commands") and not whole):
        return
    words_ = [_DUMMIES.get(word_, word_) for word_ in rest]
    if not whole and not any(not word_.startswith("-") for word_ in words_[:1]):
        words_ = [*words_, "/data/app"] if "--spec" not in words_ else words_
    command.make_context(name, words_, resilient_parsing=not whole)


# A command in backquotes, such as `kstate check`, is named in a sentence, and not printed to be pasted.
_BY_HAND = re.compile(rf"(?<!`)\bkstate (?:{'|'.join(COMMANDS)}|\x00)(?![\w-])|^kstate ?$")
_WRITTEN_OUT = {
    "texts.py": "the owner of commands",
    **dict.fromkeys(
        ["check/findings.py", *(f"check/codes/{path.name}" for path in (ROOT / "check" / "codes").glob("*.py"))],
        "templates, which filled() completes; see test_hints_of_check_are_valid_commands",
    ),
    "kstate": "the name of the program and of its package",
    "kstate export": "what Spark's web pages call the job",
    "kstate restore": "what Spark's web pages call the job",
    "kstate dump": "what Spark's web pages call the job",
    "kstate warm-up": "what Spark's web pages call the job",
    "kstate \x00": "kstate --version",
    "kstate ": "how a command in a message begins, which no terminal folds",
    "cli/list_of_commands.py": "the generated text of the list of commands",
}
"""Modules, and whole texts, that may write a command out."""


def _help_texts(tree: ast.AST) -> set[int]:
    """The literals that a command's own help consists of, and those that stand by themselves: docstrings."""
    identities: set[int] = set()
    for node in syntax.nodes(tree):
        if isinstance(node, ast.keyword) and node.arg == "help":
            identities |= {id(entry) for entry in ast.walk(node.value)}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            identities.add(id(node.value))
        elif isinstance(node, ast.Assign) and any(getattr(name, "id", "") == "_SERDE" for name in node.targets):
            identities |= {id(entry) for entry in ast.walk(node.value)}  # the common beginning of several help texts
    return identities


def written_out(path: Path) -> list[str]:
    """Where a module writes a command of kstate into a text."""
    if str(path.relative_to(ROOT)) in _WRITTEN_OUT:
        return []
    tree = syntax.tree(path)
    help_texts = _help_texts(tree)
    texts = [(node, text) for node, text in _texts(tree) if id(node) not in help_texts and text not in _WRITTEN_OUT]
    return [f"{path.relative_to(ROOT)}:{node.lineno}: {text!r}" for node, text in texts if _BY_HAND.search(text)]


_OPTION = re.compile(r"(?<!\w)--[a-z][a-z-]* \x00(?![!])")


def options_by_hand(path: Path) -> list[str]:
    """Where a value is put after an option by hand, unquoted: ``f"--rebuild --store {name}"``."""
    results = []
    for node in syntax.nodes(path):
        if not isinstance(node, ast.JoinedStr):
            continue
        text = "".join(_shape(part) for part in node.values)
        if _OPTION.search(text):
            results.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text!r}")
    return results


def _shape(part: ast.expr) -> str:
    """A literal as it is; a value as a hole, unless it is quoted."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    call = part.value
    quoted = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("quoted", "uri_text")
    return "QUOTED" if quoted or part.conversion == ord("r") else _HOLE


def _literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of a module with their lines, but for docstrings; in an f-string each value is a hole."""
    yield from ((node.lineno, text) for node, text in _texts(tree))


def _texts(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    docs = {
        id(node.body[0].value)
        for node in syntax.nodes(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body
        and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    inside: set[int] = set()
    for node in syntax.nodes(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(value) for value in node.values}
            yield node, "".join(str(v.value) if isinstance(v, ast.Constant) else _HOLE for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | inside:
            yield node, node.value


def _sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def mentions() -> list[tuple[str, str, str]]:
    """(where, command, what follows) of each command in a text of the source."""
    results = []
    for path in _sources():
        for line, text in _literals(syntax.tree(path)):
            for match in _MENTION.finditer(text):
                name, _, word = match[1].partition(" ")
                if name not in COMMANDS and _VERBS.fullmatch(name):
                    continue
                if word and word not in _CLI.commands[name].commands:
                    word = ""  # "as kstate query shows them"
                results.append((f"{path.relative_to(ROOT)}:{line}", f"{name} {word}".strip(), match[2]))
    return results


def calls() -> list[tuple[str, list[str]]]:
    """(where, words) of each call of ``command``; what is not literal is a hole."""
    results = []
    for path in _sources():
        names = {name.name for node in syntax.nodes(path) if isinstance(node, ast.ImportFrom) for name in node.names}
        if "command" not in names:
            continue
        for node in syntax.nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command":
                if any(isinstance(argument, ast.Starred) for argument in node.args):
                    continue  # whose words are known elsewhere
                words = [str(argument.value) if isinstance(argument, ast.Constant) else _HOLE for argument in node.args]
                results.append((f"{path.relative_to(ROOT)}:{node.lineno}", words))
    return results


@pytest.mark.parametrize("path", _sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_is_written_out(path: Path) -> None:
    assert not written_out(path), "use texts.command, with the application directory that it is about"
    assert not options_by_hand(path), "use texts.quoted"


def test_command_is_the_function_everywhere() -> None:
    """A local variable of that name would hide it, and what is said after that line would be something else."""
    for path in _sources():
        tree = syntax.tree(path)
        if not any(
            isinstance(n, ast.ImportFrom) and any(a.name == "command" for a in n.names) for n in syntax.nodes(tree)
        ):
            continue
        hidden: list[ast.Name | ast.arg] = [
            n
            for n in syntax.nodes(tree)
            if isinstance(n, ast.Name) and n.id == "command" and isinstance(n.ctx, ast.Store)
        ]
        hidden += [n for n in syntax.nodes(tree) if isinstance(n, ast.arg) and n.arg == "command"]
        assert not [f"{path.relative_to(ROOT)}:{node.lineno}" for node in hidden]


def test_commands_in_texts() -> None:
    results = mentions()
    assert len(results) > 10
    for where, name, rest in results:
        assert _HOLE not in rest, f"{where}: kstate {name}{rest}: a value is put in by hand: use texts.command"
        try:
            parse([*name.split(), *rest.split()], whole=False)
        except Exception as error:
            raise AssertionError(f"{where}: kstate {name}{rest}: {error}") from error


def test_commands_that_are_put_together() -> None:
    results = calls()
    assert len(results) > 10
    for where, words in results:
        try:
            parse(words, whole=True)
        except Exception as error:
            raise AssertionError(f"{where}: {words}: {error}") from error


@pytest.mark.parametrize("code", CODES.values(), ids=CODES.keys())
def test_hints_of_check_are_valid_commands(code: Any) -> None:
    hint = filled(
        code.hint, {"APP": "/data/my app", "RELEASE": "4.2", "STARTED": "4.2", "TASK": "0_0", "STORE": "count"}
    )
    _, name_, line = hint.partition("kstate ")
    if not name_:
        return
    words = shlex.split(line)
    assert words[1] == "/data/my app"
    parse([_DUMMIES.get(word, word) for word in words], whole=True)


# --- options ----------------------------------------------------------------------------------------------------------

_SPELLING = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OF_OTHER_PROGRAMS = {
    "change/undo.py": ({"--format"}, "GNU tar"),
    "spark/engine.py": ({"--conf"}, "spark-submit"),
    "spark/kept_start.py": ({"--conf"}, "Spark's launcher"),
    "specification/topology.py": ({"--describe", "--topology"}, "kafka-streams-groups.sh"),
}
"""Options that modules below `cli` spell because other programs have them."""
NO_OPTIONS = {
    "cli/other_names.py": "what other tools call an option",
    "cli/registry.py": "an option that changes which command runs",
    "cli/views/fleet_page.py": "variables of a style sheet",
}
"""Modules whose texts have words that look like options."""


def _modules_below_cli() -> list[Path]:
    return [path for path in _sources() if path.relative_to(ROOT).parts[0] not in ("cli", "option.py", "examples")]


@pytest.mark.parametrize("path", _modules_below_cli(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_below_cli_spells_no_option(path: Path) -> None:
    """In code it names `option.TASK`; docstrings and comments speak of the parameter."""
    foreign, _ = OF_OTHER_PROGRAMS.get(str(path.relative_to(ROOT)), (set(), ""))
    text = path.read_text(encoding="utf-8")
    assert {*_SPELLING.findall(text)} == foreign, "use kstate_cli.option"
    # In code the type checker finds a misspelt constant.
    assert all(hasattr(option, name) for name in re.findall(r"``option\.([A-Z_]+)``", text))


def test_each_option_has_a_constant_and_each_constant_an_option() -> None:
    spellings = {name: text for name, text in vars(option).items() if name.isupper()}
    options = {text for _, command in commands() for parameter in command.params if parameter.param_type_name == "option"
               for text in (*parameter.opts, *parameter.secondary_opts)}  # fmt: skip
    options |= {text for parameter in _CLI.params for text in parameter.opts} | {"--help"}
    assert {*spellings.values()} == {text for text in options if text.startswith("--")}
    assert all(text == f"--{name.lower().replace('_', '-')}" for name, text in spellings.items())


def test_a_text_of_cli_names_options_that_exist() -> None:
    options = {text for name, text in vars(option).items() if name.isupper()}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in sorted((ROOT / "cli").rglob("*.py"))
        if str(path.relative_to(ROOT)) not in NO_OPTIONS
        for line, text in _literals(syntax.tree(path))
        # Its options are those of a tool of Kafka.
        if "kafka-streams-application-reset" not in text and not {*_SPELLING.findall(text)} <= options
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("words", "text"),
    [
        # A hint that `seed` printed: it has no --wait.
        ("seed --from /a --app new", "  what to do: stop the application first or wait for it with --wait SECONDS"),
        ("seed --from /a --app new", '{"type": "error", "hint": "x", "hint_details": ["or pass --wait 60"]}'),
        ("migrate /a --to 4.2", "first run: kstate undo /a --to 4.3"),
        ("query raw-scan /a count", "or pass --rebuild"),
        ("ls /a", "kstate check /a --for 4.2, then pass --rebuild"),
    ],
)
def test_a_foreign_option_in_a_message_is_reported(words: str, text: str) -> None:
    with pytest.raises(AssertionError, match="--"):
        named_options.check(words.split(), text, "" if text.startswith("{") else f"kstate: {text}")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("migrate /a --to 4.2", "stop the application first or wait for it with --wait SECONDS"),
        ("seed --from /a --app new", "to wait for it, run: kstate migrate /a --to 4.2 --wait 60"),
        ("undo /a", "undid run 0001-migrate (migrate --to 4.3)"),
        (
            "undo /a --wait 60",
            "the cause may be a copy that lost the file times (cp -r, GNU tar without --format=posix)",
        ),
        ("status /a", '{"type": "run", "command": "migrate --to 4.3"}'),
        ("query key /a count k", '{"type": "row", "value": "--no-option"}'),
        ("dump verify /a", "kstate verify-dump /a --subset 1/1"),
        ("wipe --help", "--no-option"),
    ],
)
def test_an_option_of_the_command_in_a_message_is_accepted(words: str, text: str) -> None:
    named_options.check(words.split(), text, "" if text.startswith("{") else f"kstate: {text}")


# --- commands of the documentation ------------------------------------------------------------------------------------

REPOSITORY = ROOT.parent
_BLOCK = re.compile(r"^(`{3,})(\w*)[^\n]*\n(.*?)^\1$|(?:^ {4}[^\n]*\n(?:\n(?= {4}))?)+", re.MULTILINE | re.DOTALL)
_ENDS = ("|", "||", "&&", ";", ">", ">>", "2>")
_USAGE = re.compile(r"\[OPTIONS\]|COMMAND …")
"""A line that says how a command is called, not one that is typed."""
_RESULT = re.compile(r"(?:[a-z]+ed|wrote|prints) ")
"""The rest of a line of output about kstate, such as ``kstate migrated the directory``."""


def documents() -> list[Path]:
    """Everything that people read."""
    return [*sorted(REPOSITORY.glob("*.md")), *sorted(REPOSITORY.glob("docs/**/*.md"))]


def typed_commands(text: str) -> Iterator[list[str]]:
    """The words after ``kstate`` of each command in a block of Markdown, as a shell splits them."""
    for block in _BLOCK.finditer(text):
        for line in re.sub(r"\\\n\s*", " ", block[3] or block[0]).splitlines():
            match = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*kstate (.*)", line)
            if match and not _USAGE.search(line) and not _RESULT.match(match[1]):
                words = shlex.split(match[1], comments=True)
                yield words[: min((words.index(end) for end in _ENDS if end in words), default=len(words))]


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_commands_of_the_documentation(path: Path) -> None:
    """Each can be typed as it stands: its command, its options, and nothing that it needs is missing."""
    for words in typed_commands(path.read_text(encoding="utf-8")):
        if words == ["--version"]:
            continue
        try:
            parse([_DUMMIES.get(word, word) for word in words], whole=True)
        except Exception as error:
            raise AssertionError(f"kstate {shlex.join(words)}: {error}") from error


FORMER = {"query APP STORE key KEY"}
"""What the changelog says that it was like before."""
_SPAN = re.compile(r"(?<!`)`kstate ([^`\n]+)`(?!`)")


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_commands_within_the_sentences_of_the_documentation(path: Path) -> None:
    """In tables too. What is said of a directory has all that it needs; what has none is a name, or a part."""
    for span in _SPAN.findall(path.read_text(encoding="utf-8")):
        words = shlex.split(span)
        if "…" in span or "COMMAND" in words or span in FORMER:
            continue
        try:
            parse([_DUMMIES.get(word, word) for word in words], whole="APP" in words)
        except Exception as error:
            raise AssertionError(f"kstate {span}: {error}") from error


_ALIAS = re.compile(
    r"kstate (?:dump (?:ls|verify)\b|restore [^`\n]*--from-snapshot|verify --snapshot|ls (?:REPO|\S*snapshots))"
)
HISTORY = {"CHANGELOG.md", "docs/development/defects.md"}
"""Pages about earlier versions."""


def test_every_text_has_the_documented_name_of_a_command() -> None:
    """The other names work (:func:`kstate_cli.cli.registry.other_words`), but only one is documented and printed."""
    texts = [path for path in documents() if str(path.relative_to(REPOSITORY)) not in HISTORY]
    texts += [path for path in ROOT.rglob("*.py") if path.name != "registry.py"]
    texts += [path for path in (REPOSITORY / "examples").rglob("*") if path.suffix in (".md", ".yaml", ".toml", ".sh")]
    assert len(texts) > 300
    aliases = {str(path): _ALIAS.findall(path.read_text(encoding="utf-8")) for path in texts}
    assert {path: names for path, names in aliases.items() if names} == {}
    for alias in ("dump ls /a", "dump verify /a", "restore /a --from-snapshot /b", "verify --snapshot /b"):
        assert _ALIAS.search(f"kstate {alias}") and other_words(alias.split()) != alias.split()


def test_the_search_finds_commands_of_the_documentation() -> None:
    count = {
        str(path.relative_to(REPOSITORY)): len([*typed_commands(path.read_text(encoding="utf-8"))])
        for path in documents()
    }
    assert count["README.md"] > 5 and count["docs/tutorials/downgrade.md"] > 5 and count["docs/query.md"] > 3, count
    assert [
        *typed_commands("```console\n$ kstate ls /a | grep x\n```\n\n1. One\n\n       kstate undo /a  # back\n")
    ] == [
        ["ls", "/a"],
        ["undo", "/a"],
    ]


@pytest.mark.parametrize("wrong", ["kstate lst /a", "kstate ls /a --no-such", "kstate migrate /a"])
def test_the_search_misses_no_wrong_command(wrong: str) -> None:
    (words,) = typed_commands(f"    {wrong}\n")
    with pytest.raises(Exception, match=r"no kstate|[Nn]o such|[Mm]issing"):
        parse(words, whole=True)
