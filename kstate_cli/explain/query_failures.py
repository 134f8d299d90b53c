"""Why a partition did not answer a query (``org.apache.kafka.streams.query.FailureReason``)."""

from __future__ import annotations

from typing import Final

from kstate_cli.explain.model import Texts
from kstate_cli.query.result import FailureReason
from kstate_cli.texts import command
from kstate_cli.texts import internals as see

_RULE = f"StoreQueryUtils, KIP-796 ({see('positions.md#who-answers-what')})"

FAILURES: Final = {
    FailureReason.UNKNOWN_QUERY_TYPE: Texts(
        "This kind of store does not answer this kind of query",
        "A window store has no range of keys, a plain store no timestamps. The message says what it does answer.",
        rule=_RULE,
    ),
    FailureReason.NOT_ACTIVE: Texts(
        "A running active task was asked for, and nothing runs in a directory",
        "In Streams: the task is a standby here, or is still restoring.",
        rule="KafkaStreams.query with StateQueryRequest.requireActive",
    ),
    FailureReason.NOT_UP_TO_BOUND: Texts(
        "The store has not come as far as the bound demands",
        "Its Position, up to which input record it has come, is behind for at least one partition of the bound.",
        rule=f"StoreQueryUtils.isPermitted ({see('positions.md#bounds')})",
        do=("restore it, or let the application run further",),
    ),
    FailureReason.NOT_PRESENT: Texts(
        "No task in this directory has the partition",
        "Another instance has it. In Streams it may also have moved during the query.",
        rule="KafkaStreams.query",
    ),
    FailureReason.DOES_NOT_EXIST: Texts(
        "The store has fewer partitions than that",
        "It is only known where kstate.toml says how many there are. Streams declares it, and no release gives it.",
        rule=f"FailureReason ({see('positions.md#who-answers-what')})",
    ),
    FailureReason.STORE_EXCEPTION: Texts(
        "The store could not be read",
        "It is damaged, open in a running application, or of a kind that its bytes leave open. Rows that were printed "
        "before are right.",
        rule=_RULE,
        do=(
            "of a running application, what was flushed last: --last-flush",
            f"which kind it is: {command('ls', 'APP')}",
        ),
    ),
}
