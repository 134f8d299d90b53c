"""The limits of what kstate reads of files that other programs wrote (docs/security.md#size-limits).

A few bytes can claim, or expand to, terabytes. So everything that a command holds in memory as a whole has a limit, far
above the files of kstate, Kafka Streams and RocksDB. kstate compares the limit before it spends the memory. No option
raises a limit: hints name the setting of the writer that keeps files below it.
"""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30

# --- files of state directories -----------------------------------------------------------------------------------

MOST_OFFSETS_BYTES: Final = 16 * MIB
"""For ``.checkpoint``, ``.checkpoint_<store>`` and ``<store>.position``: a line for each partition of each store."""
MOST_NAME_BYTES: Final = 4096
"""For ``CURRENT`` and ``IDENTITY``: each holds a name."""
MOST_OPTIONS_BYTES: Final = 4 * MIB
"""For ``OPTIONS-<number>``: a few KiB for each column family."""
MOST_MANIFEST_BYTES: Final = 256 * MIB
"""For ``MANIFEST-<number>``: RocksDB starts it again at each open, and adds about 100 bytes per flush or compaction."""
MOST_LEVELS: Final = 100
"""Levels of directories. Streams needs five: topology, task, store, segment, file. A custom store may add some."""
MOST_JOURNAL_BYTES: Final = 64 * MIB
"""The journal of a run."""

# --- options ------------------------------------------------------------------------------------------------------

MOST_GIVEN_BYTES: Final = 64 * MIB
"""A file in the argument of an option."""

# --- JSON ---------------------------------------------------------------------------------------------------------

MOST_JSON_VALUES: Final = 20_000_000
"""Elements and members of a JSON text. Each takes about 100 bytes of memory, even if it has three bytes in the file."""
MOST_JSON_LEVELS: Final = 32
"""Levels of nesting of a JSON text. Nothing that kstate reads is nested half as deeply."""

# --- snapshots ----------------------------------------------------------------------------------------------------

MOST_GENERATION_BYTES: Final = 512 * MIB
"""The file of a generation: hundreds of thousands of files."""
MOST_GENERATION_FILES: Final = 1_000_000
"""Files of one database. RocksDB itself fails long before."""
MOST_GENERATION_VALUES: Final = 12_000_000
"""Values of one generation. Each becomes an object of Python: so many of them take some GiB, hostile ones far more."""
MOST_OBJECTS: Final = 5_000_000
"""Objects of a repository. Names are kept in memory, about 200 bytes each. So many SSTs of 64 MiB would be 300 TiB."""

# --- dumps --------------------------------------------------------------------------------------------------------

MOST_DUMP_FILES: Final = 1_000_000
"""Files and folders of a dump."""
MOST_DUMP_LEVELS: Final = 100
"""Levels of folders of a dump. With more levels it is a loop, or not a dump."""
MOST_DUMP_MANIFEST_BYTES: Final = 512 * MIB
"""A manifest of a dump, or a commit of a table: millions of files."""
MOST_FOOTER_BYTES: Final = 64 * MIB
"""The footer of a Parquet file: more than 500,000 column chunks."""
MOST_COLUMNS: Final = 10_000
"""Columns of a Parquet file, nested ones counted singly. Spark's Kafka source has nine."""
MOST_SCHEMA_LEVELS: Final = 100
"""Levels of nesting in a schema. Spark's Kafka source has four, and pyarrow calls itself for each."""
MOST_CHUNKS: Final = 500_000
"""Column chunks of a Parquet file, of all its row groups."""
MOST_FOOTER_ELEMENTS: Final = 20_000_000
"""Elements of all lists in a footer. Writers have about twenty for each column chunk."""
MOST_GROUP_ROWS: Final = 2_147_483_647
"""Rows of a row group. Writers have at most some millions."""
MOST_EXPANSION: Final = 64
"""The decoded bytes of rows that are read together, for each byte that their footers state.

Memory is planned with the footers. Some writers state compressed bytes, and dictionaries repeat values.
"""
LEAST_EXPANDED_BYTES: Final = GIB
"""Fewer decoded bytes are never refused."""
MOST_PAGE_HEADER_BYTES: Final = 16 * MIB
"""The header of a page, which may have statistics. pyarrow has the same limit."""
