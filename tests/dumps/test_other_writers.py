"""Files as Impala, pandas, and writers with modular encryption leave them."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.open import read_dump

from .support import content, open_dump, rows


class _Keys(encryption.KmsClient):  # type: ignore[misc]
    """A key service that hides nothing."""

    def __init__(self, _: object) -> None:
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("plain_footer", [True, False])
@pytest.mark.parametrize("columns", [["value"], ["key", "value", "offset"]], ids="+".join)
def test_an_encrypted_file_is_refused_by_name(plain_footer: bool, columns: list[str], tmp_path: Path) -> None:
    """Without keys pyarrow ends the process where the footer is in plain text and a column is not."""
    factory = encryption.CryptoFactory(_Keys)
    configuration = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": columns}, plaintext_footer=plain_footer
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), configuration)
    path, table = tmp_path / "a.parquet", rows()
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(DumpError, match="is encrypted") as caught:
        read_dump(str(tmp_path), complete=True, committed_only=False)
    assert caught.value.where == str(path) and caught.value.exit_code == 4


def test_int96_of_impala_has_no_zone(tmp_path: Path) -> None:
    """Impala writes the local time of its host. Every other writer of INT96 writes UTC."""
    path = tmp_path / "a.parquet"
    pq.write_table(rows(), path, use_deprecated_int96_timestamps=True)
    assert open_dump(tmp_path).warnings == ()
    own = f"parquet-cpp-arrow version {pa.__version__}".encode()
    data = path.read_bytes()
    assert data.count(own) == 1
    path.write_bytes(data.replace(own, b"impala version 4.1".ljust(len(own))))
    assert [*open_dump(tmp_path).warnings] == ["kstate reads timestamps without a time zone as UTC"]


def test_records_without_a_timestamp_are_counted(tmp_path: Path) -> None:
    """A conversion that fails leaves null, which becomes -1."""
    table = rows(count=5)
    at = table.schema.get_field_index("timestamp")
    times = pa.array([None, 1, None, 2, 3], pa.timestamp("us", tz="UTC"))
    pq.write_table(table.set_column(at, "timestamp", times), tmp_path / "a.parquet")
    assert [
        "2 records have no timestamp (null). Like Kafka, kstate writes -1 for them" in warning
        for warning in open_dump(tmp_path).warnings
    ] == [True]


@pytest.mark.parametrize("name", ["headers", "timestampType"])
def test_optional_column_of_type_null_counts_as_missing(name: str, tmp_path: Path) -> None:
    """A writer that derives types from values, and had none."""
    table = rows()
    missing = table.drop_columns([name])
    pq.write_table(
        table.set_column(table.schema.get_field_index(name), name, pa.nulls(len(table))), tmp_path / "a.parquet"
    )
    dump = open_dump(tmp_path)
    assert dump.has_headers == (name != "headers")
    typed = content(dump)
    pq.write_table(missing, tmp_path / "a.parquet")
    assert content(open_dump(tmp_path)) == typed


def test_values_of_type_null_are_refused(tmp_path: Path) -> None:
    """All values lost by a conversion would be deletes of every key."""
    table = rows()
    lost = table.set_column(table.schema.get_field_index("value"), "value", pa.nulls(len(table)))
    pq.write_table(lost, tmp_path / "a.parquet")
    with pytest.raises(DumpError, match="column value has type null"):
        read_dump(str(tmp_path), complete=True, committed_only=False)
