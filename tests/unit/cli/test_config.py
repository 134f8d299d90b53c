"""``--config``: command line, then environment, then the file; and what a file may not say that a variable names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstate_cli.cli.environment import _INSTEAD, VARIABLE, _filled, is_setting, name_of, options_of
from kstate_cli.cli.registry import COMMANDS
from kstate_cli.errors import UsageError
from kstate_cli.rows.serdes import serde
from kstate_cli.specification.tables import APP, DEFAULTS, DUMP, MAINTAIN, SPARK, STEPS, keys_of
from kstate_cli.specification.toml_file import parse_draft
from tests.command_line import program

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "maintain.toml"
ROOT: Any = program()
WITHOUT = {"start-barrier", "explain", "warm-up", "demo", "examples", "ls-snapshots", "prune-snapshots"}
"""Commands that the file has nothing to say to."""


def _below(path: str, command: Any) -> list[tuple[str, Any]]:
    return [(path, command), *(pair for name, inner in getattr(command, "commands", {}).items() for pair in _below(f"{path} {name}", inner))]  # fmt: skip


ALL = dict(pair for name in COMMANDS for pair in _below(name, ROOT.commands[name]))


def _parse(path: str, *words: str) -> dict[str, Any]:
    """What the command would be called with."""
    command = ALL[path]
    context = command.make_context(path, list(words))
    return dict(context.params)


def _file(folder: Path, text: str) -> str:
    path = folder / "kstate.toml"
    path.write_text(f"format = 1\n{text}", encoding="utf-8")
    return str(path)


def test_every_command_takes_it() -> None:
    """But those that it has nothing to say to, and groups, whose commands take it."""
    have = {path for path, command in ALL.items() if any(p.name == "config" for p in command.params)}
    assert {path.split()[0] for path in ALL} - {path.split()[0] for path in have} == WITHOUT
    for path in have - {"maintain"}:
        assert list(_filled(ALL[path], path)), path


def test_every_key_stands_for_something() -> None:
    """No key is a slip of the pen: each option that it names is one of a command, and every option that it may fill."""
    names = {
        f"{path} --{name_of(option)}" for path in ALL for words, option in options_of(ALL[path], path) if words == path
    }
    alone = {name.split(" --")[1] for name in names}
    for key, rule in DEFAULTS.items():
        for option in rule.fills:
            assert option in (APP, DUMP) or (option in names if " --" in option else option in alone), (key, option)
    for name, others in _INSTEAD.items():
        assert {name, *others} <= {f"--{name_}" for name_ in alone}


VALUES = {"workers": 3, "engine": "local", "guarantee": "at_least_once", "dsl_store_format": "HEADERS"}
FILLED = [
    (path, key, option.name)
    for path, command in ALL.items()
    for key, option in _filled(command, path)
    if key in DEFAULTS
]


RELEASES = {("check", "release"), ("migrate", "to"), ("restore", "release_name")}
"""Options of which a command takes one, or the jar that says it."""


@pytest.mark.parametrize(("path", "key", "name"), FILLED)
def test_each_key_of_each_command(tmp_path: Path, path: str, key: str, name: str) -> None:
    """With everything else on the command line, the file alone says it."""
    value = VALUES.get(key, "x1")
    output = value if isinstance(value, int) else f'"{value}"'
    file = _file(tmp_path, f"[defaults]\n{key} = {output}\n")
    command = ALL[path]
    words: list[str] = []
    for parameter in command.params:
        if parameter.name != name and (parameter.required or (path, parameter.name) in RELEASES):
            words += [f"--{name_of(parameter)}", "1"] if parameter.param_type_name == "option" else ["/a"]
    result = _parse(path, *words, "--config", file)[name]
    expected = tmp_path / "x1" if DEFAULTS[key].is_path else value
    assert str(getattr(result, "value", result)) == str(expected)


def test_command_line_then_environment_then_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(tmp_path, '[defaults]\ndirectory = "here"\nrelease = "4.3"\nbootstrap_server = "file:1"\n')
    words = ("--config", file)
    assert _parse("check", *words)["bootstrap_server"] == "file:1"
    monkeypatch.setenv("KSTATE_CHECK_BOOTSTRAP_SERVER", "variable:1")
    assert _parse("check", *words)["bootstrap_server"] == "variable:1"
    assert _parse("check", *words, "--bootstrap-server", "typed:1")["bootstrap_server"] == "typed:1"
    assert str(_parse("check", "/typed", *words)["app"]) == "/typed"


def test_file_named_by_the_variable_gives_settings_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a command touches, and nothing that is done, comes from where nobody sees it."""
    monkeypatch.setenv(
        VARIABLE, _file(tmp_path, '[defaults]\ndirectory = "here"\nrelease = "4.3"\nbootstrap_server = "f:1"\n')
    )
    parsed = _parse("check", "/typed", "--for", "4.2")
    assert (str(parsed["app"]), parsed["release"], parsed["bootstrap_server"]) == ("/typed", "4.2", "f:1")
    with_directory = [path for path, key, _ in FILLED if key == "directory"]
    assert {"wipe", "clean", "undo", "migrate", "restore"} <= set(with_directory)
    for path in with_directory:
        required = [
            parameter for parameter in ALL[path].params if parameter.required and parameter.param_type_name == "option"
        ]
        with pytest.raises(Exception, match="Missing parameter: app"):
            _parse(path, *(word for option in required for word in (f"--{name_of(option)}", "4.2")))


@pytest.mark.parametrize(("path", "key", "name"), FILLED)
def test_of_each_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, key: str, name: str) -> None:
    """A file that a variable names fills exactly what has a variable of its own."""
    value = VALUES.get(key, "x1")
    monkeypatch.setenv(
        VARIABLE, _file(tmp_path, f"[defaults]\n{key} = {value if isinstance(value, int) else repr(value)}\n")
    )
    command = ALL[path]
    context = command.context_class(command)
    (config,) = [parameter for parameter in command.params if parameter.name == "config"]
    config.callback(context, config, None)
    (parameter_,) = [parameter for parameter in command.params if parameter.name == name]
    assert (context.lookup_default(name) is not None) is (
        parameter_.param_type_name == "option" and is_setting(parameter_)
    )


def test_a_variable_that_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match=r"none\.toml"):
        _parse("check", "/typed", "--for", "4.2")


def test_typed_options_replace_contradicting_settings(tmp_path: Path) -> None:
    stores = '[stores.s]\nkind = "key-value"\nsubtopology = 0\npartitions = 1\n'
    file = _file(
        tmp_path, f'application = "a"\n[defaults]\ndump = "d"\nbootstrap_server = "b:1"\nkafka_settings = "k"\n{stores}'
    )
    dump = _parse("dump", "--config", file)
    assert (str(dump["spec"]), dump["app"]) == (file, None)
    for words in (("--app", "x"), ("--topic", "t")):
        assert _parse("dump", "--config", file, *words)["spec"] is None
    check = _parse("check", "/a", "--for", "4.3", "--config", file, "--offsets", "o.json")
    assert check["bootstrap_server"] is None and check["kafka_settings"] is None
    alone = _file(tmp_path, 'application = "a"\n[defaults]\ndump = "d"\nbootstrap_server = "b:1"\n')
    dump = _parse("dump", "--config", alone)
    assert (dump["spec"], dump["app"]) == (None, "a")


def test_the_spark_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives its master and settings to every command that takes them; --engine local ignores them."""
    table = '[spark]\nmaster = "spark://m:1"\nconf = { "spark.a" = "b", "spark.c" = "d" }\n'
    file = _file(tmp_path, table)
    words = {
        "dump": ("--bootstrap-server", "b:1", "--out", "o", "--topic", "t"),
        "restore": ("/a", "--from-changelog", "d", "--for", "4.3"),
        "rehome": ("/a",),
    }
    for path, word in words.items():
        parsed = _parse(path, *word, "--config", file)
        assert (parsed["master"], parsed["conf"]) == ("spark://m:1", ["spark.a=b", "spark.c=d"])
        assert _parse(path, *word, "--config", file, "--master", "typed")["master"] == "typed"
        alone = _parse(path, *word, "--config", file, "--engine", "local")
        assert not alone["master"] and not alone["conf"]
        monkeypatch.setenv(f"KSTATE_{path.upper()}_ENGINE", "local")
        assert _parse(path, *word, "--config", file)["master"] is None
        monkeypatch.delenv(f"KSTATE_{path.upper()}_ENGINE")
    assert {path for path, command in ALL.items() for key, _ in _filled(command, path) if key.startswith("spark.")} == {
        *words
    }


HOSTILE = ("", " ", "-x", "--purge", "a\\nb", "\\u001b[2J", "\\u202e")


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("key", [key for key in DEFAULTS if key != "workers"])
def test_hostile_values_are_refused(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=r"is invalid") as refusal:
        parse_draft(f'format = 1\n[defaults]\n{key} = "{value}"\n')
    assert refusal.value.hint is not None and refusal.value.hint.startswith(f"{key} must be ")
    assert refusal.value.message.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "defaults = 1",
        "maintain = 1",
        "spark = 1",
        "[spark]\nurl = 'x'",
        "[spark]\nmaster = ''",
        "[spark]\nconf = 'spark.ui.enabled=true'",
        "[spark]\nconf = { 'a=b' = 'c' }",
        "[spark]\nconf = { 'a' = 1 }",
        "[spark]\nmaster = 'x'\n[defaults]\nmaster = 'x'",
        "[defaults]\ndirektory = 'x'",
        "[defaults]\nworkers = true",
        "[defaults]\ndirectory = 7",
        "[defaults]\ndirectory = '~/x'",
        "[defaults]\ndump = '$HOME/x'",
        "[maintain]\nmemory = 'x'",
        "[maintain.dumps]",
        "[maintain]\ndump = true",
        "[maintain.dump]\nparts = 3",
        "[maintain.dump]\nkeep = 0",
        "[maintain.dump]\nevery = 60",
        "[maintain.dump]\nevery = '0s'",
        "[maintain.dump]\ntimeout = '1y'",
        "[maintain.verify]\nparts = 0",
        "[maintain.clean]\nolder_than = 'x'",
    ],
)
def test_a_slip_of_the_pen_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_draft(f"format = 1\n{text}\n", "some.toml")
    assert refusal.value.message.startswith("some.toml: ") and refusal.value.hint


def test_the_example_has_every_key() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    parse_draft(text)
    for key in ("master", "staging", "memory", "conf", "[spark]"):
        text = text.replace(f"# {key}", key)
    parse_draft(text)
    for key in (*DEFAULTS, *SPARK, *MAINTAIN, *(key for step in STEPS for key in keys_of(step))):
        assert f"{key} = " in text, key
    assert all(f"[maintain.{step}]" in text for step in STEPS)


def test_serdes_of_the_store_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the store that the command line names, below variables; another store has the defaults."""
    text = '[serdes.count]\nkey = "string"\nvalue = "long"\n[serdes."a.b"]\nkey = "uuid"\n'
    words = ("--config", _file(tmp_path, text))
    for path, more in (("query range", ()), ("query key", ("k",)), ("export", ("--out", "o"))):
        serdes = {
            store: tuple(_parse(path, "/a", store, *more, *words)[name] for name in ("key_serde", "value_serde"))
            for store in ("count", "a.b", "none")
        }
        assert serdes == {"count": ("string", "long"), "a.b": ("uuid", "bytes"), "none": ("bytes", "bytes")}
    assert _parse("query range", "/a", "count", "--key-serde", "hex", *words)["key_serde"] == "hex"
    monkeypatch.setenv("KSTATE_QUERY_RANGE_KEY_SERDE", "base64")
    assert _parse("query range", "/a", "count", *words)["key_serde"] == "base64"


@pytest.mark.parametrize(
    "name", ["bytes", "time-windowed:string", "time-windowed:string:60000", "session-windowed:long"]
)
def test_serdes_of_kstate_in_the_file(tmp_path: Path, name: str) -> None:
    words = ("--config", _file(tmp_path, f'[serdes.count]\nkey = "{name}"\n'))
    assert serde(_parse("query range", "/a", "count", *words)["key_serde"]).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[serdes.count]\nkeys = "string"\n', "unknown key 'keys'"),
        ("[serdes.count]\nkey = 1\n", "key = 1 is invalid"),
        ('[serdes.count]\nkey = "module:NAME"\n', "key = 'module:NAME' is invalid"),
        ('[serdes.count]\nvalue = "time-windowed:module:NAME"\n', "value = 'time-windowed:module:NAME' is invalid"),
        ('serdes = "string"\n', "serdes is not a table"),
        ('[serdes]\ncount = "string"\n', "is not a table"),
    ],
)
def test_serdes_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _parse("query range", "/a", "count", "--config", _file(tmp_path, text))
