package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import org.rocksdb.RocksDB;

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

    private Replay() { }

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
                final TreeMap<StoreRows.Key, Last> log = new TreeMap<>();
                final boolean versioned = store.getValue().equals("versioned");
                Changelogs.read(dump, r -> {
                    final long time = r.get("timestamp").asLong();
                    log.put(new StoreRows.Key(bytes(r, "key"), versioned ? time : 0), new Last(bytes(r, "value"), time, r.get("offset").asLong()));
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
                                final TreeMap<StoreRows.Key, Last> log, final boolean unstarted) throws Exception {
        final StoreRows content = new StoreRows(kind);
        final List<String> broken = new ArrayList<>();
        Path task = null;
        for (final Path database : StoreRows.databases(directory, store)) {
            task = database.getParent().getParent();
            try {
                content.read(database, topic + "-0");
            } catch (final RuntimeException e) {
                broken.add(database.getFileName() + ": " + e);
            }
        }
        long from = Long.MAX_VALUE;
        if (unstarted) {
            final Long file = task == null ? null : checkpoint(task.resolve(".checkpoint"), topic);
            // A later release reads the offset of one segment for all of them: the highest is the worst that it may take.
            from = file != null ? file : content.offsets.stream().mapToLong(Long::longValue).max().orElse(-1);
        }
        final long newest = log.values().stream().mapToLong(Last::timestamp).max().orElse(Long.MIN_VALUE);
        final long live = kind.equals("plain") || kind.equals("timestamped") ? Long.MIN_VALUE
            : newest == Long.MIN_VALUE ? newest : newest - Naming.RETENTION.toMillis();
        long lost = 0;
        long due = 0;
        long extra = 0;
        String first = null;
        for (final Map.Entry<StoreRows.Key, Last> entry : log.entrySet()) {
            final Last last = entry.getValue();
            final byte[] expected = row(kind, last);
            final byte[] actual = content.rows.remove(entry.getKey());
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
            "extra", extra + content.rows.size(), "from", unstarted ? from : null, "offsets", content.offsets, "first", first,
            "broken", broken, "newest", log.values().stream().mapToLong(Last::offset).max().orElse(-1));
    }

    private static byte[] row(final String kind, final Last last) {
        if (last.value() == null || !kind.startsWith("timestamped")) {
            return last.value();
        }
        return ByteBuffer.allocate(8 + last.value().length).putLong(last.timestamp()).put(last.value()).array();
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
}
