package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.streams.state.internals.RecordConverter;
import org.apache.kafka.streams.state.internals.RecordConverters;
import org.rocksdb.RocksDB;

/**
 * An independent replay of changelogs as the broker has them, next to the rows of directories. Values are converted by the
 * converters with which Streams restores, versions are read by Streams' own formatter.
 *
 * <p>A row is right if it is what the log had at the stated offset, or at any later one: a killed store may be ahead.
 */
final class Compare {
    private static final Set<String> EXPIRING =
        Set.of("window", "timestamped-window", "session", "versioned", "time-ordered-window", "time-ordered-session");

    private Compare() { }

    private record Entry(byte[] value, long timestamp, long offset) { }

    /** The history of each row of one changelog partition, and where it ends. */
    private static final class Log {
        final TreeMap<StoreRows.Key, List<Entry>> rows = new TreeMap<>();
        long newest = Long.MIN_VALUE;
        long last = -1;
    }

    /**
     * {"apps": [{"app", "stores": [{"store", "kind", "topic", "global"}], "directories": [DIR, …]}]}. Stores whose kind is
     * "opaque" are read, and not compared with a log.
     */
    static int run(final Args args) throws Exception {
        RocksDB.loadLibrary();
        final Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> logs = read(args);
        for (final Args each : args.objects("apps")) {
            for (final Args store : each.objects("stores")) {
                final Map<Integer, Log> replayed = new HashMap<>();
                for (final String directory : each.all("directories")) {
                    for (final Path task : tasks(Path.of(directory), store.need("store"))) {
                        final String name = task.getFileName().toString();
                        final int partition = name.equals("global") ? 0 : Integer.parseInt(name.substring(name.indexOf('_') + 1));
                        final Log log = replayed.computeIfAbsent(partition, p -> replay(store.need("kind"),
                            logs.getOrDefault(new TopicPartition(store.get("topic", ""), p), List.of())));
                        compare(each.need("app"), directory, task, partition, store, log);
                    }
                }
            }
        }
        return 0;
    }

    private static Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> read(final Args args) throws Exception {
        final TreeSet<String> topics = new TreeSet<>();
        args.objects("apps").forEach(app -> app.objects("stores").forEach(s -> topics.add(s.get("topic", ""))));
        final Properties p = Topics.client(args.need("bootstrap"));
        p.put("isolation.level", "read_committed");
        p.put("enable.auto.commit", "false");
        p.put("max.poll.records", "20000");
        p.put("fetch.max.wait.ms", "10");
        final Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> logs = new HashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            final List<TopicPartition> all = new ArrayList<>();
            consumer.listTopics().forEach((topic, partitions) -> {
                if (topics.contains(topic)) {
                    partitions.forEach(i -> all.add(new TopicPartition(topic, i.partition())));
                }
            });
            if (all.isEmpty()) {
                return logs;
            }
            final Map<TopicPartition, Long> end = consumer.endOffsets(all);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            final long deadline = System.nanoTime() + Duration.ofMinutes(5).toNanos();
            while (all.stream().anyMatch(tp -> consumer.position(tp) < end.get(tp))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the changelogs cannot be read to their ends");
                }
                for (final ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    logs.computeIfAbsent(new TopicPartition(record.topic(), record.partition()), tp -> new ArrayList<>()).add(record);
                }
            }
        }
        return logs;
    }

    private static Log replay(final String kind, final List<ConsumerRecord<byte[], byte[]>> records) {
        final Log log = new Log();
        final RecordConverter converter =
            kind.startsWith("timestamped") ? RecordConverters.rawValueToTimestampedValue() : RecordConverters.identity();
        for (final ConsumerRecord<byte[], byte[]> record : records) {
            log.newest = Math.max(log.newest, record.timestamp());
            log.last = record.offset();
            final byte[] value = record.value() == null ? null : converter.convert(record).value();
            log.rows.computeIfAbsent(new StoreRows.Key(record.key(), kind.equals("versioned") ? record.timestamp() : 0), k -> new ArrayList<>())
                .add(new Entry(value, record.timestamp(), record.offset()));
        }
        return log;
    }

    private static List<Path> tasks(final Path directory, final String store) throws IOException {
        if (!Files.isDirectory(directory)) {
            return List.of();
        }
        try (Stream<Path> all = Files.list(directory)) {
            return all.filter(task -> Files.isDirectory(task.resolve("rocksdb").resolve(store))
                || Files.isDirectory(task.resolve(store))).filter(Files::isDirectory).sorted().toList();
        }
    }

    private static void compare(final String app, final String directory, final Path task, final int partition, final Args store,
                                final Log log) throws Exception {
        final String kind = store.need("kind");
        final StoreRows content = new StoreRows(kind);
        final List<String> broken = new ArrayList<>();
        final String changelog = store.get("topic", "") + "-" + partition;
        for (final Path database : StoreRows.databases(task, store.need("store"))) {
            try {
                content.read(database, changelog);
            } catch (final Exception e) {
                broken.add(database.getFileName() + ": " + e);
            }
        }
        final Long file = checkpoint(task.resolve(".checkpoint"), store.get("topic", ""), partition);
        // A later release reads the offset of one segment for all of them: the highest is the worst that it may take.
        long from = file != null ? file : content.offsets.stream().mapToLong(Long::longValue).max().orElse(-1);
        if (store.has("global") && from >= 0) {
            from--; // the offset of a global store is the next one
        }
        final String digest = digest(content.rows);
        final int count = content.rows.size();
        long lost = 0;
        long ahead = 0;
        long extra = 0;
        String first = null;
        if (!kind.equals("opaque")) {
            final long live = EXPIRING.contains(kind) && log.newest != Long.MIN_VALUE
                ? log.newest - Naming.RETENTION.toMillis() : Long.MIN_VALUE;
            for (final Map.Entry<StoreRows.Key, List<Entry>> entry : log.rows.entrySet()) {
                final byte[] actual = content.rows.remove(entry.getKey());
                final List<Entry> history = entry.getValue();
                if (history.get(history.size() - 1).timestamp() < live) {
                    continue;
                }
                Entry expected = new Entry(null, 0, -1);
                boolean later = false;
                for (final Entry each : history) {
                    if (each.offset() <= from) {
                        expected = each;
                    } else {
                        later |= Arrays.equals(each.value(), actual);
                    }
                }
                if (Arrays.equals(expected.value(), actual)) {
                    continue;
                }
                if (later) {
                    ahead++;
                } else if (expected.value() == null) {
                    extra++;
                } else {
                    lost++;
                    first = first != null ? first : "offset " + expected.offset() + (actual == null ? " missing" : " different");
                }
            }
            extra += content.rows.size();
        }
        Json.print("event", "compared", "app", app, "directory", directory, "task", task.getFileName().toString(), "store",
            store.need("store"), "rows", count, "digest", digest, "from", from, "last", log.last, "offsets", content.offsets, "lost", lost,
            "ahead", ahead, "extra", extra, "first", first, "broken", broken, "open", content.isOpen());
    }

    private static String digest(final TreeMap<StoreRows.Key, byte[]> rows) throws Exception {
        final MessageDigest sha = MessageDigest.getInstance("SHA-256");
        for (final Map.Entry<StoreRows.Key, byte[]> row : rows.entrySet()) {
            sha.update(ByteBuffer.allocate(16).putInt(row.getKey().bytes().length).putLong(row.getKey().time())
                .putInt(row.getValue() == null ? -1 : row.getValue().length).array());
            sha.update(row.getKey().bytes());
            sha.update(row.getValue() == null ? new byte[0] : row.getValue());
        }
        return HexFormat.of().formatHex(sha.digest(), 0, 8);
    }

    private static Long checkpoint(final Path file, final String topic, final int partition) throws IOException {
        if (!Files.exists(file)) {
            return null;
        }
        final String prefix = topic + " " + partition + " ";
        for (final String line : Files.readAllLines(file)) {
            if (line.startsWith(prefix)) {
                return Long.parseLong(line.substring(prefix.length()));
            }
        }
        return null;
    }
}
