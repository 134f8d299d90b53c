"""The age of a store by its SSTs, of a real directory: times in ms, and an identity that any change of a file changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kstate_cli.formats.sst import read_properties
from kstate_cli.offsets.ages import sst_age
from kstate_cli.statedir.model import Store
from kstate_cli.statedir.scan import read_application
from tests.golden import unpack


def stores_of(app: Path) -> dict[str, Store]:
    return {f"{task.name}/{store.name}": store for task in read_application(app).tasks for store in task.stores}


def test_age_and_identity_of_real_stores(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    ages = {name: sst_age(store) for name, store in stores_of(app).items()}
    checked = 0
    for name, store in stores_of(app).items():
        newest = []
        for database in store.databases:
            for family, files in database.live.items():
                for live in files if family != "offsets" else ():
                    with (database.path / live.name).open("rb") as file:
                        newest.append(read_properties(file).newest_data)
        times = [1_000 * seconds for seconds in newest if seconds is not None]
        assert ages[name].at_ms == max(times, default=None)
        checked += bool(times)
    assert checked > 1
    name, store = next((name, store) for name, store in stores_of(app).items() if ages[name].at_ms is not None)
    # An SST whose properties cannot be read has no time, and is a part of the identity nevertheless.
    paths = [
        database.path / live.name
        for database in store.databases
        for family, of_family in database.live.items()
        if family != "offsets"
        for live in of_family
    ]
    paths[0].write_bytes(b"x" * paths[0].stat().st_size)
    age = sst_age(store)
    assert age.identity != ages[name].identity
    if len(paths) == 1:
        assert age.at_ms is None
    for path in paths:
        path.write_bytes(b"x" * path.stat().st_size)
    unreadable = sst_age(store)
    assert unreadable.at_ms is None
    nothing = sst_age(replace(store, databases=()))
    assert len({unreadable.identity, nothing.identity, ages[name].identity}) == 3
