"""
File systems of a test's own, in files that loop devices mount: they can lose their power, or be full.

``FS_IOC_SHUTDOWN`` stops a file system as a power failure does: nothing more reaches the disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SHUTDOWN = 0x8004587D
"""``FS_IOC_SHUTDOWN``, which is ``_IOR('X', 125, __u32)``."""
WITH_JOURNAL, WITHOUT_JOURNAL = 1, 2
"""Whether the journal in memory is still written, without the data that it describes; or nothing at all."""
IMAGE_BYTES = 400 << 20
"""More than the 300 MiB that mkfs.xfs demands."""
_MAKE = {
    "ext4": ("mkfs.ext4", "-F", "-q", "-N", "4096"),
    "xfs": ("mkfs.xfs", "-f", "-q"),
    "btrfs": ("mkfs.btrfs", "-f", "-q"),
}
"""The inodes of ext4 are counted from the start: so few can be used up."""


@dataclasses.dataclass
class Disk:
    """A file system of one's own that can lose its power."""

    image: Path
    folder: Path
    kind: str
    options: str

    def make(self) -> None:
        """Make an empty file system."""
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run([*_MAKE[self.kind], str(self.image)], check=True, capture_output=True)

    def mount(self) -> None:
        """Mount it; the file system replays its journal."""
        self.folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", f"loop,{self.options}", str(self.image), str(self.folder)], check=True)

    def unmount(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", str(self.folder)], check=True)

    def sync(self) -> None:
        """Bring everything to the disk."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.sync()

    def cut(self, mode: int) -> None:
        """Cut the power: from now on nothing reaches the disk."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", mode))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def disk(folder: Path, kind: str, options: str) -> Iterator[Disk]:
    """Make and mount a file system below a folder; unmount it at the end."""
    mounted = Disk(folder / "image", folder / "disk", kind, options)
    mounted.make()
    mounted.mount()
    try:
        yield mounted
    finally:
        mounted.unmount()
        mounted.image.unlink()
