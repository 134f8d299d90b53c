"""Every name that a command is given, almost right: the answer has the one that is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.cli.app import app
from kstate_cli.cli.ending import report_errors
from kstate_cli.releases import CONFLUENT, RELEASES, confluent, release
from kstate_cli.texts import close_to, did_you_mean
from tests.command_line import commands
from tests.golden import unpack

from .changes import change_commands
from .test_cold import RESTORE
from .warm import Warm

pytestmark = pytest.mark.rotating(6)

NAMES = {
    # What stands for a name: one that is wrong, and the one that is there.
    "STORE": ("vistis", "visits"),
    "TASK": ("0-1", "0_1"),
    "RUN": ("0001-migrat", "0001-migrate"),
    "RELEASE": ("4,2", "4.2"),
    "SERDE": ("String", "string"),
    "APP": ("ordres", "orders"),
}
ELSEWHERE = {
    # Names that cannot be known here, each with the reason.
    ("inspect-position", "TOPIC:PARTITION=OFFSET"): "an answer of its own: not reached, exit 3",
    ("restore", "TOPIC"): "test_a_topic_of_the_dump",
    ("seed", "STORE"): "kstate reads the stores after the broker: tests/interop/test_seed_directories.py",
    ("rehome", "TASK"): "a half task of two topologies: tests/directories/test_rehome_completion.py",
}


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as warm_process:
        yield warm_process


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    """An application that was migrated and can be taken back; nothing here changes it."""
    app = unpack("4.3.1-demo-eos", tmp_path_factory.mktemp("names"))
    assert warm("migrate", app, "--to", "4.2", "-q").status == 0
    assert warm("snapshot", app, "--out", app.parent / "snapshots", "-q").status == 0
    return app


def _line(path: str, app: Path, out: Path) -> tuple[list[object], dict[str, object]]:
    """Arguments and options of a command that would work, but for the one that is wrong."""
    arguments: dict[str, list[object]] = {"export": [app, "visits"], "diff": [app, app], "demo": [], "seed": []}
    needs: dict[str, dict[str, object]] = {
        "export": {"--out": out / "out"},
        "lag": {"--dump": RESTORE[1]},
        "snapshot": {"--out": out / "snapshots"},
        "restore-snapshot": {"--from-snapshot": app.parent / "snapshots", "--dry-run": None},
        "check": {"--for": "4.2"},
        **{name: change.options("visits") for name, change in change_commands().items()},
        "restore": {**dict(zip(RESTORE[::2], RESTORE[1::2], strict=True)), "--dry-run": None},
        "clean": {"--dry-run": None},
        # Nothing listens there: a name that is wrong is named before kstate connects.
        "seed": {"--from": RESTORE[1], "--app": "new", "--bootstrap-server": "127.0.0.1:9", "--out": out},
    }
    if path.startswith("query "):
        return [app, "visits", *(["k1"] if "range" not in path and "scan" not in path else [])], {}
    return arguments.get(path, [app]), needs.get(path, {})


def _named_options() -> list[tuple[str, str, str]]:
    """(command, metavar, option or place) of everything that is a name."""
    results = []
    for path, command in commands():
        place = 0
        for parameter in command.params:
            is_argument = parameter.param_type_name == "argument"
            if parameter.metavar in NAMES and (path, parameter.metavar) not in ELSEWHERE:
                results.append(
                    (path, str(parameter.metavar), str(place) if is_argument else max(parameter.opts, key=len))
                )
            place += is_argument
    return results


def test_commands_with_names() -> None:
    metavars = {metavar for _, metavar, _ in _named_options()}
    assert metavars == set(NAMES)
    assert len(_named_options()) > 40


@pytest.mark.sample(20)
@pytest.mark.parametrize(("path", "metavar", "where"), _named_options())
def test_the_name_that_is_meant(path: str, metavar: str, where: str, orders: Path, tmp_path: Path, warm: Warm) -> None:
    arguments, options = _line(path, orders, tmp_path)
    wrong, right = NAMES[metavar]
    parent: object = orders.parent / wrong if metavar == "APP" else wrong
    if where.isdigit():
        arguments[int(where)] = parent
    else:
        options[where] = parent
    words = [word for name, value in options.items() for word in ([name] if value is None else [name, value])]
    ended = warm(*path.split(), *arguments, *words)
    if path in ("restore", "restore-snapshot") and metavar == "APP":
        return  # one that is lost is made anew, whatever its name
    assert ended.status == 2, ended.report
    assert f"did you mean {right}? " in ended.err, ended.report


def test_a_topic_of_the_dump(tmp_path: Path, warm: Warm) -> None:
    spec = tmp_path / "kstate.toml"
    text = Path(str(RESTORE[3])).read_text(encoding="utf-8")
    assert "orders-visits-changelog" in text
    spec.write_text(text.replace("orders-visits-changelog", "orders-vistis-changelog"), encoding="utf-8")
    words = [entry for entry in RESTORE if entry not in ("--spec", RESTORE[3])]
    lost = tmp_path / "orders"
    texts = ("restore", lost, *words, "--spec", spec, "--dry-run", "--ignore")
    # What the specification calls otherwise is not in the dump, and what the dump has is nowhere in the specification.
    for ignored in ("orders-visits-changelog", "orders-visits-changlog"):
        ended = warm(*texts, ignored)
        assert ended.status == 4 and "did you mean orders-visits-changelog? " in ended.err, ended.report


@pytest.mark.sample(2)
@pytest.mark.parametrize(("path", "option"), [(path, entry) for path, _, entry in _named_options() if _ == "RELEASE"])
def test_a_release_of_confluent(path: str, option: str, orders: Path, tmp_path: Path, warm: Warm) -> None:
    arguments, options = _line(path, orders, tmp_path)
    options[option] = "7.9.1"
    words = [word for name, value in options.items() for word in ([name] if value is None else [name, value])]
    ended = warm(path, *arguments, *words)
    assert ended.status == 2, ended.report
    assert "release '7.9.1' belongs to Confluent Platform and contains Apache Kafka 3.9" in ended.err
    assert "what to do: pass 3.9\n" in ended.err


def test_releases_of_confluent() -> None:
    assert [confluent(text) for text in ("7.9", "v7.9.1", "7.9.1-ccs", "7.9.1-ce", " 8.0 ")] == [*["3.9"] * 4, "4.0"]
    assert [confluent(text) for text in ("7", "7.10", "9.0", "7.9-rc1", "٧.9", "")] == [None] * 6
    assert not set(CONFLUENT) & {release.name for release in RELEASES}, "one number would name two releases"
    with pytest.raises(Exception, match=r"Apache Kafka 3\.0") as caught:
        release("7.0")
    assert "kstate does not know that release. known releases: 3.2" in str(caught.value.hint)  # type: ignore[attr-defined]


def _message(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(BaseException) as caught:
        app(words, standalone_mode=False, prog_name="kstate")
    report_errors(caught.value)
    return capfd.readouterr().err.lower()


@pytest.mark.rotating(5, "sweeps of every command")
def test_commands_and_options(capfd: pytest.CaptureFixture[str]) -> None:
    """Each with two letters changed for one another."""
    names = 0
    for path, command in commands():
        *before, name = path.split()
        if len(name) > 4:
            assert f"did you mean '{name}'" in _message([*before, _swap_letters(name)], capfd), path
        for parameter in command.params:
            option = max(parameter.opts, key=len)
            if parameter.param_type_name == "option" and len(option) > 6:
                text = _message([*path.split(), f"--{_swap_letters(option[2:])}"], capfd)
                assert re.search(rf"did you mean .*{option}\b.*\? to see its options, run kstate", text), text
                names += 1
    assert names > 100


def _swap_letters(name: str) -> str:
    return f"{name[0]}{name[2]}{name[1]}{name[3:]}" if name[1] != name[2] else f"{name[1]}{name[0]}{name[2:]}"


@pytest.mark.parametrize(
    ("name", "facts", "text"),
    [
        ("Count", ["count", "counts"], "count"),
        ("order.count", ["order-count"], "order-count"),
        ("0.1", ["0_0", "0_1"], "0_1"),
        ("5_0", ["0_0", "1_0"], None),
        ("count", [], None),
        ("x" * 100_000, ["y" * 100_000], None),
    ],
)
def test_close(name: str, facts: list[str], text: str | None) -> None:
    assert close_to(name, facts) == text


def test_existing_names_get_no_suggestion() -> None:
    assert did_you_mean(["count", "elsewhere"], {"count", "counts"}) == ""
    assert did_you_mean(["cuont", "conut"], {"count"}) == "did you mean count? "
