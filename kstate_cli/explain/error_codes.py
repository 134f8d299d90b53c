"""Codes of errors: ``code`` of the line ``error`` with ``-o json``."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.dump_reader.errors import DumpError, DumpRot
from kstate_cli.errors import (
    ConditionNotMet,
    Interrupted,
    InUse,
    KstateError,
    OutputLost,
    Refused,
    RunFailed,
    RunHalfway,
    UsageError,
)
from kstate_cli.explain.model import Texts
from kstate_cli.host import STORES_STAY, HostError
from kstate_cli.query.queries import QueryFailedError
from kstate_cli.rows.errors import SerdeError, StoreUnreadable, UnknownStateStoreError, look_closer
from kstate_cli.texts import command

_STATUS = f"what the run did: {command('status', 'APP')}"
_MESSAGE = "the message says what, where, and what to do next"

ERRORS: Final = {
    UsageError.code: Texts("The command line makes no sense (exit 2)", "Nothing was touched.", do=(_MESSAGE,)),
    UnknownStateStoreError.code: Texts(
        "No task here has a store of that name (exit 2)",
        "Streams says so too, with UnknownStateStoreException.",
        do=(f"which stores there are: {command('ls', 'APP')}",),
    ),
    ConditionNotMet.code: Texts(
        "A question was answered with no (exit 3)", "The findings stand before the error.", do=(_MESSAGE,)
    ),
    QueryFailedError.code: Texts(
        "A partition did not answer the query (exit 3)",
        "Rows of the other partitions were printed. Each failure has a reason, such as NOT_UP_TO_BOUND.",
        do=("look at the reason of each failure",),
    ),
    Refused.code: Texts("Not understood, or not safe (exit 4)", "Nothing was touched.", do=(_MESSAGE,)),
    DumpError.code: Texts(
        "A dump is not what it says, or not what can be read (exit 4)",
        "Files are missing, a column has another type, or its manifest and its records do not agree.",
        do=(str(DumpError.usual_hint),),
    ),
    DumpRot.code: Texts(
        "A file of a dump is damaged: bytes have changed since it was written (exit 4)",
        "Its SHA-256 is not that of the manifest, or a page of it cannot be decoded. Nothing was touched.",
        do=(
            "copy the file again from another copy of the dump",
            "or read the topics again, while the broker has their records, into a new full dump: "
            + command("dump", "--bootstrap-server", "HOST:PORT", "--app", "ID", "--out", "NEW"),
            f"which other files are damaged: {command('verify-dump', 'DUMP')}",
        ),
    ),
    SerdeError.code: Texts(
        "Bytes are not what the serde reads, or a key is not what it writes (exit 4)",
        "Rows that could be read were printed.",
        do=("name another serde: --key-serde, --value-serde",),
    ),
    InUse.code: Texts(
        "Another process holds the directory (exit 5)",
        "The application runs, or another command of kstate. The message names the process where that can be known.",
        (log.LOCKED,),
        do=("stop the application, or give the command --wait SECONDS",),
    ),
    RunFailed.code: Texts(
        "A run failed before its switch (exit 6)", "The application directory is what it was.", do=(_MESSAGE, _STATUS)
    ),
    HostError.code: Texts(
        "This host is short of descriptors, threads, memory or disk space (exit 6)",
        "This says nothing about the stores: do not wipe anything because of it.",
        do=("raise the limit that the message names, or free the space, and run the command again", STORES_STAY),
    ),
    "system": Texts(
        "The system has answered with an error (exit 6)",
        "A file that is gone, a disk that does not answer, missing rights.",
        do=(_MESSAGE,),
    ),
    "database": Texts("RocksDB has answered with an error (exit 6)", do=(look_closer("APP"),)),
    StoreUnreadable.code: Texts(
        "A store cannot be read (exit 6)",
        "It is damaged, open in a running application, or of a kind that its bytes leave open.",
        do=(look_closer("APP"), "of a running application, what was flushed last: --last-flush"),
    ),
    OutputLost.code: Texts(
        "Results could not be written in full (exit 6)",
        "What was printed is not all.",
        do=("make room for the output, and run the command again",),
    ),
    KstateError.code: Texts("Something failed for which there is no other code (exit 6)", do=(_MESSAGE,)),
    "defect": Texts(
        "A defect of kstate (exit 6)",
        "It ended with an error that nobody had foreseen. A change is all or nothing then too.",
        do=("report it: run the command again with KSTATE_LOG=FILE, and attach the file", _STATUS),
    ),
    RunHalfway.code: Texts(
        "A run failed after its switch (exit 7)",
        "APP is wholly the new directory; the end of the run is missing.",
        do=("run the command again", f"or take it back: {command('undo', 'APP')}", _STATUS),
    ),
    Interrupted.code: Texts(
        "A signal ended the command (exit 128 and the signal's number)",
        "What had not been switched is swept away.",
        do=("run the command again", _STATUS),
    ),
}
