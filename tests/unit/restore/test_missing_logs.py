"""A log that a broker does not have is not one that nobody was asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.errors import Refused
from kstate_cli.releases import release
from kstate_cli.restore.planning.plan import RestoreOptions
from kstate_cli.restore.planning.planner import plan_restore
from kstate_cli.specification.combine import resolve_spec
from kstate_cli.specification.toml_file import read_draft

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def test_a_changelog_that_the_broker_has_no_more_is_refused(tmp_path: Path) -> None:
    dump = read_dump(str(EXAMPLES / "dump"), complete=False, committed_only=False)
    spec = resolve_spec(None, read_draft(EXAMPLES / "dump.toml"))
    app = tmp_path / "orders"
    here = {
        key: LogFacts(partition.log_start or 0, partition.log_end or 0) for key, partition in dump.partitions.items()
    }
    options = RestoreOptions(release("4.3"), facts=here, from_broker=True)
    assert not plan_restore(app, None, spec, dump, options).change.empty
    lost_key = next(key for key in here if key.topic.endswith("-changelog"))
    remainder = {key: facts for key, facts in here.items() if key != lost_key}
    with pytest.raises(Refused, match="the broker does not have") as refusal:
        plan_restore(app, None, spec, dump, replace(options, facts=remainder))
    assert str(lost_key) in str(refusal.value)
    # A file may speak of some logs only.
    assert not plan_restore(app, None, spec, dump, replace(options, facts=remainder, from_broker=False)).change.empty
