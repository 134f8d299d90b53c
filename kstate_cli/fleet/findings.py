"""The findings of a fleet. The catalogue holds one entry for each code."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kstate_cli import option
from kstate_cli.codes import Code
from kstate_cli.statedir.names import PROCESS_FILE
from kstate_cli.texts import command, documentation, shell


class FleetLevel(str, Enum):
    """How severe a finding is."""

    ERROR = "error"
    WARNING = "warning"
    # Not a warning: a user must not restore a task that an unread host may have.
    UNKNOWN = "unknown"
    """The listings do not contain what the rule needs."""


@dataclass(frozen=True, slots=True)
class FleetCode(Code):
    """One kind of finding. Its command stands on a line of its own."""

    level: FleetLevel = field(compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """One finding, with its place."""

    code: FleetCode
    text: str
    task: str | None = None
    store: str | None = None
    hosts: tuple[str, ...] = ()

    @property
    def level(self) -> FleetLevel:
        """Return the level of the code."""
        return self.code.level


# The client decides it under the classic protocol; under KIP-1071 the broker does, by rules of its own.
_ASSIGNED: Final = (
    "under the classic protocol, Streams assigns a task to an instance that has the task's state. If no instance "
    "has this state, one of them restores the task ({page})"
)
_ASSIGNMENT: Final = "start.md#which-instance-gets-a-task"
_RESTORE: Final = command("restore", "APP", option.FROM_CHANGELOG, "DUMP", option.FOR, "RELEASE")
_FROM_SNAPSHOT: Final = command("restore-snapshot", "APP", option.FROM_SNAPSHOT, "REPO")
_REPLACE: Final = command("restore-snapshot", "APP", option.FROM_SNAPSHOT, "REPO", option.REBUILD)
_PRUNE: Final = command("prune-snapshots", "REPO", option.ABANDONED, "30d")
_CHECK: Final = command("check", "APP", option.FOR, "RELEASE")
_LIST: Final = command("ls", "APP", "-o", "json")
# Streams writes the file again at its start, with a new id.
_REMOVE: Final = shell("rm", f"APP/{PROCESS_FILE}")
_OTHERS: Final = f"to restore tasks on several hosts, see {documentation('docs/how-to/fleet.md')}"

HOST_UNREAD: Final = FleetCode(
    "host-unread",
    "A host's listing is incomplete or unreadable",
    level=FleetLevel.UNKNOWN,
    more=(
        "The file was truncated, another command or version wrote it, or the listing failed on that host. kstate "
        "uses all lines that it can read. Tasks and stores that it does not find count as unknown, because the "
        "missing lines may contain them."
    ),
    source="the last line of a complete listing is its summary (docs/json.md)",
    hint="run `kstate ls` again on that host",
    command=_LIST,
)
TASK_MISSING: Final = FleetCode(
    "task-missing",
    "No host has the task",
    level=FleetLevel.ERROR,
    more=(
        "One instance will get the task and restore all its stores from the changelogs. Until then, the task's "
        "input is not processed."
    ),
    source=_ASSIGNED,
    page=_ASSIGNMENT,
    hint="restore the task before you start the application",
    command=_RESTORE,
    do=(_OTHERS,),
)
TASK_NOT_KNOWN: Final = FleetCode(
    "task-not-known",
    "No host with a complete listing has the task",
    level=FleetLevel.UNKNOWN,
    more=(
        "A host with an incomplete listing may have the task. Before you restore the task, list this host again. "
        "Otherwise, two hosts may have the task."
    ),
    source="the missing lines of a listing may contain the task",
    hint="run `kstate ls` again on that host",
    command=_LIST,
)
TASK_ONLY_IN_SNAPSHOT: Final = FleetCode(
    "task-only-in-snapshot",
    "No host has the task, but a snapshot contains it",
    level=FleetLevel.ERROR,
    more=(
        "If you restore the snapshot, only later changelog records are missing. Otherwise, the instance that gets "
        "the task restores all its stores from the beginning."
    ),
    source=_ASSIGNED,
    page=_ASSIGNMENT,
    hint="restore the task before you start the application",
    command=_FROM_SNAPSHOT,
    do=(_OTHERS,),
)
SNAPSHOT_NOT_KNOWN: Final = FleetCode(
    "snapshot-not-known",
    "Only a snapshot contains the task, and the task may no longer exist",
    level=FleetLevel.UNKNOWN,
    more=(
        "Either the topology has changed since the snapshot, or all hosts with this sub-topology were lost, or a "
        f"host with an incomplete listing has the task. With {option.BOOTSTRAP_SERVER} or {option.SPEC}, kstate can "
        "determine which tasks exist."
    ),
    source="a repository also keeps snapshots of tasks that no longer exist",
    hint=f"pass {option.BOOTSTRAP_SERVER}. If the task no longer exists, delete its snapshots",
    command=_PRUNE,
)
PROCESS_ID_DOUBLED: Final = FleetCode(
    "process-id-doubled",
    "Two hosts have the same process id",
    level=FleetLevel.ERROR,
    more=(
        "A volume was cloned together with the process id that Streams stores in it. The assignor treats both "
        "instances as a single process with the state of both."
    ),
    source="the process id identifies the client in the group ({page})",
    page="layout.md",
    hint="stop the application on all but one of these hosts. On each host where you stopped it, run",
    command=_REMOVE,
)
APPLICATIONS_DIFFER: Final = FleetCode(
    "applications-differ",
    "The listings belong to different applications",
    level=FleetLevel.ERROR,
    more=(
        "You passed listings of two applications, or a volume is mounted in the wrong place. kstate counts both "
        "applications' tasks together, so it may report the wrong tasks as missing or unexpected."
    ),
    source="the name of an application directory is the application.id ({page})",
    page="layout.md",
    hint="pass the listings of one application only",
)
CHANGELOGS_DIFFER: Final = FleetCode(
    "changelogs-differ",
    "A store has different changelogs on different hosts",
    level=FleetLevel.ERROR,
    more=(
        "One of the directories belongs to another application, or another application's directory was renamed. If "
        "you start the application, it uses the other application's rows as its state."
    ),
    source="the name of a changelog contains its application and store ({page})",
    page="changelogs.md",
    hint="check which application wrote the directory before you start an instance on it",
)
KINDS_DIFFER: Final = FleetCode(
    "kinds-differ",
    "A store has different kinds on different hosts",
    level=FleetLevel.ERROR,
    more="The hosts run different versions of the topology, or a directory belongs to another application.",
    source="in one topology, stores with the same name have the same kind ({page})",
    page="stores.md",
    hint="on that host, run",
    command=_CHECK,
)
OFFSET_OUTSIDE_LOG: Final = FleetCode(
    "offset-outside-log",
    "The changelog no longer contains a store's next record",
    level=FleetLevel.ERROR,
    more=(
        "The topic was recreated or truncated. When Streams starts, it wipes the task and restores the records that "
        "the log still has."
    ),
    source="a store's next offset must be in its log or at the end of the log ({page})",
    page="changelogs.md#log-ends",
    hint="on that host, run",
    command=_CHECK,
)
HOST_PROBLEM: Final = FleetCode(
    "host-problem",
    "A host's directory has a problem",
    level=FleetLevel.ERROR,
    more=(
        "kstate found the problem when it listed the directory on that host. The message ends with the problem's "
        "code. To see what this code means, run `kstate explain` with it."
    ),
    source="a listing contains the problems that kstate found in the directory",
    hint="on that host, run",
    command=_CHECK,
)
TASK_DOUBLED: Final = FleetCode(
    "task-doubled",
    "More hosts than expected have the task",
    level=FleetLevel.WARNING,
    more=(
        "The additional copy is a standby, or an old copy that remained when the task moved to another host. "
        "Streams' cleaner deletes old copies after state.cleanup.delay.ms. If all instances restart, any of them may "
        "get the task. That instance restores the records that its copy lacks."
    ),
    source=(
        "the expected copies are one active task and num.standby.replicas standbys. Streams' cleaner deletes all "
        "others ({page})"
    ),
    page="start.md",
    hint=(
        f"if the application has standbys, pass {option.STANDBY_REPLICAS} N. Otherwise, wait until Streams' cleaner "
        "deletes the old copy"
    ),
)
TASK_TOO_FEW: Final = FleetCode(
    "task-too-few",
    "Fewer hosts than expected have the task",
    level=FleetLevel.WARNING,
    more=(
        "A standby is missing. If you also lose the last host with the task, Streams restores the whole task from "
        "the beginning."
    ),
    source="each task has one active copy and num.standby.replicas standby copies",
    hint="restore the task before you start the application",
    command=_RESTORE,
)
TASK_UNEXPECTED: Final = FleetCode(
    "task-unexpected",
    "A task belongs to a partition that does not exist",
    level=FleetLevel.WARNING,
    more=(
        "Streams does not use this task, and its cleaner deletes it. Either the topic once had more partitions, or "
        "the directory or specification belongs to another application."
    ),
    source="a sub-topology has as many tasks as its topics have partitions",
    hint="check whether the topic was recreated with fewer partitions, and which application wrote the directory",
)
STORE_MISSING: Final = FleetCode(
    "store-missing",
    "A task lacks a store",
    level=FleetLevel.WARNING,
    more=(
        "Other tasks of the same sub-topology have the store. When the application starts, it restores the "
        "store from the beginning."
    ),
    source="all tasks of a sub-topology have the same stores ({page})",
    page="layout.md",
    hint="restore the store before you start the application",
    command=_RESTORE,
)
GLOBAL_MISSING: Final = FleetCode(
    "global-missing",
    "A host has no global stores",
    level=FleetLevel.WARNING,
    more=(
        "Other hosts have global stores. When this host's instance starts, it first reads the topics of these "
        "stores completely."
    ),
    source="each instance has all global stores ({page})",
    page="layout.md",
    hint="on that host, run",
    command=_CHECK,
)
SNAPSHOT_AHEAD: Final = FleetCode(
    "snapshot-ahead",
    "A snapshot is newer than every host's copy",
    level=FleetLevel.WARNING,
    more=(
        "The host with the newer copy was lost, or its directory was replaced with an older one. If you do not "
        "restore the snapshot, the instance that gets the task restores the missing records from the changelogs."
    ),
    source="kstate can compare the snapshot's offsets with the hosts' offsets, unless the topic was recreated",
    hint=f"pass {option.BOOTSTRAP_SERVER} to compare the topic ids. Then stop the application on that host, and run",
    command=_REPLACE,
)
COPY_UNCLEAN: Final = FleetCode(
    "copy-unclean",
    "A stopped instance did not close a store cleanly",
    level=FleetLevel.WARNING,
    more="Under exactly-once, if the instance on that host gets the task, it wipes and restores all the task's stores.",
    source="under exactly-once, Streams wipes stores after an unclean shutdown ({page})",
    page="start.md#clean-or-not",
    hint="on that host, run",
    command=_CHECK,
)
RELEASES_DIFFER: Final = FleetCode(
    "releases-differ",
    "The stores were written by different Kafka Streams releases",
    level=FleetLevel.WARNING,
    more=(
        "An upgrade or downgrade is incomplete, or the new release has not opened some tasks yet. An older release "
        "cannot open stores of a newer one."
    ),
    source="each release can open only certain layouts ({page})",
    page="start.md#going-down",
    hint="on that host, run",
    command=_CHECK,
)
MEMBER_WITHOUT_HOST: Final = FleetCode(
    "member-without-host",
    "A group member uses a directory that is not in the listings",
    level=FleetLevel.WARNING,
    more="You did not pass this host's listing, so kstate reports its tasks as missing if no other host has them.",
    source="without a custom client.id, a member's name contains the process id from its directory",
    hint="also pass that host's listing",
)

# A module keeps the order of its assignments, so that an entry needs no registration.
FLEET_CODES: Final[dict[str, FleetCode]] = {
    entry.name: entry for entry in list(vars().values()) if isinstance(entry, FleetCode)
}
"""Every finding by the name of its code, in the order in which the report lists them."""
