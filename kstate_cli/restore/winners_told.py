"""What is told of the keys of a slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints


@dataclass(frozen=True, slots=True)
class Winners:
    """The last record of each key that was added."""

    keys: pa.BinaryArray
    """Distinct changelog keys, sorted as RocksDB does."""
    record: Ints
    """For each key the number of its last record, counted over the slice's records."""
