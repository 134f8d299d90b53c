"""Repositories of snapshots for tests: in a folder, and in a bucket."""

from __future__ import annotations

import shutil
from pathlib import Path

from kstate_cli.snapshot.places import repository_of
from kstate_cli.snapshot.repository import Repository
from tests.object_store import ObjectStore

MARKER = "kstate-snapshots.json"


class Place:
    """A repository, and its files by their paths relative to it."""

    out: str

    def repository(self) -> Repository:
        return repository_of(self.out)

    def paths(self, folder: str = "") -> list[str]:
        raise NotImplementedError

    def read(self, path: str) -> bytes:
        raise NotImplementedError

    def write(self, path: str, data: bytes) -> None:
        raise NotImplementedError

    def remove(self, path: str) -> None:
        raise NotImplementedError

    def copied(self, name: str) -> Place:
        """Copy every file to another place, as any tool would."""
        raise NotImplementedError

    def generations(self) -> list[str]:
        return [path.removeprefix("generations/").removesuffix(".json") for path in self.paths("generations/")]

    def objects(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.paths("objects/")]


class FolderPlace(Place):
    def __init__(self, path: Path) -> None:
        self.path, self.out = path, str(path)

    def paths(self, folder: str = "") -> list[str]:
        files = (str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file())
        return sorted(path for path in files if path.startswith(folder))

    def read(self, path: str) -> bytes:
        return (self.path / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_bytes(data)

    def remove(self, path: str) -> None:
        (self.path / path).unlink()

    def copied(self, name: str) -> FolderPlace:
        return FolderPlace(shutil.copytree(self.path, self.path.parent / name))


class BucketPlace(Place):
    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self.store, self.prefix, self.out = store, f"{prefix}/", store.uri(prefix)

    def paths(self, folder: str = "") -> list[str]:
        return [path for path in self.store.keys(self.prefix) if path.startswith(folder)]

    def read(self, path: str) -> bytes:
        return self.store.content(self.prefix + path)

    def write(self, path: str, data: bytes) -> None:
        self.store.put(self.prefix + path, data)

    def remove(self, path: str) -> None:
        self.store.client.delete_object(Bucket=self.store.bucket, Key=self.prefix + path)

    def copied(self, name: str) -> BucketPlace:
        copy = BucketPlace(self.store, name)
        for path in self.paths():
            copy.write(path, self.read(path))
        return copy


def sync(source: Place, target: Place) -> None:
    """Copy the files that the target lacks, in no order, as ``aws s3 sync`` does."""
    present = set(target.paths())
    for path in source.paths():
        if path not in present:
            target.write(path, source.read(path))
