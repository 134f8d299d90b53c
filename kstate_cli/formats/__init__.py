"""Codecs between the bytes Kafka Streams leaves on disk and plain values.

Every function here is pure: bytes in, values out (or back). Nothing opens a file, knows a directory or talks to
RocksDB. Integers written by Streams are big-endian and signed unless a docstring says otherwise; ``i32`` and
``i64`` name them, ``zz`` is a zig-zag varint and ``‖`` joins parts. Timestamps are milliseconds since the epoch.

Input that Streams could not have written raises :class:`~kstate_cli.formats.binary.MalformedBytesError`; arguments
that must not be written raise a plain :class:`ValueError`.
"""
