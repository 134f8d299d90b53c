package org.apache.kafka.streams.state.internals;

import java.util.List;
import java.util.Locale;
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
        long time = time("NextTimestamp", row) - 1;
        final long first = time("MinTimestamp", row);
        while (time >= first) {
            final RocksDBVersionedStoreSegmentValueFormatter.SegmentValue.SegmentSearchResult found = value.find(time, true);
            if (found.value() != null) {
                versions.put(found.validFrom(), found.value());
            }
            time = found.validFrom() - 1;
        }
        return versions;
    }

    /** The formatter's method of this name: "getNextTimestamp" up to 3.9, "nextTimestamp" later. */
    private static long time(final String name, final byte[] row) {
        for (final String method : List.of("get" + name, name.substring(0, 1).toLowerCase(Locale.ROOT) + name.substring(1))) {
            try {
                return (long) RocksDBVersionedStoreSegmentValueFormatter.class.getDeclaredMethod(method, byte[].class).invoke(null, row);
            } catch (final NoSuchMethodException other) {
                continue;
            } catch (final ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }
        throw new IllegalStateException(name);
    }
}
