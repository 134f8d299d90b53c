"""What a restoration and its commands get: the umask of the user, and the access of the stores that are replaced."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from .support import kstate
from .test_cold import RESTORE

ACL = "system.posix_acl_access"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_commands_and_executors_of_the_user_get_the_umask_of_the_user(tmp_path: Path) -> None:
    """A command of --on-state-change, and executors of another user that write below --staging."""
    area, umasks = tmp_path / "new" / "area", tmp_path / "umasks"
    (tmp_path / "state").mkdir()
    before = os.umask(0o002)
    try:
        kstate(
            "restore", tmp_path / "state" / "orders", *RESTORE, "--warnings-ok", "--staging", area,
            "--on-state-change", f"sh -c 'umask >> {umasks}'",
        )  # fmt: skip
    finally:
        os.umask(before)
    assert set(umasks.read_text().split()) == {"0002"}
    assert [_mode(path) for path in (area.parent, area)] == [0o775, 0o775]


def test_a_rebuilt_store_keeps_the_access_of_its_directory(tmp_path: Path) -> None:
    app = tmp_path / "state" / "orders"
    app.parent.mkdir()
    kstate("restore", app, *RESTORE, "--warnings-ok")
    store = min(path.parent for path in app.rglob("CURRENT"))
    store.chmod(0o710)
    set_acl = subprocess.run(["setfacl", "-m", "u:12345:rx", store], capture_output=True, check=False)
    acl = os.getxattr(store, ACL) if set_acl.returncode == 0 else None
    mode = _mode(store)
    inode = store.stat().st_ino
    kstate("restore", app, *RESTORE, "--warnings-ok", "--rebuild")
    assert store.stat().st_ino != inode
    assert _mode(store) == mode
    assert (os.getxattr(store, ACL) if acl is not None else None) == acl
