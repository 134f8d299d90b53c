package org.apache.kafka.streams.state.internals;

import java.util.Map;
import java.util.TreeMap;

/** The versions in a row of a versioned store's segment, by Streams' own formatter, which no other package can call. */
public final class VersionedRows {
    private VersionedRows() { }

    /** Return time of a version -> its value, without tombstones. */
    public static Map<Long, byte[]> of(final byte[] row) {
        final Map<Long, byte[]> versions = new TreeMap<>();
        final RocksDBVersionedStoreSegmentValueFormatter.SegmentValue value =
            RocksDBVersionedStoreSegmentValueFormatter.deserialize(row);
        long time = RocksDBVersionedStoreSegmentValueFormatter.nextTimestamp(row) - 1;
        final long first = RocksDBVersionedStoreSegmentValueFormatter.minTimestamp(row);
        while (time >= first) {
            final RocksDBVersionedStoreSegmentValueFormatter.SegmentValue.SegmentSearchResult found = value.find(time, true);
            if (found.value() != null) {
                versions.put(found.validFrom(), found.value());
            }
            time = found.validFrom() - 1;
        }
        return versions;
    }
}
