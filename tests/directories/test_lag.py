"""``lag``: what a store has not applied of its changelog, summed over tasks; what is unknown is never 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import unpack

from .support import kstate, tree_hash
from .test_cold import EXAMPLES

pytestmark = pytest.mark.rotating(4)

DUMP = EXAMPLES / "dump"
GOLDEN = "4.3.1-demo-eos"


def of(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["type"] == kind]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return unpack(GOLDEN, tmp_path)


def test_it_is_the_lag_that_other_commands_state(app: Path) -> None:
    """Of each task by the rows of inspect-position and check, of each store their sum."""
    before = tree_hash(app)
    result = kstate("lag", app, "--dump", DUMP, "-o", "json")
    positions = kstate("inspect-position", app, "--dump", DUMP, "-o", "json").rows
    predicted = of(kstate("check", app, "--for", "4.3", "--dump", DUMP, "-o", "json", status=None).rows, "prediction")
    lags: dict[tuple[str, str], int] = {}
    for row in of(result.rows, "log"):
        place = row["task"], row["store"]
        lags[place] = lags.get(place, 0) + row["lag"]
    assert lags == {(row["task"], row["store"]): row["lag"] for row in positions}
    assert lags == {(row["task"], row["store"]): row["lag"] for row in predicted}
    for row in of(result.rows, "store"):
        assert row["lag"] == sum(lag for (_, store), lag in lags.items() if store == row["store"])
    assert result.summary["lag"] == sum(lags.values()) > 0 and result.summary["unknown"] == 0
    assert tree_hash(app) == before


def test_an_offset_and_the_end_of_its_log_stand_beside_the_lag(app: Path) -> None:
    """A task store states the last record, a global store the next one; markers of transactions are no records."""
    stored = {
        (row["task"], row["store"]): row["changelog"] for row in kstate("inspect-position", app, "-o", "json").rows
    }
    for row in of(kstate("lag", app, "--dump", DUMP, "-o", "json").rows, "log"):
        assert stored[row["task"], row["store"]][row["topic"]][str(row["partition"])] == row["offset"]
        following = row["offset"] + (row["task"] != "global")
        assert row["log_start"] <= following <= row["log_end"] and row["lag"] <= row["log_end"] - following
        assert (row["lag_seconds"] == 0) is (row["lag"] == 0), "records of a dump have an age"


def test_people_get_a_line_for_each_store_and_each_log(app: Path) -> None:
    rows = kstate("lag", app, "--dump", DUMP, "-o", "json").rows
    lines = kstate("lag", app, "--dump", DUMP).out.splitlines()
    assert [(line.split()[0], line.split()[2]) for line in lines[2:-1]] == [
        (row["store"], str(row["lag"])) for row in of(rows, "store")
    ]
    assert lines[-1] == "4 stores: 40 records behind the end of the dump"
    verbose = kstate("lag", app, "--dump", DUMP, "-v").out.splitlines()
    assert [line.split()[:6] for line in verbose[2:-1]] == [
        [row["store"], row["task"], *(str(row[name]) for name in ("partition", "offset", "log_end", "lag"))]
        for row in of(rows, "log")
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("start", "end", "unknown"),
    [(0, 28, None), (28, 28, None), (29, 40, "below-log-start"), (0, 27, "above-log-end"), (0, 40, None)],
)
def test_unknown_lag_is_named_and_never_0(app: Path, start: int, end: int, unknown: str | None, tmp_path: Path) -> None:
    """``latest-order`` of 0_0 states offset 27: 28 is read next. Of no other log the file says anything."""
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"orders-latest-order-changelog": {"0": {"start": start, "end": end}}}))
    selection = ("--offsets", offsets, "--store", "latest-order", "--task", "0_0", "-o", "json")
    result = kstate("lag", app, *selection, status=1 if unknown else 0)
    (log,) = of(result.rows, "log")
    (store,) = of(result.rows, "store")
    assert (log["lag_unknown"], store["unknown_tasks"]) == (unknown, ["0_0"] if unknown else [])
    assert (log["lag"] is None) is (store["lag"] is None) is (result.summary["lag"] is None) is bool(unknown)
    every = kstate("lag", app, "--offsets", offsets, "-o", "json", status=1)
    assert of(every.rows, "log")[-1]["lag_unknown"] == "log-unknown" and every.summary["lag"] is None
    assert (
        "kstate does not know the lag, because no source contains the log: "
        in kstate("lag", app, "--offsets", offsets, status=1).err
    )
    assert kstate("lag", app, "--offsets", offsets, "--warnings-ok").status == 0


def test_a_store_without_an_offset_is_unknown(tmp_path: Path) -> None:
    """Logging disabled, or lost: nothing on disk tells, so no number is made up."""
    app = unpack("4.3.1-kinds-eos", tmp_path)
    result = kstate("lag", app, "--dump", DUMP, "--store", "kv-nolog", "-o", "json", status=1)
    assert {(row["topic"], row["lag_unknown"]) for row in of(result.rows, "log")} == {(None, "no-offset")}


def test_a_limit_is_a_question(app: Path) -> None:
    above = kstate("lag", app, "--dump", DUMP, "--max-lag", "13", status=3)
    assert "more than 13 records behind: visits" in above.err
    kstate("lag", app, "--dump", DUMP, "--max-lag", "14")


def test_without_a_log_there_is_no_lag(app: Path) -> None:
    refusal = kstate("lag", app, status=2)
    assert "--bootstrap-server HOST:PORT, --dump DUMP or --offsets FILE" in refusal.err
    kstate("lag", app, "--dump", DUMP)


def test_metrics_have_each_lag_that_was_measured(app: Path, tmp_path: Path) -> None:
    file = tmp_path / "kstate.prom"
    rows = of(kstate("lag", app, "--dump", DUMP, "--metrics-file", file, "-o", "json").rows, "log")
    text = file.read_text()
    for row in rows:
        if row["task"] != "global":
            labels = f'application="{app.name}",store="{row["store"]}",task="{row["task"]}"'
            assert f"kstate_store_lag_records{{{labels}}} {float(row['lag'])}\n" in text
    kstate("lag", app, "--offsets", _empty(tmp_path), "--metrics-file", file, status=1)
    assert "kstate_store_lag_records{" not in file.read_text(), "unknown: absent, and not 0"


def _empty(folder: Path) -> Path:
    file = folder / "none.json"
    file.write_text("{}")
    return file
