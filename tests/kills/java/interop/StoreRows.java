package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.Stream;

import org.apache.kafka.streams.state.internals.VersionedRows;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/** The rows of one store, read from its databases, and what these state: offsets, and whether one was left open. */
final class StoreRows {
    private static final byte[] WITH_TIMESTAMP = "keyValueWithTimestamp".getBytes(StandardCharsets.UTF_8);
    private static final byte[] STATUS = "status".getBytes(StandardCharsets.UTF_8);
    private static final byte[] OFFSETS = "offsets".getBytes(StandardCharsets.UTF_8);
    private static final long LATEST = -1;

    /** A row, ordered by its bytes: of a versioned store key and time. */
    record Key(byte[] bytes, long time) implements Comparable<Key> {
        @Override
        public int compareTo(final Key o) {
            final int c = Arrays.compareUnsigned(bytes, o.bytes);
            return c != 0 ? c : Long.compare(time, o.time);
        }
    }

    final TreeMap<Key, byte[]> rows = new TreeMap<>();
    final List<Long> offsets = new ArrayList<>();
    private final String kind;
    private boolean open;

    StoreRows(final String kind) {
        this.kind = kind;
    }

    /** Whether a database states that a run was using it. */
    boolean isOpen() {
        return open;
    }

    /** The databases of a store in a folder: of a segmented store one for each segment. */
    static List<Path> databases(final Path folder, final String store) throws IOException {
        if (!Files.exists(folder)) {
            return List.of();
        }
        try (Stream<Path> files = Files.walk(folder, 4)) {
            return files.filter(f -> f.getFileName().toString().equals("CURRENT")).map(Path::getParent)
                .filter(f -> f.getFileName().toString().equals(store) || f.getParent().getFileName().toString().equals(store))
                .sorted().toList();
        }
    }

    /** Adds the rows of a database, and its offset of a changelog partition. */
    void read(final Path database, final String changelog) throws Exception {
        final List<ColumnFamilyDescriptor> families = new ArrayList<>();
        boolean timestamped = false;
        try (Options options = new Options()) {
            for (final byte[] name : RocksDB.listColumnFamilies(options, database.toString())) {
                families.add(new ColumnFamilyDescriptor(name));
                timestamped |= Arrays.equals(name, WITH_TIMESTAMP);
            }
        }
        final List<ColumnFamilyHandle> handles = new ArrayList<>();
        try (DBOptions options = new DBOptions();
             RocksDB db = RocksDB.openReadOnly(options, database.toString(), families, handles)) {
            for (final ColumnFamilyHandle handle : handles) {
                final byte[] name = handle.getName();
                if (Arrays.equals(name, OFFSETS)) {
                    final byte[] offset = db.get(handle, changelog.getBytes(StandardCharsets.UTF_8));
                    if (offset != null) {
                        offsets.add(ByteBuffer.wrap(offset).getLong());
                    }
                    final byte[] status = db.get(handle, STATUS);
                    open |= status != null && ByteBuffer.wrap(status).getLong() == 1;
                } else if (!timestamped || Arrays.equals(name, WITH_TIMESTAMP)) {
                    try (RocksIterator rowsOf = db.newIterator(handle)) {
                        for (rowsOf.seekToFirst(); rowsOf.isValid(); rowsOf.next()) {
                            put(rowsOf.key(), rowsOf.value());
                        }
                        rowsOf.status();
                    }
                }
            }
            handles.forEach(ColumnFamilyHandle::close);
        }
    }

    private void put(final byte[] key, final byte[] value) {
        if (!kind.equals("versioned")) {
            rows.put(new Key(key, 0), value);
            return;
        }
        final byte[] of = Arrays.copyOfRange(key, 8, key.length);
        if (ByteBuffer.wrap(key).getLong() == LATEST) {
            rows.put(new Key(of, ByteBuffer.wrap(value).getLong()), Arrays.copyOfRange(value, 8, value.length));
        } else {
            VersionedRows.of(value).forEach((time, version) -> rows.put(new Key(of, time), version));
        }
    }
}
