"""What is wrong with a fleet: codes, how bad each is, the rule, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kstate_cli.statedir.names import PROCESS_FILE
from kstate_cli.texts import command, shell
from kstate_cli.texts import internals as see


class FleetLevel(str, Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    """It could not be judged: what was given does not say it."""


@dataclass(frozen=True, slots=True)
class FleetCode:
    """What is the same for all findings of one code."""

    level: FleetLevel
    rule: str
    advice: str
    """What to do."""
    to_paste: str | None = None
    """The command of it, where there is one."""

    @property
    def hint(self) -> str:
        """What to do, with the command last."""
        return self.advice if self.to_paste is None else f"{self.advice}: {self.to_paste}"


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """One thing that is wrong, and where."""

    code: str
    what: str
    task: str | None = None
    store: str | None = None
    hosts: tuple[str, ...] = ()

    @property
    def level(self) -> FleetLevel:
        """That of its code."""
        return FLEET_CODES[self.code].level


_ASSIGNED: Final = (
    "under the classic protocol a task goes to an instance that has its state; where none has, one restores it "
    f"({see('start.md#which-instance-gets-a-task')})"
)
_LAYOUT: Final = see("layout.md")
_RESTORE: Final = (
    "fill them before the start",
    command("restore", "APP", "--from-changelog", "DUMP", "--for", "RELEASE"),
)
_CHECK: Final = ("on that host", command("check", "APP", "--for", "RELEASE"))
_LIST: Final = ("look at the named line, and list that host again", command("ls", "APP", "-o", "json"))

HOST_UNREAD: Final = "host-unread"
HOST_PROBLEM: Final = "host-problem"
TASK_MISSING: Final = "task-missing"
TASK_NOT_KNOWN: Final = "task-not-known"
TASK_DOUBLED: Final = "task-doubled"
TASK_TOO_FEW: Final = "task-too-few"
TASK_UNEXPECTED: Final = "task-unexpected"
STORE_MISSING: Final = "store-missing"
GLOBAL_MISSING: Final = "global-missing"
COPY_UNCLEAN: Final = "copy-unclean"
OFFSET_OUTSIDE_LOG: Final = "offset-outside-log"
APPLICATIONS_DIFFER: Final = "applications-differ"
CHANGELOGS_DIFFER: Final = "changelogs-differ"
KINDS_DIFFER: Final = "kinds-differ"
RELEASES_DIFFER: Final = "releases-differ"
PROCESS_ID_DOUBLED: Final = "process-id-doubled"
MEMBER_WITHOUT_HOST: Final = "member-without-host"

FLEET_CODES: Final[dict[str, FleetCode]] = {
    HOST_UNREAD: FleetCode(FleetLevel.UNKNOWN, "a listing ends with its summary (docs/json.md)", *_LIST),
    TASK_MISSING: FleetCode(FleetLevel.ERROR, _ASSIGNED, *_RESTORE),
    TASK_NOT_KNOWN: FleetCode(FleetLevel.UNKNOWN, "what was not read may have it", *_LIST),
    PROCESS_ID_DOUBLED: FleetCode(
        FleetLevel.ERROR,
        f"the process id names the client in the group ({_LAYOUT})",
        "on all but one of them, while it is stopped",
        shell("rm", f"APP/{PROCESS_FILE}"),
    ),
    APPLICATIONS_DIFFER: FleetCode(
        FleetLevel.ERROR, f"the directory is called after application.id ({_LAYOUT})", "give one application at a time"
    ),
    CHANGELOGS_DIFFER: FleetCode(
        FleetLevel.ERROR,
        f"a changelog is called after its application and store ({see('changelogs.md')})",
        "find out whose directory it is before anything starts on it",
    ),
    KINDS_DIFFER: FleetCode(
        FleetLevel.ERROR, f"one topology makes stores of one name of one kind ({see('stores.md')})", *_CHECK
    ),
    OFFSET_OUTSIDE_LOG: FleetCode(
        FleetLevel.ERROR, f"the next offset lies in the log, or at its end ({see('changelogs.md#log-ends')})", *_CHECK
    ),
    HOST_PROBLEM: FleetCode(FleetLevel.ERROR, "what the listing says of that directory", *_CHECK),
    TASK_DOUBLED: FleetCode(
        FleetLevel.WARNING,
        f"one active task, num.standby.replicas more; others stay until the cleaner comes ({see('start.md')})",
        "say --standby-replicas N where there are some; else the cleaner deletes it after state.cleanup.delay.ms",
    ),
    TASK_TOO_FEW: FleetCode(
        FleetLevel.WARNING, "each task has num.standby.replicas copies beside the active one", *_RESTORE
    ),
    TASK_UNEXPECTED: FleetCode(
        FleetLevel.WARNING,
        "a sub-topology has as many tasks as its topics have partitions",
        "see whether the topic was made anew with fewer partitions, or the directory is another application's",
    ),
    STORE_MISSING: FleetCode(
        FleetLevel.WARNING, f"all tasks of a sub-topology have the same stores ({_LAYOUT})", *_RESTORE
    ),
    GLOBAL_MISSING: FleetCode(FleetLevel.WARNING, f"each instance has all global stores ({_LAYOUT})", *_CHECK),
    COPY_UNCLEAN: FleetCode(
        FleetLevel.WARNING,
        f"under exactly-once what was not left clean is wiped ({see('start.md#clean-or-not')})",
        *_CHECK,
    ),
    RELEASES_DIFFER: FleetCode(
        FleetLevel.WARNING, f"each release opens certain layouts ({see('start.md#going-down')})", *_CHECK
    ),
    MEMBER_WITHOUT_HOST: FleetCode(
        FleetLevel.WARNING,
        "without a client.id of its own a member has the process id of its directory in it",
        "list the directory of that member as well",
    ),
}  # fmt: skip
"""In the order in which they are told."""
