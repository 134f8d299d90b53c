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
    "under the classic protocol, an instance that has the state of a task gets the task. If none has it, one "
    "of them restores it ({page})"
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
_OTHERS: Final = f"for all hosts at once, see {documentation('docs/how-to/fleet.md')}"

HOST_UNREAD: Final = FleetCode(
    "host-unread",
    "A listing is incomplete, or kstate cannot read it",
    level=FleetLevel.UNKNOWN,
    more=(
        "The file is truncated, belongs to another command or version, or the listing failed on that host. "
        "kstate prints the part that it can read. If a task or store is in none of the listings, kstate "
        "treats it as unknown, and not as missing."
    ),
    source="a listing ends with its summary (docs/json.md)",
    hint="check the line, and list that host again",
    command=_LIST,
)
TASK_MISSING: Final = FleetCode(
    "task-missing",
    "None of the hosts has the task",
    level=FleetLevel.ERROR,
    more=(
        "The instance that gets the task restores all of its stores from the changelogs, and does not process "
        "its input until then."
    ),
    source=_ASSIGNED,
    page=_ASSIGNMENT,
    hint="restore them before you start the application",
    command=_RESTORE,
    do=(_OTHERS,),
)
TASK_NOT_KNOWN: Final = FleetCode(
    "task-not-known",
    "None of the hosts with a complete listing has the task",
    level=FleetLevel.UNKNOWN,
    more=(
        "A host with an incomplete listing may have it. Do not restore the task before you know this, or two "
        "hosts will have it."
    ),
    source="the unread part may contain it",
    hint="check the line, and list that host again",
    command=_LIST,
)
TASK_ONLY_IN_SNAPSHOT: Final = FleetCode(
    "task-only-in-snapshot",
    "None of the hosts has the task, but a repository of snapshots has it",
    level=FleetLevel.ERROR,
    more=(
        "A restoration copies the files of the snapshot, and the instance that gets the task restores only the later "
        "records. Without it, the instance restores all stores of the task from the changelogs."
    ),
    source=_ASSIGNED,
    page=_ASSIGNMENT,
    hint="restore them before you start the application",
    command=_FROM_SNAPSHOT,
    do=(_OTHERS,),
)
SNAPSHOT_NOT_KNOWN: Final = FleetCode(
    "snapshot-not-known",
    "Only a snapshot has the task, and nothing shows whether the task still exists",
    level=FleetLevel.UNKNOWN,
    more=(
        "The topology may have changed since the snapshot, or all hosts with this sub-topology were lost, or a host "
        f"with an incomplete listing has the task. With {option.BOOTSTRAP_SERVER} or {option.SPEC}, kstate knows which "
        "tasks exist."
    ),
    source="a repository keeps the snapshots of tasks that no longer exist",
    hint=f"pass {option.BOOTSTRAP_SERVER}. If the task no longer exists, delete its snapshots",
    command=_PRUNE,
)
PROCESS_ID_DOUBLED: Final = FleetCode(
    "process-id-doubled",
    "Two hosts have the same process id",
    level=FleetLevel.ERROR,
    more=(
        "A volume was cloned with the files that Streams keeps in it. Both instances have the same name, so "
        "assignors treat them as one process that has the state of both."
    ),
    source="the process id names the client in the group ({page})",
    page="layout.md",
    hint="on all of these hosts but one, while it is stopped",
    command=_REMOVE,
)
APPLICATIONS_DIFFER: Final = FleetCode(
    "applications-differ",
    "The listings belong to different applications",
    level=FleetLevel.ERROR,
    more=(
        "You passed files of two applications, or a volume was mounted in the wrong place. kstate counts the "
        "tasks of both together, so its results about missing and extra tasks are wrong for both."
    ),
    source="the directory has the name of the application.id ({page})",
    page="layout.md",
    hint="pass one application at a time",
)
CHANGELOGS_DIFFER: Final = FleetCode(
    "changelogs-differ",
    "A store has different changelogs on different hosts",
    level=FleetLevel.ERROR,
    more=(
        "Another application filled one of the directories, or the directory of an application with another "
        "application.id was renamed. If you start the application, it treats the rows of one as the state of "
        "the other."
    ),
    source="the name of a changelog contains its application and store ({page})",
    page="changelogs.md",
    hint="find out which application the directory belongs to before you start an instance on it",
)
KINDS_DIFFER: Final = FleetCode(
    "kinds-differ",
    "A store is of different kinds on different hosts",
    level=FleetLevel.ERROR,
    more="The hosts run different versions of the topology, or a directory belongs to another application.",
    source="in one topology, stores with the same name have the same kind ({page})",
    page="stores.md",
    hint="on that host",
    command=_CHECK,
)
OFFSET_OUTSIDE_LOG: Final = FleetCode(
    "offset-outside-log",
    "The log no longer has the record after the offset of a store",
    level=FleetLevel.ERROR,
    more=(
        "The topic was recreated, or was truncated later. Streams wipes the task when it starts, and restores "
        "the records that the log still has."
    ),
    source="the next offset is in the log, or at its end ({page})",
    page="changelogs.md#log-ends",
    hint="on that host",
    command=_CHECK,
)
HOST_PROBLEM: Final = FleetCode(
    "host-problem",
    "The listing of a host contains a problem",
    level=FleetLevel.ERROR,
    more=(
        "The text comes from the listing, with the code of the problem. To explain it, run the same command "
        "with that code."
    ),
    source="read the listing of that directory",
    hint="on that host",
    command=_CHECK,
)
TASK_DOUBLED: Final = FleetCode(
    "task-doubled",
    "More hosts than necessary have the task",
    level=FleetLevel.WARNING,
    more=(
        "It is a standby, if the application has any. Otherwise it is a copy from before the task moved, and "
        "the cleaner of that instance deletes it after state.cleanup.delay.ms. If all instances start again, "
        "each of them may get the task. If its copy is behind, it restores the difference."
    ),
    source=(
        "one active task and num.standby.replicas more. Other copies remain until the cleaner deletes them ({page})"
    ),
    page="start.md",
    hint=f"if the application has standbys, pass {option.STANDBY_REPLICAS} N. Otherwise the cleaner deletes it "
    "after state.cleanup.delay.ms",
)
TASK_TOO_FEW: Final = FleetCode(
    "task-too-few",
    "Fewer hosts than necessary have the task",
    level=FleetLevel.WARNING,
    more="A standby is missing. If you lose the only host, Streams restores the whole task.",
    source="each task has num.standby.replicas copies in addition to the active one",
    hint="restore them before you start the application",
    command=_RESTORE,
)
TASK_UNEXPECTED: Final = FleetCode(
    "task-unexpected",
    "The task belongs to a partition that does not exist",
    level=FleetLevel.WARNING,
    more=(
        "Streams never uses the task, and its cleaner deletes it. Either the topic had more partitions "
        "before, or the directory or the specification belongs to another application."
    ),
    source="a sub-topology has as many tasks as its topics have partitions",
    hint="check whether the topic was recreated with fewer partitions, or the directory belongs to another application",
)
STORE_MISSING: Final = FleetCode(
    "store-missing",
    "A store is missing from a task",
    level=FleetLevel.WARNING,
    more=(
        "Other tasks of the same sub-topology have it. When the application starts, it restores the store "
        "from the beginning."
    ),
    source="all tasks of a sub-topology have the same stores ({page})",
    page="layout.md",
    hint="restore them before you start the application",
    command=_RESTORE,
)
GLOBAL_MISSING: Final = FleetCode(
    "global-missing",
    "A host has no global stores",
    level=FleetLevel.WARNING,
    more="Other hosts have them. When this instance starts, it first reads all of their topics.",
    source="each instance has all global stores ({page})",
    page="layout.md",
    hint="on that host",
    command=_CHECK,
)
SNAPSHOT_AHEAD: Final = FleetCode(
    "snapshot-ahead",
    "A snapshot is ahead of the copies of all hosts",
    level=FleetLevel.WARNING,
    more=(
        "The host with the newer copy was lost, or its directory was replaced by an older one. The instance that gets "
        "the task restores the difference from the changelogs, unless you restore the snapshot."
    ),
    source="both offsets are offsets of the same changelog, if the topic was not recreated",
    hint=f"pass {option.BOOTSTRAP_SERVER} to compare the topic ids. Then, on that host, while it is stopped",
    command=_REPLACE,
)
COPY_UNCLEAN: Final = FleetCode(
    "copy-unclean",
    "A stopped instance did not close a store cleanly",
    level=FleetLevel.WARNING,
    more="Under exactly-once, Streams wipes the task on that host and restores it, if it gets the task.",
    source="under exactly-once, Streams wipes stores after an unclean shutdown ({page})",
    page="start.md#clean-or-not",
    hint="on that host",
    command=_CHECK,
)
RELEASES_DIFFER: Final = FleetCode(
    "releases-differ",
    "Different releases wrote the stores",
    level=FleetLevel.WARNING,
    more=(
        "An upgrade or a downgrade is incomplete, or a task has not been opened since then. An older release "
        "cannot open the stores of a newer one."
    ),
    source="each release can open certain layouts ({page})",
    page="start.md#going-down",
    hint="on that host",
    command=_CHECK,
)
MEMBER_WITHOUT_HOST: Final = FleetCode(
    "member-without-host",
    "A member of the group uses a directory that is not in the listings",
    level=FleetLevel.WARNING,
    more="The listing of a host is missing, so kstate counts its tasks as missing.",
    source="the name of a member without a custom client.id contains the process id of its directory",
    hint="also list the directory of that member",
)

# A module keeps the order of its assignments, so that an entry needs no registration.
FLEET_CODES: Final[dict[str, FleetCode]] = {
    entry.name: entry for entry in list(vars().values()) if isinstance(entry, FleetCode)
}
"""Every finding by the name of its code, in the order in which the report lists them."""
