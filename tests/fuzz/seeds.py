"""Real bytes for each target: rows and files of the golden directories, and what commands of kstate write about them.

Manifests of dumps, and metadata that only brokers and Spark give, are written here by kstate's own functions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from kstate_cli.dump_reader import growing, manifest
from kstate_cli.dump_reader.model import (
    ClockMark,
    Forgotten,
    Full,
    Grown,
    GrownFile,
    LastRecord,
    Round,
    RowGroup,
    TailRecord,
)
from kstate_cli.formats.binary import masked
from kstate_cli.formats.offsets import Position
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.formats.values import ListEntry, encode_list
from kstate_cli.jars import PROPERTIES
from kstate_cli.rocks.shadow import Shadow
from tests.golden import unpack

from .targets import TARGETS, frame, run, schema_bytes

ROOT: Final = Path(__file__).resolve().parents[2]
_DIRECTORIES: Final = (
    "3.2.3-kinds-eos",
    "3.9.2-kinds-eos",
    "3.9.2-sparse-named-eos",
    "4.3.1-headers-eos",
    "4.3.1-kinds-eos",
)
_OF_ROWS: Final = (
    *("position", "window-key", "session-key", "versioned-key", "join-side-key", "combined-key", "timestamped-value"),
    *(
        "headers-value",
        "headers-session-value",
        "index-value",
        "list-value",
        "subscription-wrapper",
        "subscription-row",
    ),
    *("buffer-value", "latest-value", "segment-value"),
)
_KEY: Final = TopicPartition("app-count-changelog", 0)
_DIGEST: Final = "ab" * 32
Inputs = dict[str, list[bytes]]


def seeds() -> Inputs:
    """Return inputs of every target."""
    inputs: Inputs = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for directory in _DIRECTORIES:
            app = unpack(directory, folder / directory)
            _files(app, inputs)
            _rows(app, inputs)
        _commands(folder / "4.3.1-kinds-eos", folder / "repository", inputs)
        _jar(folder, inputs)
    _dumps(inputs)
    _texts(inputs)
    return {target: sorted(set(inputs[target])) for target in TARGETS}


def _files(app: Path, inputs: Inputs) -> None:
    kinds = {
        "checkpoint": ".checkpoint*",
        "position-file": "*.position",
        "options": "OPTIONS-*",
        "rocksdb-manifest": "MANIFEST-*",
        "process-id": "kafka-streams-process-metadata",
    }
    for target, pattern in kinds.items():
        for path in [*sorted(app.rglob(pattern)), *sorted(app.glob(pattern))][::3]:
            inputs[target].append(path.read_bytes())
    for path in sorted(app.rglob("*.sst"), key=lambda path: path.stat().st_size)[:8]:
        data = path.read_bytes()
        inputs["sst-properties"].append(data)
        inputs["sst-footer"].append(data[-53:])
    for path in sorted(app.rglob("*")):
        inputs["name"].append(path.name.encode())
    inputs["name"] += [b"__topology__/0_1", b"global", b"store.1704067200000", b"store:60000", b"store-202601010000"]


def _rows(app: Path, inputs: Inputs) -> None:
    for current in sorted(app.rglob("CURRENT")):
        with Shadow(current.parent) as shadow:
            for family in shadow.column_families:
                rows = list(shadow.rows(family))
                sample = [*rows[:2], *rows[-1:]]
                if family == OFFSETS_CF:
                    inputs["offsets-rows"].append(frame(rows))
                    inputs["topic-partition"] += [key for key, _ in rows]
                else:
                    inputs["kind"].append(bytes((255, 1)) + bytes(6) + frame(sample))
                    inputs["kind"].append(bytes((1 << len(inputs["kind"]) % 8, 0)) + frame(sample))
                for data in (part for row in sample for part in row):
                    for target in _OF_ROWS:
                        if (target not in ("window-key", "session-key") and _reads(target, data)) or (
                            len(data) < 40 and _reads(target, data)
                        ):
                            inputs[target].append(data)
    inputs["position"].append(Position.from_map({"a": {0: 1, 7: -1}, "b": {1: 1 << 40}}).to_bytes())


def _reads(target: str, data: bytes) -> bool:
    return run(TARGETS[target], data)


def _kstate(*arguments: str | Path) -> bytes:
    command = [sys.executable, "-m", "kstate_cli", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, cwd=ROOT).stdout


def _commands(state: Path, repository: Path, inputs: Inputs) -> None:
    """Add what commands write about a directory: a repository, a journal, listings, a specification."""
    app = next(path for path in sorted(state.iterdir()) if path.is_dir() and not path.name.startswith("."))
    inputs["kstate-toml"].append(_kstate("ls", app, "--spec"))
    listing = _kstate("ls", app, "-o", "json")
    (state / "web-1.json").write_bytes(listing)
    inputs["fleet"] += [listing, b'{"host": "web-2"}\n' + listing]
    inputs["fleet-listing"].append(_kstate("fleet", state / "web-1.json", "-o", "json"))
    _kstate("snapshot", app, "--out", repository, "--task", "0_0")
    inputs["generation"] += [path.read_bytes() for path in sorted(repository.glob("generations/*.json"))]
    inputs["snapshots-marker"] += [path.read_bytes() for path in sorted(repository.glob("*.json"))]
    _kstate("migrate", app, "--to", "4.2")
    _kstate("undo", app)
    inputs["change-journal"] += [path.read_bytes() for path in sorted(state.rglob("journal.jsonl"))]
    inputs["mark"].append(b'{"schema_version": 1, "token": "3f1c"}\n')


def _jar(folder: Path, inputs: Inputs) -> None:
    path = folder / "a.jar"
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), "Manifest-Version: 1.0\n")
            archive.writestr(zipfile.ZipInfo(PROPERTIES), "commitId=1\nversion=4.3.1\n")
        inputs["jar"].append(path.read_bytes())


def _dumps(inputs: Inputs) -> None:
    for path in sorted((ROOT / "examples" / "dump").rglob("*.parquet")):
        inputs["parquet-footer"].append(path.read_bytes())
    inputs["dump-manifest"].append((ROOT / "examples" / "dump" / manifest.NAME).read_bytes())
    reading = manifest.Reading(1_000, 2_000, "compact", 86_400_000, 3, _DIGEST, 604_800_000, 0)
    partition = manifest.ManifestPartition(_KEY.topic, 0, 0, 9, 1, 7, 5, "AAAAAAAAAAAAAAAAAAAAAA", 0, reading)
    file = manifest.ManifestFile("t/p0.parquet", 4_711, _DIGEST, _KEY.topic, 0)
    inputs["dump-manifest"].append(
        manifest.render(manifest.Manifest("read_committed", (partition,), (file,), {TopicPartition("in", 0): 9}))
    )
    grown_file = GrownFile("t/0/a.parquet", 99, _DIGEST, (RowGroup(0, 9, 8, 700, 80), RowGroup(10, 12, 3, 70, 8)))
    full = Full(
        *(_KEY, 2, 0, 90, 5_000, (Round(0, 20, 1_000, 2_000), Round(20, 40, 2_000, 3_000)), (grown_file,)),
        *("AAAAAAAAAAAAAAAAAAAAAA", "compact", 86_400_000, 0, LastRecord(12, _DIGEST), 1, 2),
        *((TailRecord(11, "ab" * 8, "cd" * 8, None, False), TailRecord(12, "ab" * 8, "cd" * 8, 3, True)), 7, 1),
    )
    clock = ClockMark("boot", 1, 2, 3, 4, "utc")
    grown = Grown(7, "read_committed", (full,), {_KEY: 9}, (Forgotten("t/0/b.parquet", 5),), clock)
    inputs["growing-manifest"].append(growing.render(grown))
    source = [("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())]
    source += [("offset", pa.int64()), ("timestamp", pa.timestamp("ns")), ("timestampType", pa.int32())]
    headers = ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    inputs["parquet-schema"] += [schema_bytes(source), schema_bytes([*source, headers]), schema_bytes(source[::-1])]
    entries = (ListEntry(left=True, value=b"a"), None, ListEntry(left=False, value=b""))
    inputs["list-value"] += [encode_list(entries[:count]) for count in range(4)]
    for compressed in (0, 1):
        inputs["blob"].append(_blob(compressed))


def _blob(compression: int) -> bytes:
    """Return a blob file of two records, as RocksDB writes it."""
    magic, version = (2_395_959).to_bytes(4, "little"), (1).to_bytes(4, "little")
    out = magic + version + bytes(4) + bytes((0, compression)) + bytes(16)
    for key, value in ((b"k0", b"value"), (b"k1", b"")):
        head = len(key).to_bytes(8, "little") + len(value).to_bytes(8, "little") + bytes(8)
        sums = masked(head).to_bytes(4, "little") + masked(key + value).to_bytes(4, "little")
        out += head + sums + key + value
    footer = magic + (2).to_bytes(8, "little") + bytes(16)
    return out + footer + masked(footer).to_bytes(4, "little")


_ROWS: Final[Mapping[str, Sequence[object]]] = {
    "json": [{"a": [1, None, True, "é", {"b": 0.5}]}, [], "text"],
    "standby": [{"schema_version": 1, "run": "0001-restore", "before": _DIGEST, "after": _DIGEST}],
    "ages": [
        {
            "schema_version": 1,
            "stores": {
                "0_0/count": [
                    {
                        "run": "0001-restore",
                        "as_of_ms": 1_700_000_000_000,
                        "identity": None,
                        "offsets": [["app-count-changelog", 0, 39]],
                        "clock": {"boot": "b", "boot_ms": 1, "time_ms": 2, "wall_ms": 3, "scale": ""},
                        "logs": [["app-count-changelog", 0, {"topic_id": "id", "leader_epoch": 1, "last": 38}]],
                    }
                ]
            },
        }
    ],
    "condemned": [{"created_ms": 1, "generations": ["20261126T120000.000Z-0123456789abcdef"], "objects": [_DIGEST]}],
    "intent": [{"condemned": ["20261126T120000.000Z-01234567"]}, {"pid": 7, "host": "web-1", "condemned": []}],
    "maintain-memory": [
        {
            "format": 1,
            "results": [
                {
                    "step": "dump",
                    "of": None,
                    "began_ms": 1,
                    "ended_ms": 2,
                    "exit": 0,
                    "success_ms": 1,
                    "message": None,
                    "findings": {"warning stale": 1},
                    "lags": [
                        {"task": "0_0", "store": "count", "lag": 1, "lag_seconds": 0.5, "reached": {"t": {"0": 9}}}
                    ],
                }
            ],
            "parts": {"app": [1, 7, 1_000, None]},
            "shares": {
                "app": {
                    "parts": 7,
                    "cut": {"1": [[1, 14], [8, 14]]},
                    "of_part": 1,
                    "waiting": [[8, 14]],
                    "began_ms": None,
                    "incomplete": False,
                }
            },
        }
    ],
    "staging-note": [
        {"slice": "0_0 count 0", "pid": 1},
        {
            "task": "0_0",
            "store": "count",
            "number": 0,
            "records": 1,
            "data_bytes": 2,
            "identity": "i",
            "files": [],
            "seal": "",
            "positions": [[None, {"t": {"0": 1}}]],
        },
    ],
    "barrier": [
        {
            "schema_version": 1,
            "host": "web-1",
            "token": "t",
            "hosts": 2,
            "seen": {"web-2": "u"},
            "left": False,
            "beat": 3,
            "gone_on": False,
        }
    ],
    "verified": [
        {
            "format": 1,
            "place": "/dump",
            "parts": 7,
            "verified": {"1": {"at_ms": 5, "generation": 2, "files": 3, "damaged": 0}},
            "unfinished": {"2": {"began_ms": 6, "files": {"t/0/a.parquet": _DIGEST}}},
        }
    ],
    "log-facts": [
        {
            "app-count-changelog": {
                "0": {"start": 0, "end": 42, "id": "AAAAAAAAAAAAAAAAAAAAAA", "committed": 7, "policy": "compact"},
                "1": {"start": 1, "end": 2, "delete_retention_ms": 86_400_000, "leader_epoch": 3, "retention_ms": 1},
            }
        }
    ],
    "committed-offsets": [{"in": {"0": 42, "1": 0}}],
}
_LINES: Final[Mapping[str, Sequence[Sequence[object]]]] = {
    "seed-journal": [
        [
            {"event": "planned", "app": "app", "source_app": "a", "dump": "/dump", "digest": _DIGEST},
            {"event": "announced", "topic": _KEY.topic},
            {"event": "created", "topic": _KEY.topic, "id": "AAAAAAAAAAAAAAAAAAAAAA"},
            {"event": "verified", "topic": _KEY.topic, "ends": {"0": 9}},
            {"event": "committing", "committed": [["in", 0, 9, "4142", None], ["in", 1, 2, "", 3]]},
            {"event": "done", "source_app": "a", "topics": 1, "records": 2, "copied": 3},
        ],
        [
            {"event": "planned", "app": "app", "source_app": "a", "dump": "/dump", "digest": _DIGEST},
            {"event": "undone"},
        ],
    ],
    "delta-log": [
        [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"add": {"path": "partition=0/p.parquet", "size": 5, "partitionValues": {"partition": "0"}}},
        ],
        [
            {"commitInfo": {"operation": "OPTIMIZE"}},
            {"metaData": {"id": "x", "configuration": {"delta.columnMapping.mode": "none"}}},
            {
                "add": {
                    "path": "topic=a/p.parquet",
                    "size": 5,
                    "partitionValues": {"topic": "a"},
                    "stats": '{"numRecords":3}',
                }
            },
            {"remove": {"path": "old.parquet", "dataChange": False, "size": 5}},
        ],
    ],
}
_CLIENT: Final = b"""# of Kafka's own tools
bootstrap.servers=127.0.0.1:9092
security.protocol=SASL_SSL
ssl.truststore.location=/ca.pem
ssl.truststore.type=PEM
ssl.keystore.location=/k.p12
ssl.keystore.type=PKCS12
ssl.endpoint.identification.algorithm=
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="al\\"ice" password=secret;
request.timeout.ms=5000
"""
_SERDES: Final = (
    *(
        b"string\nalice",
        b'json\n{"id":1,"a":[null,0.5]}',
        b"long\n" + bytes(8),
        b"double\n" + bytes(8),
        b"boolean\n\x01",
    ),
    *(b"uuid\n12345678-1234-1234-1234-123456789abc", b"hex\n\x00\xff", b"base64\n\x00\xff", b"int\n" + bytes(4)),
    *(b"time-windowed:string:60000\nk" + bytes(8), b"session-windowed:long\n" + bytes(24), b"float\n" + bytes(4)),
    b"time-windowed:session-windowed:bytes\nk" + bytes(24),
)
_SERDE_TEXTS: Final = (
    *(
        b"string\nalice",
        b'json\n{"id":1}',
        b"long\n-42",
        b"double\nNaN",
        b"boolean\ntrue",
        b"hex\n00ff",
        b"base64\nAP8=",
    ),
    *(b"uuid\n12345678-1234-1234-1234-123456789abc", b"bytes\n\\x00\\x2a", b"time-windowed:string:60000\nk@0/60000"),
    b"session-windowed:long\n1@2026-01-01/2026-01-02T00:00:00Z",
)
_TIMES: Final = (
    b"now",
    b"-1d",
    b"12:00",
    b"yesterday",
    b"2023-11-14T22:13:20.5Z",
    b"20240501ms",
    b"1700000000000",
    b"12h",
)


def _texts(inputs: Inputs) -> None:
    for target, documents in _ROWS.items():
        inputs[target] += [json.dumps(document).encode() for document in documents]
    for target, files in _LINES.items():
        inputs[target] += [b"".join(json.dumps(line).encode() + b"\n" for line in lines) for lines in files]
    for path in sorted((ROOT / "tests" / "unit" / "specification" / "topologies").glob("*.txt")):
        inputs["topology"].append(path.read_bytes())
    inputs["kstate-toml"] += [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.toml"))]
    inputs["properties"].append(_CLIENT)
    inputs["serde"] += _SERDES
    inputs["serde-text"] += _SERDE_TEXTS
    inputs["times"] += _TIMES
    inputs["size"] += [b"2G", b"1500M", b"7", b"1 GiB"]
    # TopicPartitionMetadata of Kafka Streams: Base64 of a version and a time.
    inputs["group-metadata"] += [b"AgAAAYzeOVoA", b""]


def targets_without_input(inputs: Inputs) -> Iterator[str]:
    """Yield the targets of which no input is read: their fuzzing would begin with nothing."""
    for target in TARGETS.values():
        if not any(run(target, data) for data in inputs[target.name]):
            yield target.name
