"""Findings of ``check``: what the RocksDB of the release, and the release, open."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.explain.model import SILENT, Texts
from kstate_cli.texts import command

_STORE, _IS_CLOSED = log.SEGMENT_CLOSED
_CLOSED = f"{_STORE.removesuffix('.')} {_IS_CLOSED}"
_VERIFY = f"before that, see which files are damaged: {command('verify', 'APP')}"
_AGAIN = f"then fill it again from a dump: {command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"

LAYOUT: Final = {
    "offsets-in-column-family": Texts(
        "4.3 has opened the store, and an older release is to be started",
        "From 4.3 on changelog offsets lie in the RocksDB, in a column family of their own. One start of 4.3 puts it "
        "there, even one that fails, and upgrade.from does not keep it from that. RocksDB opens a database only with "
        "all of its column families, so up to 4.2 the start fails; window and session stores open without a word, and "
        "empty. Nothing is lost: the offsets are put back where the older release looks for them.",
        (log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, _CLOSED),
    ),
    "sst-too-new": Texts(
        "A file with rows was written in a format that the release's RocksDB does not read",
        "4.0 and later write SSTs of format 6; 3.9 and earlier read up to 5. The rows are good: they are written anew "
        "in the older format.",
        (log.STORE_NOT_OPENED, log.FORMAT_VERSION, _CLOSED),
    ),
    "headers-store": Texts(
        "The store keeps record headers, which the release does not know",
        "It was opened with dsl.store.format=HEADERS, or by a supplier with headers, in 4.3. The headers have no place "
        "in an older store: going back drops them, and keeps keys, values and timestamps.",
        (log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, _CLOSED),
    ),
    "unknown-column-family": Texts(
        "The store has a column family that no store of Kafka Streams has",
        "Something else has written to the directory, or a release that this kstate does not know.",
        (log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, log.UNEXPECTED_FAMILY, _CLOSED),
        do=("before that, find out what made it: a newer kstate may know it", _AGAIN),
    ),
    "unknown-kind": Texts(
        "The release has no stores of this kind",
        "Versioned stores came with 3.5, grace buffers with 3.6, on-window-close stores with 3.3. The release does not "
        "look at the directory; its topology cannot have the store.",
        SILENT,
    ),
    "does-not-open": Texts(
        "RocksDB does not open the store, or makes a new one in its place",
        "An SST that the MANIFEST names is missing or cut off, CURRENT is missing, or the stored offset has not 8 "
        "bytes. Where CURRENT is missing and no write-ahead log lies there, RocksDB makes a new, empty database "
        "without a word, and an old offset makes it look complete.",
        (log.STORE_NOT_OPENED, log.LOG_WITHOUT_CURRENT, log.NOT_A_LONG),
        do=(_VERIFY, _AGAIN),
    ),
    "segment-does-not-open": Texts(
        "A segment of a window or session store does not open, and Streams opens the store without it",
        "Up to 4.2 the exception is swallowed: the store is there without this segment and without every later one, "
        "and its offset says that nothing is missing. Queries and joins miss rows from then on. Only where records are "
        "restored into it does the start fail.",
        (_CLOSED,),
        do=(_VERIFY, _AGAIN),
    ),
    "sessions-before-headers": Texts(
        "On-window-close sessions of an older store would be read wrong as a store with headers",
        "4.3.1 opens such rows as if headers came before the value. It is the rows that are wrong, not the start: "
        "nothing fails until one is read.",
        (log.NOT_A_LONG,),
    ),
    "sst-not-named": Texts(
        "A file with rows lies in the store that its MANIFEST does not name",
        "A crash leaves such files, half written or already replaced, and RocksDB deletes them. Where nothing crashed "
        "the MANIFEST has lost its end: the store opens as it once was, and rows are missing without a word.",
        SILENT,
        do=(_VERIFY,),
    ),
    "not-understood": Texts(
        "Something lies in the directory that kstate does not understand, so nothing is foretold of it",
        "A link, a FIFO, a file where a folder belongs, a RocksDB with foreign settings. A migration or restoration "
        "is refused as long as it is there.",
    ),
}  # fmt: skip
