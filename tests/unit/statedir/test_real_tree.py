"""The root of an application directory, as real releases left it."""

from __future__ import annotations

import json
import tarfile
import uuid

import pytest

from tests.golden import FOLDER


@pytest.mark.parametrize("name", ["3.2.3-kinds-eos", "3.9.2-kinds-eos", "4.2.1-sparse-eos", "4.3.1-demo-eos"])
def test_the_root_of_a_real_directory(name: str) -> None:
    """Its mode, and the lock and the process file in it, after the application has ended."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
        assert members[""].isdir() and members[""].mode == 0o750
        assert members[".lock"].isreg() and members[".lock"].size == 0
        process = archive.extractfile(members["kafka-streams-process-metadata"])
        assert process is not None
        document = json.load(process)
    assert document.keys() == {"processId"} and str(uuid.UUID(document["processId"])) == document["processId"]
