"""Changelog dumps: Parquet in the schema of Spark's Kafka source.

:func:`~kstate_cli.dump_reader.open.read_dump` finds out what a dump holds from its footers and its manifest,
:func:`~kstate_cli.dump_reader.slices.slices` cuts a partition into bounded parts, and
:func:`~kstate_cli.dump_reader.reader.read_slice` reads one of them in a worker. pyarrow is imported where it is used.
"""
