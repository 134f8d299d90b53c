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
        Example("See what kstate does with a bundled directory", "demo"),
        Example("List the tasks and stores of an application", "ls /data/app"),
        Example("Predict what Kafka Streams 4.2 does when it starts", "check /data/app --for 4.2"),
    ),
    "examples": (
        Example(
            "Write Kubernetes manifests, systemd units, a crontab and a dump", "examples --out /tmp/kstate-examples"
        ),
        Example("Print the paths as JSON, for a script", "examples --out /tmp/kstate-examples -o json"),
    ),
    "ls": (
        Example("List the tasks and stores of an application", "ls /data/app"),
        Example("Find the stores that use the most disk space", "ls /data/app --sort size"),
        Example("Show the task of each store in a changed topology", "ls /data/app --topology new.txt"),
        Example("Print a kstate.toml for restore and query", "ls /data/app --spec"),
        Example(
            "Print a kstate.toml with values from a dump and a topology",
            "ls /data/app --spec --from-changelog /dump --topology text",
        ),
    ),
    "inspect-position": (
        Example("Show the offset and the Position of one store", "inspect-position /data/app --store count"),
        Example(
            "Show the lag behind the logs of a broker", "inspect-position /data/app --bootstrap-server broker:9092"
        ),
        Example("Exit with 3 unless all stores have read offset 1234", "inspect-position /data/app --at in:0=1234"),
    ),
    "lag": (
        Example("Show the lag behind the logs of a broker", "lag /data/app --bootstrap-server broker:9092"),
        Example("Show the lag behind the end of a dump, for each task", "lag /data/app --dump /dump -v"),
        Example(
            "Exit with 3 if a store is more than 1000 records behind",
            "lag app --bootstrap-server broker:9092 --max-lag 1000",
        ),
    ),
    "query": (
        Example(
            "Look up a key in a store with text keys and long values",
            "query key /data/app count alice --key-serde string --value-serde long",
        ),
        Example(
            "Print a range of keys as JSON",
            "query range /data/app count --from a --to b -o json",
        ),
        Example(
            "Print ten rows of any store in the form that RocksDB stores", "query raw-scan /data/app count --limit 10"
        ),
    ),
    "query key": (
        Example(
            "Look up the count of alice",
            "query key /data/app count alice --key-serde string --value-serde long",
        ),
        Example(
            "Also print its timestamp and the Position of the answer",
            "query key /data/app count alice --timestamps --explain",
        ),
    ),
    "query range": (
        Example("Print the first ten rows", "query range /data/app count --limit 10"),
        Example(
            "Print the keys from a to b as CSV",
            "query range /data/app count --from a --to b --key-serde string -o csv",
        ),
    ),
    "query raw-key": (
        Example("Look up a row by its key as text", "query raw-key /data/app count alice --key-serde string"),
        Example(
            "Look up a row by its key in hexadecimal digits",
            "query raw-key /data/app count 2a --key-serde hex --value-serde hex",
        ),
    ),
    "query raw-scan": (
        Example("Print the first ten rows of any store", "query raw-scan /data/app count --limit 10"),
        Example("Print all rows as JSON, for other programs", "query raw-scan /data/app count -o json"),
    ),
    "query window-key": (
        Example("Print all windows of alice", "query window-key /data/app visits alice --key-serde string"),
        Example(
            "Print the windows that started on 1 May or later",
            "query window-key /data/app visits alice --from 2024-05-01",
        ),
    ),
    "query window-range": (
        Example("Print ten windows of any key", "query window-range /data/app visits --limit 10"),
        Example(
            "Print the windows that started on one day",
            "query window-range /data/app visits --from 2024-05-01 --to 2024-05-02",
        ),
    ),
    "query session": (
        Example("Print the sessions of alice", "query session /data/app visits alice --key-serde string"),
        Example(
            "Print the sessions of alice as JSON", "query session /data/app visits alice --key-serde string -o json"
        ),
    ),
    "query versioned": (
        Example("Print the latest version", "query versioned /data/app prices gold --key-serde string"),
        Example(
            "Print the version that was valid at a time",
            "query versioned /data/app prices gold --as-of 2024-05-01",
        ),
    ),
    "query multi-versioned": (
        Example("Print all versions, newest first", "query multi-versioned /data/app prices gold --key-serde string"),
        Example(
            "Print all versions, oldest first",
            "query multi-versioned /data/app prices gold --key-serde string --asc",
        ),
    ),
    "export": (
        Example("Export a whole store to Parquet", "export /data/app count --out /backup/count"),
        Example(
            "Decode the values as numbers",
            "export /data/app count --out out --value-serde long",
        ),
    ),
    "diff": (
        Example("Compare a restored directory with its original", "diff /data/app /backup/app"),
        Example(
            "Compare the rows of one store, without timestamps",
            "diff /data/app /backup/app --store count --ignore-timestamps",
        ),
    ),
    "check": (
        Example("Predict whether 4.2 will start on this directory", "check /data/app --for 4.2"),
        Example(
            "Also predict how many records it will restore",
            "check /data/app --for 4.3 --bootstrap-server broker:9092",
        ),
        Example(
            "Predict what a changed topology will do",
            "check /data/app --for 4.3 --topology new.txt --from old.txt",
        ),
    ),
    "fleet": (
        Example("Compare the listings of three hosts", "fleet web-1.json web-2.json web-3.json"),
        Example(
            "Add logs and group members, and write an HTML page",
            "fleet web-1.json --bootstrap-server broker:9092 --html fleet.html",
        ),
    ),
    "verify": (
        Example("Read all stores once", "verify /data/app"),
        Example("Read a seventh each night, from cron", "verify /data/app --subset 1/7 --quiet"),
    ),
    "migrate": (
        Example("Print the plan", "migrate /data/app --to 4.2 --dry-run"),
        Example("Downgrade to 4.2", "migrate /data/app --to 4.2"),
    ),
    "rehome": (
        Example(
            "Move every store to its task in the new topology", "rehome /data/app --topology new.txt --from old.txt"
        ),
        Example(
            "Also check group, repartition topics and partitions",
            "rehome /data/app --topology new.txt --bootstrap-server broker:9092",
        ),
        Example(
            "Complete merged tasks of two hosts from a dump",
            "rehome /app --topology b --from a --from-changelog /dump --for 4.3",
        ),
        Example(
            "Map sub-topology 6 to 4, and mark 4 and 5 as gone",
            "rehome /data/app --map 6=4 --map 4=gone --map 5=gone",
        ),
    ),
    "wipe": (
        Example("Rebuild one store of one task", "wipe /data/app --task 0_1 --store count"),
        Example("DELETES all stores at once, without a backup", "wipe /data/app --all --purge --yes"),
    ),
    "dump": (
        Example(
            "Add new records, for example every night",
            "dump --bootstrap-server broker:9092 --app orders --out /dump/orders",
        ),
        Example(
            "Print how much kstate would read",
            "dump --bootstrap-server broker:9092 --app orders --out out --dry-run",
        ),
    ),
    "seed": (
        Example(
            "Print what kstate would write",
            "seed --from /dump --app v2 --bootstrap-server broker:9092 --dry-run",
        ),
        Example("Continue the application as v2", "seed --from /dump --app v2 --bootstrap-server broker:9092"),
        Example(
            "DELETES the topics of that run, if they are unused",
            "seed --undo --delete-topics seed.jsonl --bootstrap-server broker:9092",
        ),
    ),
    "ls-dump": (
        Example("Show offsets, gaps, age and health of each partition", "ls-dump /backup/orders"),
        Example("Print the same as JSON, for scripts", "ls-dump /backup/orders -o json"),
    ),
    "verify-dump": (
        Example("Read all files once", "verify-dump /dump/orders"),
        Example("Read a seventh each night, from cron", "verify-dump /dump/orders --subset 1/7 --quiet"),
    ),
    "restore": (
        Example("Print the plan", "restore /data/app --from-changelog /dump/app --for 4.3 --dry-run"),
        Example("Restore on a Spark cluster", "restore app --from-changelog dump --for 4.3 --master spark://m:7077"),
    ),
    "snapshot": (
        Example("Copy all cleanly closed tasks to a folder", "snapshot /data/app --out /backup/snapshots"),
        Example("Print how many bytes kstate would copy", "snapshot /data/app --out /backup/snapshots --dry-run"),
    ),
    "restore-snapshot": (
        Example(
            "Print the plan for a lost directory", "restore-snapshot /data/app --from-snapshot /backup/app --dry-run"
        ),
        Example(
            "Restore half of the tasks to the first of two empty hosts",
            "restore-snapshot /data/app --from-snapshot /backup/app --share 1/2",
        ),
        Example(
            "Add the later records of a dump", "restore-snapshot /data/app --from-snapshot /r --from-changelog /dump"
        ),
    ),
    "ls-snapshots": (
        Example("List all snapshots", "ls-snapshots /backup/snapshots"),
        Example("List the stores of one snapshot", "ls-snapshots /backup/snapshots --generation 20261126T1200"),
    ),
    "verify-snapshots": (
        Example("Read all files once", "verify-snapshots /backup/snapshots"),
        Example("Read a seventh each night, from cron", "verify-snapshots /backup/snapshots --subset 1/7 --quiet"),
    ),
    "prune-snapshots": (
        Example("Print the size of the files that no snapshot needs", "prune-snapshots /backup/snapshots --dry-run"),
        Example("DELETES all but the newest 7 of each task and host", "prune-snapshots /backup/snapshots --keep 7"),
        Example(
            "DELETES snapshots in a bucket after 14 days, from cron",
            "prune-snapshots s3://bucket/app --keep-for 14d -q",
        ),
    ),
    "start-barrier": (
        Example("Wait for three hosts in a folder that all of them share", "start-barrier /backup/app --hosts 3"),
        Example(
            "Wait in an init container, with the name of the pod",
            "start-barrier s3://bucket/app --hosts 3 --host app-1",
        ),
    ),
    "maintain": (
        Example("Print the commands that are due", "maintain --config /etc/kstate/orders.toml --dry-run"),
        Example("Run from cron, every hour", "maintain --config /etc/kstate/orders.toml --quiet -o json"),
    ),
    "undo": (
        Example("Undo the newest change", "undo /data/app"),
        Example("Undo even if the application has run since", "undo /data/app --discard-newer"),
    ),
    "status": (
        Example("Show the runs and their backups", "status /data/app"),
        Example("Print the same as JSON, for scripts", "status /data/app -o json"),
    ),
    "clean": (
        Example("Print what kstate would delete", "clean /data/app --dry-run"),
        Example("DELETES backups that are at least a week old", "clean /data/app --older-than 7d"),
    ),
    "explain": (
        Example("Explain a finding of check", "explain status-open"),
        Example("Explain an exit code", "explain exit:7"),
    ),
    "warm-up": (
        Example("Run once, as the user that restores stores", "warm-up"),
        Example("Run as root when you build an image", "warm-up --for-all"),
    ),
    "demo": (
        Example("Downgrade from 4.3 to 4.2, and undo the downgrade", "demo"),
        Example("Print the plan for your own directory", "migrate /data/app --to 4.2 --dry-run"),
    ),
}
"""In the order of the list of commands. The purpose of a deletion begins with DELETES."""
