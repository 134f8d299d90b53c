"""The findings of ``kstate verify``, one entry for each code, and the code of each error of RocksDB."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.codes import SILENT, Code
from kstate_cli.host import CHECK_THE_DISK
from kstate_cli.rocks.errors import RocksCode, RocksError
from kstate_cli.rocks.files import is_never_changed
from kstate_cli.statedir.problems import Place
from kstate_cli.texts import command


class VerifyLevel(Enum):
    """How severe a finding is."""

    DAMAGE = "damage"
    """Bytes or files are wrong."""
    UNKNOWN = "unknown"
    """Verify could not judge the file."""


@dataclass(frozen=True, slots=True)
class VerifyCode(Code):
    """One kind of finding."""

    level: VerifyLevel = field(compare=False, kw_only=True)
    advice: str = field(default="", compare=False, kw_only=True)
    """What to do if nothing is damaged and this code remains."""


_SILENT_ROCKSDB: Final = "RocksDB reads a block and its checksum only when it needs a row in the block ({page})"
_REBUILD: Final = (
    (
        "to restore the store from a dump: "
        f"{command('restore', 'APP', option.FROM_CHANGELOG, 'DUMP', option.FOR, 'RELEASE', option.REBUILD)}"
    ),
    (
        "to let the application restore the store when it starts: "
        f"{command('wipe', 'APP', option.TASK, 'TASK', option.STORE, 'STORE')}"
    ),
    "check the disk before you use it again, because it has changed the contents of a file",
)
_CHECK: Final = f"to predict the next start of the application: {command('check', 'APP', option.FOR, 'RELEASE')}"

CORRUPT: Final = VerifyCode(
    "corrupt",
    "A file's contents are damaged: a checksum, a size, the order of keys or a count is wrong",
    level=VerifyLevel.DAMAGE,
    more=(
        "Streams does not notice the damage until it reads the block. The query or the whole stream thread then fails."
    ),
    log=(log.CHECKSUM,),
    source=_SILENT_ROCKSDB,
    page="rocksdb.md",
    do=_REBUILD,
)
TRUNCATED: Final = VerifyCode(
    "truncated",
    "The end of a file is missing",
    level=VerifyLevel.DAMAGE,
    more="The disk was full, a copy was incomplete, or the host lost power.",
    log=(log.STORE_NOT_OPENED, log.OTHER_SIZE),
    source="RocksDB does not open a database if an SST's size differs from the MANIFEST ({page})",
    page="rocksdb.md",
    do=_REBUILD,
)
MISSING: Final = VerifyCode(
    "missing",
    "A file is missing, although another file refers to it",
    level=VerifyLevel.DAMAGE,
    more=(
        "If the database is a whole store, startup fails. If the database is a segment, releases up to 4.2 silently "
        "open the store without it."
    ),
    log=(log.STORE_NOT_OPENED, log.NOT_FOUND),
    source="RocksDB does not open a database without the files in its MANIFEST ({page})",
    page="start.md#going-down",
    do=_REBUILD,
)
UNDECODABLE: Final = VerifyCode(
    "undecodable",
    "RocksDB can read the row, but a store of this kind would never write it",
    level=VerifyLevel.DAMAGE,
    more="Another program wrote the row, a custom store has the same name, or kstate inferred the wrong kind.",
    log=SILENT,
    source="a store's kind determines the format of its rows ({page})",
    page="stores.md",
    do=(
        (
            "if ls marks the store's kind with ?, specify the kind in kstate.toml and read the rows with it: "
            f"{command('query', 'raw-scan', 'APP', 'STORE', option.SPEC, 'kstate.toml')}"
        ),
        *_REBUILD[:2],
    ),
)
TOO_NEW: Final = VerifyCode(
    "too-new",
    "The file was written by a RocksDB version that kstate does not support",
    level=VerifyLevel.UNKNOWN,
    more="The file may be correct, but kstate cannot check it.",
    log=(log.STORE_NOT_OPENED, log.FORMAT_VERSION),
    source="each RocksDB version reads SST formats up to a certain number ({page})",
    page="rocksdb.md#sst-formats",
    do=("verify the store with a version of kstate that supports the release that wrote it", _CHECK),
    advice="use a newer version of kstate, which may support this format",
)
UNREADABLE: Final = VerifyCode(
    "unreadable",
    "This user may not read the file, or the disk reported an error",
    level=VerifyLevel.UNKNOWN,
    more=(
        "kstate could not check the file's contents, which may be intact. Do not wipe the store because of this "
        "finding."
    ),
    do=(CHECK_THE_DISK, "run `kstate verify` as the application's user"),
    advice="run the command as the application's user",
)
NOT_UNDERSTOOD: Final = VerifyCode(
    "not-understood",
    "The directory contains an entry that Streams never writes, or a setting that kstate does not support",
    level=VerifyLevel.UNKNOWN,
    more="Examples are a link, a folder and a custom comparator. kstate does not know how they affect the rows.",
    do=(f"to see which stores exist: {command('ls', 'APP')}", _CHECK),
    advice="do not change stores that kstate does not recognize",
)
NO_SSTS: Final = VerifyCode(
    "no-ssts",
    "A column family has no SST in the database's directory",
    level=VerifyLevel.UNKNOWN,
    more=(
        "The SSTs were removed, or the application keeps them in other folders. RocksDB does not record such "
        "folders in a file."
    ),
    source="RocksDBConfigSetter: setDbPaths, setCfPaths ({page})",
    page="rocksdb.md#options",
    do=(
        "if the application sets db_paths or cf_paths, leave this store unchanged",
        (
            "if the application sets neither, remove the store: "
            f"{command('wipe', 'APP', option.TASK, 'TASK', option.STORE, 'STORE')}"
        ),
    ),
    advice="if the application does not set db_paths or cf_paths, restore the stores that lost their SSTs",
)
IN_USE: Final = VerifyCode(
    "in-use",
    "The running application changed the store faster than kstate could read it",
    level=VerifyLevel.UNKNOWN,
    more="kstate does not know whether the store is damaged.",
    do=("run the command again when the application is less busy, or stop the application first",),
    advice="run the command again, or stop the application first",
)

VERIFY_CODES: Final[dict[str, VerifyCode]] = {
    entry.name: entry for entry in list(vars().values()) if isinstance(entry, VerifyCode)
}
"""Every finding by the name of its code."""

_PLAUSIBLE_FORMAT: Final = 100
"""RocksDB has taken 13 years to come to 7: a greater number than this is a damaged one."""


_BY_ROCKS_CODE: Final = {
    RocksCode.HOST: UNREADABLE,
    RocksCode.UNREADABLE: UNREADABLE,
    RocksCode.MISSING: MISSING,
    RocksCode.TRUNCATED: TRUNCATED,
    RocksCode.TOO_NEW: TOO_NEW,
    RocksCode.REJECTED: NOT_UNDERSTOOD,
    RocksCode.OTHER_FOLDERS: NOT_UNDERSTOOD,
    RocksCode.NO_SSTS: NO_SSTS,
    RocksCode.CORRUPT: CORRUPT,
}


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """One thing that is wrong: its code, where it is, and what is wrong with it."""

    code: VerifyCode
    place: Place
    text: str
    among: tuple[str, ...] = ()
    """The damage is in one of these files of the place; kstate cannot tell in which."""

    @property
    def file(self) -> str:
        """Return the path below the application directory, for people."""
        if self.among:
            return f"{self.place.text}/{','.join(self.among)}"
        return self.place.text

    def in_ssts_of(self, database: Place) -> bool:
        """Return True if it is about the contents of SSTs or blob files of a database."""
        # SSTs and blob files never change, so damage in them is a fact even while the application is
        # running.
        names = self.among or ((self.place.name,) if self.place != database else ())
        return bool(names) and all(map(is_never_changed, names))


def sst_format_code(number: int) -> VerifyCode:
    """The code of an SST whose ``format_version`` is greater than any that is known."""
    return TOO_NEW if number < _PLAUSIBLE_FORMAT else CORRUPT


def code_of(error: RocksError) -> VerifyCode:
    """The code that an error of RocksDB stands for."""
    if error.rocks_message is not None and error.rocks_message.number is not None and error.code is RocksCode.FORMAT:
        return sst_format_code(error.rocks_message.number)
    return _BY_ROCKS_CODE.get(error.code, CORRUPT)
