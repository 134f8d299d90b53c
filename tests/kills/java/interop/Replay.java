package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.streams.state.internals.VersionedRows;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/**
 * An independent replay: what each store must hold by its changelog, next to what its databases hold. The last record of a key
 * is its row; a timestamped store has the record's time before it. Versions are read with Streams' own formatter.
 *
 * <p>In "unstarted" directories the rows that a start will restore, above the offset that is stated, may be missing.
 */
final class Replay {
    private static final Map<String, String> KINDS = Map.ofEntries(Map.entry("kv-plain", "plain"), Map.entry("count", "timestamped"),
        Map.entry("reduce", "timestamped"), Map.entry("kv-timestamped", "timestamped"), Map.entry("window-plain", "window"),
        Map.entry("window-duplicates", "window"), Map.entry("window-reduce", "timestamped-window"),
        Map.entry("window-count", "timestamped-window"), Map.entry("session-reduce", "session"),
        Map.entry("session-count", "session"), Map.entry("session-plain", "session"), Map.entry("join-this-join-store", "window"),
        Map.entry("join-outer-other-join-store", "window"), Map.entry("join-left-shared-join-store", "plain"),
        Map.entry("versioned", "versioned"), Map.entry("grace-table", "versioned"), Map.entry("fk-result", "timestamped"));
    private static final byte[] WITH_TIMESTAMP = "keyValueWithTimestamp".getBytes(StandardCharsets.UTF_8);
    private static final byte[] OFFSETS = "offsets".getBytes(StandardCharsets.UTF_8);
    private static final long LATEST = -1;

    private Replay() { }

    /** A row, ordered by its bytes: of a versioned store key and time. */
    private record Key(byte[] bytes, long time) implements Comparable<Key> {
        @Override
        public int compareTo(final Key o) {
            final int c = Arrays.compareUnsigned(bytes, o.bytes);
            return c != 0 ? c : Long.compare(time, o.time);
        }
    }

    private record Last(byte[] value, long timestamp, long offset) { }

    /** {"lines": dumps of the changelogs, "apps": [{"app", "complete": [DIR, …], "unstarted": [DIR, …]}]}. */
    static int run(final Args args) throws Exception {
        RocksDB.loadLibrary();
        for (final Args each : args.objects("apps")) {
            for (final Map.Entry<String, String> store : new TreeMap<>(KINDS).entrySet()) {
                final String topic = each.need("app") + "-" + store.getKey() + "-changelog";
                final Path dump = Path.of(args.need("lines"), topic + ".jsonl");
                if (!Files.exists(dump)) {
                    continue;
                }
                final TreeMap<Key, Last> log = new TreeMap<>();
                final boolean versioned = store.getValue().equals("versioned");
                Changelogs.read(dump, r -> {
                    final long time = r.get("timestamp").asLong();
                    log.put(new Key(bytes(r, "key"), versioned ? time : 0), new Last(bytes(r, "value"), time, r.get("offset").asLong()));
                });
                for (final String directory : each.all("complete")) {
                    compare(each.need("app"), Path.of(directory), store.getKey(), store.getValue(), topic, log, false);
                }
                for (final String directory : each.all("unstarted")) {
                    compare(each.need("app"), Path.of(directory), store.getKey(), store.getValue(), topic, log, true);
                }
            }
        }
        return 0;
    }

    private static byte[] bytes(final JsonNode record, final String member) {
        return record.get(member).isNull() ? null : Base64.getDecoder().decode(record.get(member).asText());
    }

    private static void compare(final String app, final Path directory, final String store, final String kind, final String topic,
                                final TreeMap<Key, Last> log, final boolean unstarted) throws Exception {
        final TreeMap<Key, byte[]> rows = new TreeMap<>();
        final List<Long> offsets = new ArrayList<>();
        final List<String> broken = new ArrayList<>();
        Path task = null;
        for (final Path database : databases(directory, store)) {
            task = database.getParent().getParent();
            try {
                read(database, kind, topic + "-0", rows, offsets);
            } catch (final RuntimeException e) {
                broken.add(database.getFileName() + ": " + e);
            }
        }
        long from = Long.MAX_VALUE;
        if (unstarted) {
            final Long file = task == null ? null : checkpoint(task.resolve(".checkpoint"), topic);
            // A later release reads the offset of one segment for all of them: the highest is the worst that it may take.
            from = file != null ? file : offsets.stream().mapToLong(Long::longValue).max().orElse(-1);
        }
        final long newest = log.values().stream().mapToLong(Last::timestamp).max().orElse(Long.MIN_VALUE);
        final long live = kind.equals("plain") || kind.equals("timestamped") ? Long.MIN_VALUE
            : newest == Long.MIN_VALUE ? newest : newest - Naming.RETENTION.toMillis();
        long lost = 0;
        long due = 0;
        long extra = 0;
        String first = null;
        for (final Map.Entry<Key, Last> entry : log.entrySet()) {
            final Last last = entry.getValue();
            final byte[] expected = row(kind, last);
            final byte[] actual = rows.remove(entry.getKey());
            if (last.timestamp() < live || last.offset() > from) {
                continue;
            }
            if (expected == null) {
                extra += actual != null && !kind.equals("versioned") ? 1 : 0;
                continue;
            }
            due++;
            if (!Arrays.equals(expected, actual)) {
                lost++;
                first = first != null ? first : "offset " + last.offset() + (actual == null ? " missing" : " different");
            }
        }
        Json.print("event", "compared", "app", app, "directory", directory.toString(), "store", store, "rows", due, "lost", lost,
            "extra", extra + rows.size(), "from", unstarted ? from : null, "offsets", offsets, "first", first,
            "broken", broken, "newest", log.values().stream().mapToLong(Last::offset).max().orElse(-1));
    }

    private static byte[] row(final String kind, final Last last) {
        if (last.value() == null || !kind.startsWith("timestamped")) {
            return last.value();
        }
        return ByteBuffer.allocate(8 + last.value().length).putLong(last.timestamp()).put(last.value()).array();
    }

    private static List<Path> databases(final Path directory, final String store) throws IOException {
        if (!Files.exists(directory)) {
            return List.of();
        }
        try (Stream<Path> files = Files.walk(directory, 4)) {
            return files.filter(f -> f.getFileName().toString().equals("CURRENT")).map(Path::getParent)
                .filter(f -> f.getFileName().toString().equals(store) || f.getParent().getFileName().toString().equals(store))
                .sorted().toList();
        }
    }

    private static Long checkpoint(final Path file, final String topic) throws IOException {
        if (!Files.exists(file)) {
            return null;
        }
        for (final String line : Files.readAllLines(file)) {
            if (line.startsWith(topic + " 0 ")) {
                return Long.parseLong(line.substring(topic.length() + 3));
            }
        }
        return -1L;
    }

    private static void read(final Path database, final String kind, final String changelog, final TreeMap<Key, byte[]> rows,
                             final List<Long> offsets) throws Exception {
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
                } else if (!timestamped || Arrays.equals(name, WITH_TIMESTAMP)) {
                    try (RocksIterator rowsOf = db.newIterator(handle)) {
                        for (rowsOf.seekToFirst(); rowsOf.isValid(); rowsOf.next()) {
                            put(kind, rowsOf.key(), rowsOf.value(), rows);
                        }
                        rowsOf.status();
                    }
                }
            }
            handles.forEach(ColumnFamilyHandle::close);
        }
    }

    private static void put(final String kind, final byte[] key, final byte[] value, final TreeMap<Key, byte[]> rows) {
        if (!kind.equals("versioned")) {
            rows.put(new Key(key, 0), value);
            return;
        }
        final byte[] of = Arrays.copyOfRange(key, 8, key.length);
        if (ByteBuffer.wrap(key).getLong() == LATEST) {
            rows.put(new Key(of, ByteBuffer.wrap(value).getLong()), Arrays.copyOfRange(value, 8, value.length));
        } else {
            final Map<Long, byte[]> versions = new HashMap<>(VersionedRows.of(value));
            versions.forEach((time, version) -> rows.put(new Key(of, time), version));
        }
    }
}
