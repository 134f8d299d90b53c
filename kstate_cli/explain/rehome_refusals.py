"""Why ``kstate rehome`` refuses: codes of errors with a rule of their own."""

from __future__ import annotations

from typing import Final

from kstate_cli.check.streams_log import OTHER_PARTITIONS
from kstate_cli.explain.model import Texts
from kstate_cli.rehome.model import WhyRefused

_OLD: Final = "name the text of the topology that ran here last too: --from OLD.txt"

REHOME: Final = {
    WhyRefused.OTHER_APPLICATION: Texts(
        "None of the stores here, or few of them, are in the new topology (exit 4)",
        "The text is that of another application, or nearly everything was renamed.",
        do=("name the text of this application", _OLD),
    ),
    WhyRefused.OLD_DOES_NOT_FIT: Texts(
        "Stores lie elsewhere than the old topology has them (exit 4)",
        "With topology.optimization the numbers depend on the properties that are given to build.",
        do=("name the text of the topology that ran here last, of build(props)",),
    ),
    WhyRefused.GLOBAL: Texts(
        "A store is global in the topology and not in the directory, or the other way round (exit 4)",
        "A global store has its topic for a changelog, and no partitions: its rows are others.",
        do=("wipe that store: Streams makes it anew",),
    ),
    WhyRefused.TWO_COPIES: Texts(
        "Two tasks of one partition have the same store (exit 4)",
        "The new topology was started here once, and made stores of its own beside those of before.",
        do=(_OLD,),
    ),
    WhyRefused.HALF_A_TASK: Texts(
        "Sub-topologies that are merged lie on different hosts (exit 4)",
        "Each host would get half a task, and under exactly-once Streams wipes what lacks the offset of a store.",
        do=(
            "complete it from a dump, in the same run and on every host: --from-changelog DUMP --for RELEASE",
            "or bring the directories of one partition together on one host, with the application stopped on both",
        ),
    ),
    WhyRefused.GENERATED: Texts(
        "A name that the DSL has generated carries the operator's number (exit 4)",
        "Another number is another store and another changelog, and the same name may be another operator. Such a "
        "store moves only where both texts have the same sources and processors for it.",
        do=(_OLD, "or pin the name of before in the code, by Materialized.as"),
    ),
    WhyRefused.NUMBER_TAKEN: Texts(
        "The new number of a sub-topology is that of tasks which are here (exit 4)",
        "Numbers alone do not tell what is merged from what takes the place of something that is gone.",
        do=("say what becomes of those by another --map, or give texts: --topology, --from",),
    ),
    WhyRefused.KIND_UNKNOWN: Texts(
        "A store is new, and nothing tells its kind (exit 4)",
        "From 4.3 on an empty store says that it is read from the beginning. Without one exactly-once Streams wipes "
        "the task; where it lies, and whether there is one at all, depends on the kind.",
        do=("say the kind in a kstate.toml: --spec", _OLD, "or, with at-least-once: --guarantee at_least_once"),
    ),
    WhyRefused.UNCLEAN: Texts(
        "Stores that are to move were not left clean (exit 4)",
        "Under exactly-once they may hold what was never committed.",
        do=("leave them out, and they alone are restored: --wipe-unclean", "or --guarantee at_least_once"),
    ),
    WhyRefused.FOREIGN: Texts(
        "A task that stores go from holds what is not Streams' (exit 4)",
        "Nobody knows to which task it belongs.",
        do=("move it out of the application directory",),
    ),
    WhyRefused.MEMBERS: Texts(
        "The group of the application has members (exit 4)",
        "An instance runs, or was stopped less than session.timeout.ms ago: Streams does not leave its group.",
        do=("stop all instances", "and wait for the sessions of those that are: --wait 60"),
    ),
    WhyRefused.UNREAD: Texts(
        "The new topology does not read topics that have records which were not read yet (exit 4)",
        "A repartition topic of another name is another topic: what is left in it nobody ever reads.",
        do=(
            "start the old topology, let it come to the end of its input, and stop it",
            "where these records may be lost, leave out --bootstrap-server",
        ),
    ),
    WhyRefused.PARTITIONS: Texts(
        "Partitions of changelogs do not go with the tasks that their sub-topology will have (exit 4)",
        "Streams makes a task for each partition of the largest source topic, and ends at the start where a changelog "
        "that is there has another number. A table that is restored from its source topic keeps the application from "
        "running for ever.",
        log=(OTHER_PARTITIONS,),
        do=("keep these sub-topologies apart", "or repartition one of their inputs"),
    ),
    WhyRefused.OTHER_CLUSTER: Texts(
        "The broker has none of the changelogs of the directory (exit 4)",
        "It is another cluster, or this user may not describe those topics.",
        do=("name the cluster of this application, and a user who may describe its topics",),
    ),
}
