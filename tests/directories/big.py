"""An application directory with one timestamped store of many rows, for what takes a while."""

from __future__ import annotations

from pathlib import Path

from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

FAMILY = "keyValueWithTimestamp"
STORE = "count"


def make_big(app: Path, *, tasks: int, rows: int, value_bytes: int = 100) -> Path:
    """``rows`` in each task, keys ascending."""
    app.mkdir(parents=True)
    (app / ".lock").touch()
    for task in range(tasks):
        path = app / f"0_{task}" / "rocksdb" / STORE
        path.mkdir(parents=True)
        with_families = Options(raw_mode=True)
        with_families.create_if_missing(True)
        with_families.create_missing_column_families(True)
        with_families.set_compression_type(DBCompressionType.none())
        db = Rdict(str(path), with_families, column_families=dict.fromkeys(("default", FAMILY), with_families))
        handle, family = db.get_column_family_handle(FAMILY), db.get_column_family(FAMILY)
        fast = WriteOptions()
        fast.disable_wal = True  # type: ignore[method-assign, assignment]  # a property, which its stub calls a method
        for begin in range(0, rows, 1000):
            batch = WriteBatch(raw_mode=True)
            for number in range(begin, min(rows, begin + 1000)):
                value = number.to_bytes(8, "big") + b"%08d" % number * (value_bytes // 8)
                batch.put(b"key-%010d" % number, value, handle)
            db.write(batch, fast)
        family.flush()
        family.compact_range(None, None)
        del family
        db.close()
    return app
