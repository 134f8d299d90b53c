"""What the examples of ``kstate maintain`` say is run: the lines of cron, systemd and Kubernetes, and what alerts look at."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kstate_cli.cli.metrics import METRICS
from kstate_cli.maintain.memory import Memory
from kstate_cli.maintain.steps import maintenance_of, tasks
from kstate_cli.specification.tables import STEPS
from kstate_cli.specification.toml_file import read_configuration

from ..directories.support import kstate
from .test_nightly import COMMANDS, KSTATE

pytestmark = pytest.mark.rotating(2)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MONITORING = EXAMPLES / "monitoring"
TUTORIAL = EXAMPLES.parent / "docs" / "tutorials" / "standby.md"
OF_OTHERS = {"node_textfile_mtime_seconds"}
"""node exporter's own."""
CRONJOB = list(yaml.safe_load_all((EXAMPLES / "kubernetes" / "cronjob.yaml").read_text()))
LINES = [command for command in COMMANDS if "kstate maintain" in command]


def _container() -> Any:
    return CRONJOB[1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("line", [*LINES, shlex.join(_container()["command"])])
def test_the_very_line_plans_every_step(tmp_path: Path, line: str) -> None:
    """With the file where it says, and no broker: what would be done."""
    words = shlex.split(line.partition(">")[0])[1:]
    is_kubernetes = "--output=json" in words
    text = CRONJOB[0]["data"]["kstate.toml"] if is_kubernetes else (EXAMPLES / "maintain.toml").read_text()
    file = tmp_path / "kstate.toml"
    file.write_text(text)
    result = kstate(*(word.replace("/etc/kstate/kstate.toml", str(file)) for word in words), "--dry-run")
    planned = [row for row in result.rows if row["type"] == "maintained"]
    assert list(dict.fromkeys(row["step"] for row in planned)) == list(STEPS)
    assert {row["came"] for row in planned} == {"planned"}
    assert {row["subject"] for row in planned} == (
        {None, "standby"} if is_kubernetes else {None, "directory", "standby"}
    )


def test_the_tutorial_is_typed_as_it_stands(tmp_path: Path) -> None:
    """One file, in a folder that was made; cron finds what was installed, and its line runs in cron's environment."""
    text = TUTORIAL.read_text(encoding="utf-8")
    lines = [match.strip() for match in re.findall(r"^ {4}(\S.*)$", text, flags=re.MULTILINE)]
    (part,) = [line.split()[2:] for line in lines if line.startswith("mkdir -p /backup ")]
    (file,) = {words[words.index("--config") + 1] for words in map(str.split, lines) if "--config" in words}
    (venv,) = [line.removeprefix("python3 -m venv ") for line in lines if "-m venv" in line]
    (path,) = [line.removeprefix("PATH=").split(":") for line in lines if line.startswith("PATH=") and "$" not in line]
    assert path == [f"{venv}/bin", "/usr/bin", "/bin"] and f"PATH={venv}/bin:$PATH" in lines
    assert any(line.startswith(f"{venv}/bin/pip install ") for line in lines)
    (line,) = [line.split(maxsplit=6)[6] for line in lines if line.startswith("47 ")]
    command, log = line.split(" >")
    (toml,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    logs = [log, file, *re.findall(r'(?:_file|standby|dump) = "(.*?)"', toml)]
    assert len(logs) == 6 and {str(Path(element).parent) for element in logs} == {*part}

    spec = (EXAMPLES / "dump.toml").read_text(encoding="utf-8")
    (tmp_path / "kstate.toml").write_text(f"{spec}\n{toml}".replace('"/', f'"{tmp_path}/'))
    for entry in part:
        (tmp_path / entry.lstrip("/")).mkdir(parents=True)
    process = subprocess.run(
        ["/bin/sh", "-c", f"{command.replace(file, str(tmp_path / 'kstate.toml'))} >{tmp_path}{log}"],
        env={"PATH": ":".join([str(KSTATE.parent), *path[1:]])},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / log.lstrip("/")).read_text(encoding="utf-8").splitlines()]
    came = {row["step"]: row["came"] for row in rows if row["type"] == "maintained"}
    others = [step for step in [*STEPS][2:] if step not in ("snapshot", "prune-snapshots")]
    assert came == {"dump": "failed", "restore": "failed", **dict.fromkeys(others, "not-there")}, "no such broker"
    assert process.returncode == rows[-1]["exit"] != 0
    assert process.stdout == "" and "dump exited with code" in process.stderr, "cron mails what is here"


def test_unit_and_job_may_write_to_every_place_of_the_file() -> None:
    unit = (EXAMPLES / "systemd" / "kstate-maintain.service").read_text()
    writable = re.search(r"^ReadWritePaths=(.*)$", unit, flags=re.MULTILINE)
    assert writable is not None
    _all_below(EXAMPLES / "maintain.toml", [Path(part) for part in writable[1].split()])


def test_every_place_of_the_job_is_mounted(tmp_path: Path) -> None:
    file = tmp_path / "kstate.toml"
    file.write_text(CRONJOB[0]["data"]["kstate.toml"])
    mounts = [entry["mountPath"] for entry in _container()["volumeMounts"]]
    assert "/etc/kstate" in mounts
    _all_below(file, [Path("/data")])
    assert "/data" in mounts and "/etc/kafka" in mounts


def _all_below(file: Path, places: list[Path]) -> None:
    configuration = read_configuration(file)
    maintenance = maintenance_of(configuration)
    memory_files = [
        maintenance.memory_file,
        maintenance.standby,
        maintenance.metrics_file,
        Path(configuration.defaults["dump"]),
    ]
    for path in memory_files:
        assert path is not None and any(path.is_relative_to(place) for place in places), path
    longest = max(step.timeout.total_seconds() for step in maintenance.steps)
    assert longest < 24 * 3600
    assert len(tasks(configuration, maintenance, Memory(), 0)) >= len(STEPS)


# --- what is looked at ------------------------------------------------------------------------------------------------

RULES = [
    rule for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
]


def _names(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:kstate|node)_[a-z_]+\b", re.sub(r'"[^"]*"', "", expression)))


def test_every_metric_of_alerts_and_dashboard_is_written() -> None:
    """In alerts, in their tests, and on the dashboard; with labels that it has."""
    for expression in [*EXPRESSIONS, *re.findall(r"series: '(.*?)'", (MONITORING / "alerts_test.yaml").read_text())]:
        names = _names(expression)
        assert names and names <= {*METRICS, *OF_OTHERS}, expression
        for name, labels in re.findall(r"(kstate_[a-z_]+)\{([^}]*)\}", expression):
            matches = set(re.findall(r"([a-z_]+)=", labels)) - {"instance"}
            assert matches <= set(METRICS[name][1]), expression
        for group in re.findall(r"by \(([^)]*)\)", expression):
            parts = {part.strip() for part in group.split(",")} - {"instance"}
            assert all(parts <= set(METRICS[name][1]) for name in names & METRICS.keys()), expression


def test_every_metric_of_maintain_is_shown() -> None:
    from kstate_cli.maintain.measures import MEASURES

    union = set().union(*map(_names, EXPRESSIONS))
    assert set(MEASURES) - union == {
        "kstate_step_last_run_timestamp_seconds",  # a step that is not due has none that is new
        "kstate_dump_headroom_seconds",  # of the moment of writing: the other one stays right
        "kstate_kept_bytes",  # the old name of kstate_backup_bytes
        "kstate_verify_circle_timestamp_seconds",  # the old name of kstate_verified_completely_timestamp_seconds
    }


def test_every_alert_has_a_case_that_fires_and_a_case_that_stays_silent() -> None:
    cases: dict[str, set[bool]] = {}
    for test in yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]:
        for case in test["alert_rule_test"]:
            cases.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert cases.keys() == {rule["alert"] for rule in RULES}
    assert all(True in fires for fires in cases.values())


def test_promtool_says_so_too() -> None:
    assert shutil.which("promtool"), "promtool is not installed: scripts/test.sh fetches it (Debian: prometheus)"
    for words in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")):
        process = subprocess.run(
            ["promtool", *words], cwd=MONITORING, capture_output=True, text=True, timeout=300, check=False
        )
        assert process.returncode == 0, process.stdout + process.stderr
