"""Findings of ``fleet``."""

from __future__ import annotations

from typing import Final

from kstate_cli.explain.model import Texts
from kstate_cli.fleet import findings as of
from kstate_cli.texts import documentation

_OTHERS = f"all hosts at once: see {documentation('docs/how-to/fleet.md')}"

FLEET: Final = {
    of.HOST_UNREAD: Texts(
        "What a host said is not all here, or cannot be read",
        "The file is cut off, of another command, of another version with another form of output, or the listing "
        "failed there. What could be read is shown; what is not seen anywhere is not known then, and not missing.",
    ),
    of.TASK_MISSING: Texts(
        "No host has the task",
        "Whoever is given it restores all of its stores from the changelogs, and processes nothing of it until then.",
        do=(_OTHERS,),
    ),
    of.TASK_NOT_KNOWN: Texts(
        "No host that could be read has the task",
        "A host of which not all is known may have it: do not restore it before that is known, or two hosts have it.",
    ),
    of.PROCESS_ID_DOUBLED: Texts(
        "Two hosts have one process id",
        "A volume was cloned with what Streams keeps in it. Both instances call themselves the same, and assignors "
        "count them as one process with the state of either.",
    ),
    of.APPLICATIONS_DIFFER: Texts(
        "Directories of different applications",
        "Files of two applications were given together, or a volume was mounted at the wrong place. Tasks of both are "
        "counted together, so that what is said of missing and doubled tasks is of neither.",
    ),
    of.CHANGELOGS_DIFFER: Texts(
        "A store of one name has different changelogs on different hosts",
        "One of the directories was filled by another application, or under another application.id, and renamed. A "
        "start would take rows of the one for the state of the other.",
    ),
    of.KINDS_DIFFER: Texts(
        "A store of one name is of different kinds on different hosts",
        "Hosts were started with different versions of the topology, or a directory is another application's.",
    ),
    of.OFFSET_OUTSIDE_LOG: Texts(
        "The next offset of a store does not lie in its changelog",
        "The topic was made anew, or has been cut since. The start wipes the task, and restores what the log has.",
    ),
    of.HOST_PROBLEM: Texts(
        "A problem was found in a directory there",
        "The same as the listing said, with the code of the problem, which has an explanation of its own.",
    ),
    of.TASK_DOUBLED: Texts(
        "More hosts have the task than should",
        "A standby, where the application has any; else a copy that was left over when the task moved, which the "
        "cleaner of that instance deletes after state.cleanup.delay.ms. Where all instances start anew, either may be "
        "given it: one that is behind restores the difference.",
    ),
    of.TASK_TOO_FEW: Texts(
        "Fewer hosts have the task than should",
        "A standby is missing. If the one host is lost the task is restored from its beginning.",
    ),
    of.TASK_UNEXPECTED: Texts(
        "A task of a partition that there is not",
        "Streams never asks for it, and its cleaner deletes it. The topic had more partitions once, or the directory, "
        "or the specification, is another application's.",
    ),
    of.STORE_MISSING: Texts(
        "A store of a task is not there",
        "Other tasks of the same sub-topology have it. The start restores it from its beginning.",
    ),
    of.GLOBAL_MISSING: Texts(
        "A host has no global stores",
        "Other hosts have them. The start reads the whole of their topics before anything else.",
    ),
    of.COPY_UNCLEAN: Texts(
        "A stopped instance has not left a store clean",
        "Under exactly-once the next start wipes the task there and restores it, if it is given it.",
    ),
    of.RELEASES_DIFFER: Texts(
        "Stores were left by different releases",
        "An upgrade or a downgrade stopped on its way, or a task has not been opened since. An older release does not "
        "open what a newer one has left.",
    ),
    of.MEMBER_WITHOUT_HOST: Texts(
        "A member of the group works on a directory that was not given",
        "A host is missing among the files, so that tasks of its own count as missing.",
    ),
}
