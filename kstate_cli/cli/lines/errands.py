"""Lines of JSON of ``maintain``, ``start-barrier``, ``explain``, ``warm-up`` and ``examples``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from typing_extensions import TypedDict

from kstate_cli.cli.lines import shared
from kstate_cli.cli.lines.shared import Meaning
from kstate_cli.maintain.rounds import FAILED, FINDINGS, NOT_DUE, NOT_THERE, PLANNED, SUCCEEDED, TIMED_OUT

Step = Annotated[
    str, Meaning("A step of [maintain].", enum=("dump", "restore", "lag", "check", "verify", "verify-dump", "clean"))
]
Subject = Annotated[
    str, Meaning("Which directory it is about: the application's own, or its standby.", enum=("directory", "standby"))
]
Words = Annotated[list[str], Meaning("The words of the command, after kstate.")]
Came = Annotated[
    str,
    Meaning(
        "What became of it: done; found something; failed; its time was over; not due yet; not there yet; with "
        "--dry-run planned.",
        enum=(SUCCEEDED, FINDINGS, FAILED, TIMED_OUT, NOT_DUE, NOT_THERE, PLANNED),
    ),
]
Ended = Annotated[
    int,
    Meaning("The exit code of a command that has ended: the highest, in a summary; 6 where it was ended.", minimum=0),
]
Outcomes = Annotated[Mapping[str, int], Meaning("How many commands became what.", each={"minimum": 1})]


class MaintainMaintainedLine(TypedDict):
    """A command of a step: app is the directory that it is about; null of a dump."""

    type: Literal["maintained"]
    step: Step
    subject: Subject | None
    words: Words
    came: Came
    ended: Ended | None
    seconds: shared.Seconds | None
    message: shared.Message | None


class MaintainSummaryLine(TypedDict):
    """The end: app is null."""

    type: Literal["summary"]
    executed: shared.Executed
    ended: Ended
    outcomes: Outcomes


MaintainLine = MaintainMaintainedLine | MaintainSummaryLine | shared.ErrorLine


class StartBarrierBarrierLine(shared.BarrierMembers):
    """Who is at the barrier, whenever that changes."""

    type: Literal["barrier"]


class StartBarrierSummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    barrier: shared.Barrier
    place: shared.Place
    host: shared.Host
    awaited: shared.Awaited
    here: shared.Here
    missing: shared.Missing
    unnamed: shared.Unnamed
    gave_up: shared.GaveUp


StartBarrierLine = StartBarrierBarrierLine | StartBarrierSummaryLine | shared.ErrorLine


Group = Annotated[
    str,
    Meaning(
        "What kind of code it is: codes of two groups may be called alike.",
        enum=(
            "finding",
            "outcome",
            "verify",
            "fleet",
            "problem",
            "run",
            "restoration",
            "status",
            "query",
            "exit",
            "error",
            "note",
        ),
    ),
]
Explanations = Annotated[int, Meaning("How many explanations.", minimum=0)]


class ExplainExplanationLine(TypedDict):
    """What a code means. app is null. message: the meaning; messages: what Kafka Streams prints.

    messages is empty if Kafka Streams prints nothing, and null if it cannot print anything about it.
    """

    type: Literal["explanation"]
    group: Group
    code: shared.Code
    level: shared.Level | None
    message: shared.Message
    rule: shared.Rule | None
    messages: shared.Messages | None
    hint: shared.Hint
    hint_details: shared.HintDetails


class ExplainSummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    explanations: Explanations


ExplainLine = ExplainExplanationLine | ExplainSummaryLine | shared.ErrorLine


Made = Annotated[bool, Meaning("Whether it was made by this call; false where it was there already, and whole.")]


class WarmUpSummaryLine(TypedDict):
    """The end: the archive exists. app is null.

    seconds: from nothing to the first job and the end of Spark, with the archive; null if it existed already.
    """

    type: Literal["summary"]
    path: shared.Path
    bytes: shared.Bytes
    made: Made
    seconds: shared.Seconds | None


WarmUpLine = WarmUpSummaryLine | shared.ErrorLine


class ExamplesFileLine(TypedDict):
    """A file that was written; app is null, here and below."""

    type: Literal["file"]
    path: shared.Path
    bytes: shared.Bytes


class ExamplesSummaryLine(TypedDict):
    """The end: all of them are there."""

    type: Literal["summary"]
    out: shared.Out
    files: shared.Files
    bytes: shared.Bytes


ExamplesLine = ExamplesFileLine | ExamplesSummaryLine | shared.ErrorLine
