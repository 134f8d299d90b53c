"""What several tests of directories share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.object_store import ObjectStore

from .repositories import BucketPlace, FolderPlace, Place


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A repository of snapshots that does not exist yet, in a folder and in a bucket."""
    if request.param == "folder":
        return FolderPlace(tmp_path / "repository")
    store: ObjectStore = request.getfixturevalue("objects")
    return BucketPlace(store, "backup/snapshots")
