"""The directories that ``kstate check`` and real releases are asked about: a real one each, and the smallest edit."""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rocksdict import Env, Options, Rdict, WriteOptions

from kstate_cli.formats.offsets import OffsetsRecord
from kstate_cli.formats.topic_partition import TopicPartition

from .checking import GLOBAL, SESSIONS, TABLE, WINDOWS, Directory, Edit
from .harness import Guarantee

OLD, NEW = ("3.9.2", "4.2.1"), ("4.3.1", "4.4.0")
STARTED = (*OLD, *NEW)
"""The releases that are started on the directories: a column of docs/check.md each."""


@dataclass(frozen=True)
class Case:
    """One directory, and the releases that are started on it."""

    name: str
    situation: str
    """For the table in the docs."""
    edit: Edit
    code: str | None = None
    """The finding that it must have; None for none."""
    guarantee: Guarantee = "eos"
    releases: tuple[str, ...] = STARTED
    made_by: str | None = None
    """None: by the release that is started."""
    topology: str = "demo"
    started: str | None = None
    """The topology that is started, where it is another one."""
    killed: bool = False
    cut: bool = False
    quick: bool = False
    """Part of every run of the tests."""

    @property
    def varies(self) -> bool:
        """Whether what it begins with is another thing each time."""
        return self.killed


def keep_unchanged(_: Directory) -> None:
    """Nothing."""


def no_offsets(directory: Directory) -> None:
    if directory.in_files:
        (directory.task() / ".checkpoint").unlink()
    else:
        for store in (TABLE, WINDOWS, SESSIONS):
            directory.offset(store, lambda _: None)


def remove_an_offset(directory: Directory) -> None:
    directory.offset(SESSIONS, lambda _: None)


def unknown(directory: Directory) -> None:
    directory.offset(SESSIONS, lambda _: -4)


def behind(directory: Directory) -> None:
    directory.offset(TABLE, lambda offset: offset - 10)


def beyond(directory: Directory) -> None:
    directory.offset(TABLE, lambda offset: offset + 50)


def below(directory: Directory) -> None:
    directory.offset(TABLE, lambda _: 5)


def just_inside(directory: Directory) -> None:
    directory.offset(TABLE, lambda _: 30)


def global_below(directory: Directory) -> None:
    directory.offset(GLOBAL, lambda _: 5, "global")


def global_beyond(directory: Directory) -> None:
    directory.offset(GLOBAL, lambda offset: offset + 50, "global")


def global_unknown(directory: Directory) -> None:
    directory.offset(GLOBAL, lambda _: -4, "global")


def global_foreign_topic(directory: Directory) -> None:
    if directory.in_files:
        directory.write_lines({**directory.lines("global"), TopicPartition("gone", 0): 5}, "global")
    else:
        directory.write_lines({TopicPartition("gone", 0): 5}, "global")


def sentinel(directory: Directory) -> None:
    directory.offset(TABLE, lambda _: -7)


def checkpoint(text: str) -> Edit:
    def edit(directory: Directory) -> None:
        (directory.task() / ".checkpoint").write_text(text, encoding="utf-8")

    return edit


def global_checkpoint(directory: Directory) -> None:
    (directory.task("global") / ".checkpoint").write_text("x\n", encoding="utf-8")


def position(text: str) -> Edit:
    def edit(directory: Directory) -> None:
        (directory.task() / f"{TABLE}.position").write_text(text, encoding="utf-8")

    return edit


def foreign_in_task(directory: Directory) -> None:
    (directory.task() / "README").write_text("kept here", encoding="utf-8")


def only_foreign(directory: Directory) -> None:
    shutil.rmtree(directory.task())
    directory.task().mkdir()
    foreign_in_task(directory)


def foreign_in_segments(directory: Directory) -> None:
    (directory.task() / WINDOWS / f"{WINDOWS}.backup").mkdir()


def short_in_segments(directory: Directory) -> None:
    (directory.task() / WINDOWS / "old").mkdir()


def copied_task(directory: Directory) -> None:
    shutil.copytree(directory.task(), directory.task("7_0"))


def status_open(directory: Directory) -> None:
    directory.record(TABLE, "0_0", lambda results: dataclasses.replace(results, status=1))


def no_status(directory: Directory) -> None:
    directory.record(TABLE, "0_0", lambda results: dataclasses.replace(results, status=None))


def states_nothing(directory: Directory) -> None:
    directory.record(TABLE, "0_0", lambda _: OffsetsRecord({}, None, None))


def global_status_open(directory: Directory) -> None:
    directory.record(GLOBAL, "global", lambda results: dataclasses.replace(results, status=1))


def stale_checkpoint(by: int) -> Edit:
    def edit(directory: Directory) -> None:
        offsets: list[int] = []
        directory.offset(TABLE, lambda offset: offsets.append(offset) or offset)  # type: ignore[func-returns-value]
        directory.write_lines({directory.key(TABLE): offsets[0] + by})

    return edit


def stale_position(directory: Directory) -> None:
    text = f"0\n1\n{directory.base.app.input}-events 0 100000\n"
    (directory.task() / f"{TABLE}.position").write_text(text, encoding="utf-8")


def no_segments(directory: Directory) -> None:
    for segment in directory.databases(WINDOWS):
        shutil.rmtree(segment)


def no_directory(directory: Directory) -> None:
    shutil.rmtree(directory.task() / "rocksdb" / TABLE)


def no_task_contents(directory: Directory) -> None:
    for entry in directory.task().iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != ".checkpoint":
            entry.unlink()


def _a_table(database: Path) -> Path:
    return max(database.glob("*.sst"), key=lambda path: path.stat().st_size)


def _lose_an_sst(database: Path) -> None:
    """One of several of a column family: where all are gone, they may be in another folder."""
    lost = _a_table(database)
    options, families = Options.load_latest(str(database), Env(), True)
    rdict = Rdict(str(database), options, column_families=families)
    writing = WriteOptions()
    writing.disable_wal = True  # type: ignore[method-assign,assignment]
    for name in families:
        family = rdict.get_column_family(name)
        family.set_write_options(writing)
        for key, value in list(family.items()):
            family[key] = value
        family.flush()
        del family
    rdict.close()
    (database / "rocksdict-config.json").unlink(missing_ok=True)
    lost.unlink()


def no_sst(directory: Directory) -> None:
    _lose_an_sst(directory.databases(TABLE)[0])


def cut_sst(directory: Directory) -> None:
    path = _a_table(directory.databases(TABLE)[0])
    os.truncate(path, path.stat().st_size - 100)


def begun_sst(directory: Directory) -> None:
    """Killed amid a flush: the SST has its name and some of its bytes, and the MANIFEST does not name it."""
    database = directory.databases(TABLE)[0]
    (database / "000999.sst").write_bytes(_a_table(database).read_bytes()[:-100])


def no_sst_in_segment(directory: Directory) -> None:
    _lose_an_sst(directory.databases(WINDOWS)[0])


def no_current(directory: Directory) -> None:
    (directory.databases(TABLE)[0] / "CURRENT").unlink()


def no_current_no_log(directory: Directory) -> None:
    no_current(directory)
    for path in directory.databases(TABLE)[0].glob("*.log"):
        path.unlink()


def lock_file(directory: Directory) -> None:
    (directory.task() / "old.lock").touch()


def leave_task(directory: Directory) -> None:
    (directory.task() / ".checkpoint.tmp").write_text("0\n", encoding="utf-8")


def off_grid(directory: Directory) -> None:
    for segment in directory.databases(WINDOWS):
        segment.rename(segment.with_name(f"{segment.name[:-1]}7"))


def move_a_segment_off_grid(directory: Directory) -> None:
    segment = directory.databases(WINDOWS)[0]
    segment.rename(segment.with_name(f"{segment.name[:-1]}7"))


def old_names(directory: Directory) -> None:
    for segment in directory.databases(WINDOWS):
        segment.rename(segment.with_name(segment.name.replace(f"{WINDOWS}.", f"{WINDOWS}:")))


def old_task(directory: Directory) -> None:
    os.utime(directory.task(), (1_700_000_000, 1_700_000_000))
    directory.options += ["--max-age", "1h"]
    directory.conf["state.cleanup.dir.max.age.ms"] = "3600000"


CASES = [
    Case("untouched", "no change", keep_unchanged, quick=True),
    Case("untouched-alos", "no change", keep_unchanged, guarantee="alos"),
    Case("upgraded-from-3.9", "no change", keep_unchanged, releases=("4.2.1", "4.3.1"), made_by="3.9.2"),
    Case("upgraded-from-4.2", "no change", keep_unchanged, releases=NEW, made_by="4.2.1", guarantee="alos"),
    Case("back-from-4.3", "no change", keep_unchanged, "offsets-in-column-family", releases=OLD, made_by="4.3.1", quick=True),
    Case("back-from-4.2", "no change", keep_unchanged, "sst-too-new", releases=("3.9.2",), made_by="4.2.1", quick=True),
    Case("headers", "no change; stores have record headers", keep_unchanged, "headers-store", releases=OLD, made_by="4.3.1",
         topology="headers", started="headers-old"),
    Case("in-memory", "no change; one store is an in-memory store", keep_unchanged, guarantee="alos", topology="kinds"),
    Case("never-written", "no change; the application never wrote to two of the stores", keep_unchanged, topology="sparse"),
    Case("never-written-4.2", "no change; the application never wrote to two of the stores", keep_unchanged, "unknown-offset", topology="sparse",
         releases=NEW, made_by="4.2.1"),
    Case("killed", "no change; the application was killed during its first run", keep_unchanged, killed=True),
    Case("killed-alos", "no change; the application was killed during its first run", keep_unchanged, killed=True, guarantee="alos"),
    Case("no-offsets", "0_0 has no offsets", no_offsets, "no-offsets", quick=True),
    Case("no-offsets-alos", "0_0 has no offsets", no_offsets, "offset-missing", guarantee="alos"),
    Case("one-missing", f"{SESSIONS} has no offset", remove_an_offset, "offset-missing"),
    Case("one-missing-alos", f"{SESSIONS} has no offset", remove_an_offset, "offset-missing", guarantee="alos"),
    Case("unknown", f"{SESSIONS} has the offset -4", unknown, "unknown-offset"),
    Case("unknown-upgrade", f"{SESSIONS} has the offset -4", unknown, "unknown-offset", releases=NEW, made_by="4.2.1"),
    Case("unknown-upgrade-alos", f"{SESSIONS} has the offset -4", unknown, "unknown-offset", releases=NEW, made_by="4.2.1",
         guarantee="alos"),
    Case("behind", f"the offset of {TABLE} was reduced by 10", behind),
    Case("behind-alos", f"the offset of {TABLE} was reduced by 10", behind, guarantee="alos"),
    Case("beyond", f"the offset of {TABLE} was increased by 50", beyond, "beyond-log-end"),
    Case("beyond-alos", f"the offset of {TABLE} was increased by 50", beyond, "beyond-log-end", guarantee="alos"),
    Case("below", f"the offset of {TABLE} is below the log start", below, "below-log-start", cut=True),
    Case("below-alos", f"the offset of {TABLE} is below the log start", below, "below-log-start", cut=True, guarantee="alos"),
    Case("near-start", f"the offset of {TABLE} is just above the log start", just_inside, "near-log-start", cut=True,
         guarantee="alos"),
    Case("global-below", "the offset of the global store is below the log start", global_below, "global-out-of-range", cut=True,
         guarantee="alos"),
    Case("global-beyond", "the offset of the global store was increased by 50", global_beyond, "beyond-log-end"),
    Case("global-unknown", "the global store has the offset -4", global_unknown, "global-unknown-offset"),
    Case("global-topic", "global/.checkpoint contains an unknown topic", global_foreign_topic, "global-unknown-topic",
         releases=OLD),
    Case("global-topic-4.3", "global/.checkpoint contains an unknown topic", global_foreign_topic, releases=NEW),
    Case("global-checkpoint", "global/.checkpoint is malformed", global_checkpoint, "malformed-checkpoint"),
    Case("sentinel", f"{TABLE} has the offset -7", sentinel, "dropped-line", releases=OLD),
    Case("sentinel-4.3", f"{TABLE} has the offset -7", sentinel, "sentinel-offset", releases=NEW),
    Case("checkpoint-empty", ".checkpoint is empty", checkpoint(""), "malformed-checkpoint"),
    Case("checkpoint-version", ".checkpoint has version 1", checkpoint("1\n0\n"), "malformed-checkpoint"),
    Case("checkpoint-line", "a line in .checkpoint has only two fields", checkpoint("0\n1\nx 0\n"), "malformed-checkpoint"),
    Case("checkpoint-count", ".checkpoint contains a wrong count", checkpoint("0\n2\nx 0 5\n"), "malformed-checkpoint"),
    Case("checkpoint-number", ".checkpoint contains text instead of a number", checkpoint("0\nx\n"), "malformed-checkpoint", quick=True),
    Case("position-line", "a line in .position has only two fields", position("0\n1\nx 0\n"), "malformed-position"),
    Case("position-number", ".position contains text instead of a number", position("0\n1\nx 0 y\n"), "malformed-position"),
    Case("foreign-file", "0_0 contains a README file", foreign_in_task, "foreign-in-task"),
    Case("only-foreign", "0_0 contains only a README file", only_foreign, "foreign-in-task"),
    Case("foreign-segment", f"next to the segments is a directory named {WINDOWS}.backup", foreign_in_segments, "foreign-in-segments",
         quick=True),
    Case("short-segment", "next to the segments is a directory named old", short_in_segments, "foreign-in-segments"),
    Case("copied-task", "7_0 is a copy of 0_0", copied_task, "store-in-two-subtopologies"),
    Case("copied-task-no-global", "7_0 is a copy of 0_0; there is no global store", copied_task, "store-in-two-subtopologies",
         topology="sparse", guarantee="alos"),
    Case("status-open", f"{TABLE} has the status open", status_open, "status-open", releases=NEW),
    Case("status-open-alos", f"{TABLE} has the status open", status_open, releases=NEW, guarantee="alos"),
    Case("left-by-a-transactional-run", f"{TABLE} has an offset, but no status", no_status, releases=NEW),
    Case("status-missing", f"{TABLE} has neither a status nor an offset", states_nothing, "status-missing", releases=NEW),
    Case("status-missing-alos", f"{TABLE} has neither a status nor an offset", states_nothing, "offset-missing", releases=NEW,
         guarantee="alos"),
    Case("global-status-open", "the global store has the status open", global_status_open, "global-status-open", releases=NEW,
         quick=True),
    Case("stale-lower", ".checkpoint contains an offset that is 10 lower than the offset in the column family", stale_checkpoint(-10), "stale-checkpoint",
         releases=NEW),
    Case("stale-higher", ".checkpoint contains an offset that is 50 higher than the offset in the column family", stale_checkpoint(50), "stale-checkpoint",
         releases=NEW),
    Case("stale-position", ".position is ahead of the Position in the column family", stale_position, "stale-position", releases=NEW),
    Case("no-segments", f"the segments of {WINDOWS} are missing", no_segments, "offset-without-store", releases=OLD),
    Case("no-segments-4.3", f"the segments of {WINDOWS} are missing", no_segments, "no-segments-yet", releases=NEW),
    Case("no-segments-upgrade", f"the segments of {WINDOWS} are missing", no_segments, "no-segments", releases=NEW,
         made_by="4.2.1"),
    Case("no-directory", f"the directory of {TABLE} is missing", no_directory, "offset-without-store", releases=OLD),
    Case("no-directory-4.3", f"the directory of {TABLE} is missing", no_directory, "store-missing", releases=NEW),
    Case("no-directory-4.3-alos", f"the directory of {TABLE} is missing", no_directory, "store-missing", releases=NEW,
         guarantee="alos"),
    Case("only-checkpoint", "0_0 contains only .checkpoint", no_task_contents, "offset-without-store",
         releases=OLD),
    Case("no-sst", f"an SST of {TABLE} is missing", no_sst, "does-not-open"),
    Case("cut-sst", f"an SST of {TABLE} is truncated", cut_sst, "does-not-open"),
    Case("begun-sst", f"{TABLE} has an incomplete SST", begun_sst, "sst-not-named"),
    Case("no-sst-segment", f"the SST in the first segment of {WINDOWS} is missing", no_sst_in_segment, "segment-does-not-open",
         releases=OLD),
    Case("no-sst-segment-4.3", f"the SST in the first segment of {WINDOWS} is missing", no_sst_in_segment, "does-not-open",
         releases=NEW),
    Case("no-current", f"the CURRENT file of {TABLE} is missing", no_current, "does-not-open"),
    Case("no-current-no-log", f"the CURRENT file and the write-ahead log of {TABLE} are missing", no_current_no_log, "does-not-open"),
    Case("lock-file", "0_0 contains the file old.lock", lock_file, "lock-file-in-task"),
    Case("left-over", "0_0 contains .checkpoint.tmp", leave_task),
    Case("off-grid", f"the times in the names of the {WINDOWS} segments are 7 ms higher", off_grid, "segment-off-grid"),
    Case("one-off-grid", f"the time in the name of the first {WINDOWS} segment is 7 ms higher", move_a_segment_off_grid, "segment-off-grid"),
    Case("old-names", f"the names of the {WINDOWS} segments contain a colon", old_names),
    Case("max-age", "0_0 is older than state.cleanup.dir.max.age.ms", old_task, "older-than-max-age", releases=NEW),
]  # fmt: skip

OF_GLOBAL_OFFSETS = {"global-below", "global-beyond", "global-unknown", "global-topic"}
"""They change the offset of a small global table, which a release has to leave (``forgets_global_tables``)."""
