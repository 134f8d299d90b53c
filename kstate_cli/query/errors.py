"""What goes wrong with a query as a whole, beyond the failures that a QueryResult carries."""

from __future__ import annotations

from kstate_cli.errors import ConditionNotMet


class QueryFailedError(ConditionNotMet):
    """Some partition did not answer, and the caller wants an answer of each."""

    code = "query-failed"
