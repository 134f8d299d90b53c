"""Changelog dumps: Parquet in the schema of Spark's Kafka source.

:func:`~kstate_cli.dump_reader.open.read_dump` reads the contents of a dump from its footers and its manifest,
:func:`~kstate_cli.dump_reader.slices.slices` cuts a partition into bounded parts, and
:func:`~kstate_cli.dump_reader.reader.read_slice` reads one part in a worker. pyarrow is imported in functions.
"""
