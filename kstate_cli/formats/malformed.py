"""The one error of the decoders."""

from __future__ import annotations


class MalformedBytesError(ValueError):
    """The bytes do not follow the format.

    ``reason`` says what is wrong; ``streams_exception`` is the simple name of the Java exception that Kafka Streams
    raises for the same bytes, or ``None`` where Streams is known to raise none or its answer is unknown. ``str()``
    gives both. ``streams_message`` is how that exception's message begins, where it is known: it is what an operator
    sees in the log.
    """

    def __init__(
        self, reason: str, streams_exception: str | None = None, *, streams_message: str | None = None
    ) -> None:
        super().__init__(reason if streams_exception is None else f"{reason} (Streams: {streams_exception})")
        self.reason = reason
        self.streams_exception = streams_exception
        self.streams_message = streams_message

    def __reduce__(self) -> tuple[type[MalformedBytesError], tuple[str, str | None], dict[str, str | None]]:
        # The default would rebuild from ``args``, that is from the message instead of the two parts.
        return type(self), (self.reason, self.streams_exception), {"streams_message": self.streams_message}
