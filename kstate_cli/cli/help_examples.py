"""The examples that ``--help`` shows, by command. Each is parsed by a test as if it were typed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Example:
    """A command line, and its purpose."""

    purpose: str
    line: str
    """The words after ``kstate``, as typed."""

    @property
    def words(self) -> list[str]:
        """Return the line as words."""
        return shlex.split(self.line)


EXAMPLES: Final = {
    "": (
        Example("See what kstate does, on a bundled directory", "demo"),
        Example("List the tasks and stores of an application", "ls /data/app"),
        Example("Predict what the next start of 4.2 does", "check /data/app --for 4.2"),
    ),
    "examples": (
        Example("Manifests, units, a crontab, and a dump to try restore on", "examples --out /tmp/kstate-examples"),
        Example("Print the paths for a script", "examples --out /tmp/kstate-examples -o json"),
    ),
    "ls": (
        Example("Tasks and stores of an application", "ls /data/app"),
        Example("Which stores take the space: the largest last", "ls /data/app --sort size"),
        Example("Which task a changed topology has each store in", "ls /data/app --topology new.txt"),
        Example("A kstate.toml for restore and query, on standard output", "ls /data/app --spec"),
        Example(
            "The same, completed from a dump and a topology",
            "ls /data/app --spec --from-changelog /dump --topology text",
        ),
    ),
    "inspect-position": (
        Example("The offset and the Position of one store", "inspect-position /data/app --store count"),
        Example("The lag behind the broker's logs", "inspect-position /data/app --bootstrap-server broker:9092"),
        Example("Exit 3 unless all stores have read offset 1234", "inspect-position /data/app --at in:0=1234"),
    ),
    "lag": (
        Example("The lag behind the broker's logs", "lag /data/app --bootstrap-server broker:9092"),
        Example("The lag behind the end of a dump, by task", "lag /data/app --dump /dump -v"),
        Example("Exit 3 if a store is more than 1000 behind", "lag app --bootstrap-server broker:9092 --max-lag 1000"),
    ),
    "query": (
        Example(
            "One key of a store with text keys and long values",
            "query key /data/app count alice --key-serde string --value-serde long",
        ),
        Example(
            "A range of keys as JSON",
            "query range /data/app count --from a --to b -o json",
        ),
        Example("Any store, as it is stored in RocksDB", "query raw-scan /data/app count --limit 10"),
    ),
    "query key": (
        Example(
            "The count of alice",
            "query key /data/app count alice --key-serde string --value-serde long",
        ),
        Example(
            "With its timestamp, and the Position of the answer",
            "query key /data/app count alice --timestamps --explain",
        ),
    ),
    "query range": (
        Example("The first ten rows", "query range /data/app count --limit 10"),
        Example(
            "Keys from a to b as CSV",
            "query range /data/app count --from a --to b --key-serde string -o csv",
        ),
    ),
    "query raw-key": (
        Example("A row by its text", "query raw-key /data/app count alice --key-serde string"),
        Example(
            "A row by its bytes, its value as hexadecimal digits",
            "query raw-key /data/app count 2a --key-serde hex --value-serde hex",
        ),
    ),
    "query raw-scan": (
        Example("The first ten rows of any store", "query raw-scan /data/app count --limit 10"),
        Example("All rows, for other programs", "query raw-scan /data/app count -o json"),
    ),
    "query window-key": (
        Example("All windows of alice", "query window-key /data/app visits alice --key-serde string"),
        Example(
            "Windows that started on 1 May or later",
            "query window-key /data/app visits alice --from 2024-05-01",
        ),
    ),
    "query window-range": (
        Example("All windows of all keys", "query window-range /data/app visits --limit 10"),
        Example(
            "Windows that started on one day",
            "query window-range /data/app visits --from 2024-05-01 --to 2024-05-02",
        ),
    ),
    "query session": (
        Example("The sessions of alice", "query session /data/app visits alice --key-serde string"),
        Example("As JSON", "query session /data/app visits alice --key-serde string -o json"),
    ),
    "query versioned": (
        Example("The latest version", "query versioned /data/app prices gold --key-serde string"),
        Example(
            "The version that was valid at a time",
            "query versioned /data/app prices gold --as-of 2024-05-01",
        ),
    ),
    "query multi-versioned": (
        Example("All versions, newest first", "query multi-versioned /data/app prices gold --key-serde string"),
        Example(
            "Oldest first",
            "query multi-versioned /data/app prices gold --key-serde string --asc",
        ),
    ),
    "export": (
        Example("A whole store as Parquet", "export /data/app count --out /backup/count"),
        Example(
            "With values decoded as numbers",
            "export /data/app count --out out --value-serde long",
        ),
    ),
    "diff": (
        Example("A restored directory and its original", "diff /data/app /backup/app"),
        Example("One store, rows only", "diff /data/app /backup/app --store count --ignore-timestamps"),
    ),
    "check": (
        Example("Does 4.2 start on this directory", "check /data/app --for 4.2"),
        Example(
            "How many records it restores, by the broker's logs",
            "check /data/app --for 4.3 --bootstrap-server broker:9092",
        ),
        Example(
            "What the start of a changed topology does",
            "check /data/app --for 4.3 --topology new.txt --from old.txt",
        ),
    ),
    "fleet": (
        Example("Compare three hosts by their output of ls -o json", "fleet web-1.json web-2.json web-3.json"),
        Example(
            "With logs and group members, as an HTML page",
            "fleet web-1.json --bootstrap-server broker:9092 --html fleet.html",
        ),
    ),
    "verify": (
        Example("Read everything once", "verify /data/app"),
        Example("A seventh each night, for cron", "verify /data/app --subset 1/7 --quiet"),
    ),
    "migrate": (
        Example("Print the plan", "migrate /data/app --to 4.2 --dry-run"),
        Example("Go back to 4.2 (undoable)", "migrate /data/app --to 4.2"),
    ),
    "rehome": (
        Example(
            "Move every store to its task in the new topology", "rehome /data/app --topology new.txt --from old.txt"
        ),
        Example(
            "Check group, repartition topics and partitions too",
            "rehome /data/app --topology new.txt --bootstrap-server broker:9092",
        ),
        Example(
            "Complete tasks of two hosts from a dump",
            "rehome /app --topology b --from a --from-changelog /dump --for 4.3",
        ),
        Example("Without texts: 6 is now 4; 4 and 5 are gone", "rehome /data/app --map 6=4 --map 4=gone --map 5=gone"),
    ),
    "wipe": (
        Example("One store of one task, to be rebuilt", "wipe /data/app --task 0_1 --store count"),
        Example("DELETES all stores at once, without undo", "wipe /data/app --all --purge --yes"),
    ),
    "dump": (
        Example("Every night: add new records", "dump --bootstrap-server broker:9092 --app orders --out /dump/orders"),
        Example(
            "Print how much it would read",
            "dump --bootstrap-server broker:9092 --app orders --out out --dry-run",
        ),
    ),
    "ls-dump": (
        Example("Offsets, gaps, age and health of each partition", "ls-dump /backup/orders"),
        Example("For scripts", "ls-dump /backup/orders -o json"),
    ),
    "verify-dump": (
        Example("Read every file once", "verify-dump /dump/orders"),
        Example("A seventh each night, for cron", "verify-dump /dump/orders --subset 1/7 --quiet"),
    ),
    "restore": (
        Example("Print the plan", "restore /data/app --from-changelog /dump/app --for 4.3 --dry-run"),
        Example("On a Spark cluster", "restore app --from-changelog dump --for 4.3 --master spark://m:7077"),
    ),
    "snapshot": (
        Example("All cleanly closed tasks, into a folder", "snapshot /data/app --out /backup/snapshots"),
        Example("How much would be new", "snapshot /data/app --out /backup/snapshots --dry-run"),
    ),
    "restore-snapshot": (
        Example("A lost directory: see the plan", "restore-snapshot /data/app --from-snapshot /backup/app --dry-run"),
        Example("The first of two empty hosts", "restore-snapshot /data/app --from-snapshot /backup/app --share 1/2"),
    ),
    "ls-snapshots": (
        Example("All snapshots", "ls-snapshots /backup/snapshots"),
        Example("The stores of some snapshot", "ls-snapshots /backup/snapshots --generation 20261126T1200"),
    ),
    "verify-snapshots": (
        Example("Read every file once", "verify-snapshots /backup/snapshots"),
        Example("A seventh each night, for cron", "verify-snapshots /backup/snapshots --subset 1/7 --quiet"),
    ),
    "start-barrier": (
        Example("The second of three hosts, in a folder that all reach", "start-barrier /backup/app --hosts 3"),
        Example("In an init container, with the pod's name", "start-barrier s3://bucket/app --hosts 3 --host app-1"),
    ),
    "maintain": (
        Example("Print the commands that are due", "maintain --config /etc/kstate/orders.toml --dry-run"),
        Example("From cron, every hour", "maintain --config /etc/kstate/orders.toml --quiet -o json"),
    ),
    "undo": (
        Example("Undo the newest change", "undo /data/app"),
        Example("Undo even if the application has run since", "undo /data/app --discard-newer"),
    ),
    "status": (
        Example("Runs and their backups", "status /data/app"),
        Example("For programs", "status /data/app -o json"),
    ),
    "clean": (
        Example("Print what would be deleted", "clean /data/app --dry-run"),
        Example("DELETES backups that are a week old or older", "clean /data/app --older-than 7d"),
    ),
    "explain": (
        Example("A finding of check", "explain status-open"),
        Example("An exit code", "explain exit:7"),
    ),
    "warm-up": (
        Example("Once, as the user that runs restore", "warm-up"),
        Example("When you build an image, as root", "warm-up --for-all"),
    ),
    "demo": (
        Example("Downgrade 4.3 to 4.2, and undo it", "demo"),
        Example("Print the plan for a directory of yours", "migrate /data/app --to 4.2 --dry-run"),
    ),
}
"""In the order of the list of commands. The purpose of a deletion begins with DELETES."""
