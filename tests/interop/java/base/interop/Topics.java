package interop;

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Topic listing, raw dumps and clean-up. */
final class Topics {
    private Topics() { }

    static final class KeyTime {
        final byte[] key;
        final long timestamp;
        final int partition;

        KeyTime(final byte[] key, final long timestamp, final int partition) {
            this.key = key;
            this.timestamp = timestamp;
            this.partition = partition;
        }
    }

    static Properties client(final String bootstrap) {
        final Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        return p;
    }

    static TreeMap<String, TopicDescription> describe(final Admin admin) throws Exception {
        return new TreeMap<>(admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get());
    }

    /** The topics whose names pass, and no others: an old broker may have thousands. */
    static TreeMap<String, TopicDescription> describe(final Admin admin, final Predicate<String> wanted) throws Exception {
        final List<String> names = admin.listTopics().names().get().stream().filter(wanted).collect(Collectors.toList());
        return new TreeMap<>(admin.describeTopics(names).allTopicNames().get());
    }

    /** Reads the whole topic as of now; returns per partition {beginning, end, number of records}. */
    static TreeMap<Integer, long[]> scan(final String bootstrap, final String topic, final String isolation,
                                         final Consumer<ConsumerRecord<byte[], byte[]>> sink) {
        final Properties p = client(bootstrap);
        p.put("isolation.level", isolation);
        p.put("enable.auto.commit", "false");
        p.put("max.poll.records", "5000");
        p.put("fetch.max.wait.ms", "10");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            final List<TopicPartition> tps = consumer.partitionsFor(topic).stream()
                .map(i -> new TopicPartition(topic, i.partition())).collect(Collectors.toList());
            final Map<TopicPartition, Long> begin = consumer.beginningOffsets(tps);
            final Map<TopicPartition, Long> end = consumer.endOffsets(tps);
            final TreeMap<Integer, long[]> summary = new TreeMap<>();
            for (final TopicPartition tp : tps) { // one partition after the other: rows come out in offset order
                final long[] counts = {begin.get(tp), end.get(tp), 0};
                summary.put(tp.partition(), counts);
                consumer.assign(List.of(tp));
                consumer.seek(tp, counts[0]);
                final long deadline = System.nanoTime() + Duration.ofMinutes(10).toNanos();
                while (consumer.position(tp) < counts[1]) {
                    if (System.nanoTime() > deadline) {
                        throw new IllegalStateException(tp + " stopped at " + consumer.position(tp) + " of " + counts[1]);
                    }
                    for (final ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        if (record.offset() < counts[1]) {
                            counts[2]++;
                            sink.accept(record);
                        }
                    }
                }
            }
            return summary;
        }
    }

    static List<KeyTime> index(final String bootstrap, final String topic) {
        final List<KeyTime> list = new ArrayList<>();
        scan(bootstrap, topic, "read_committed", r -> list.add(new KeyTime(r.key(), r.timestamp(), r.partition())));
        return list;
    }

    static int dumpChangelogs(final Args args) throws Exception {
        for (int i = 0; i < args.all("topics").size(); i++) {
            dumpChangelog(args, args.all("topics").get(i), Path.of(args.all("files").get(i)));
        }
        return 0;
    }

    private static void dumpChangelog(final Args args, final String topic, final Path file) throws Exception {
        final Map<Integer, Integer> tombstones = new HashMap<>();
        final TreeMap<Integer, long[]> summary;
        try (BufferedWriter out = Files.newBufferedWriter(file, StandardCharsets.UTF_8)) {
            summary = scan(args.need("bootstrap"), topic, args.get("isolation", "read_committed"), r -> {
                final String line = Json.write(Json.obj("partition", r.partition(), "offset", r.offset(),
                    "timestamp", r.timestamp(), "timestampType", r.timestampType().toString(),
                    "key", StoreDump.base64(r.key()), "value", StoreDump.base64(r.value()),
                    "headers", StoreDump.headers(r.headers())));
                if (r.value() == null) {
                    tombstones.merge(r.partition(), 1, Integer::sum);
                }
                try {
                    out.write(line);
                    out.write('\n');
                } catch (final java.io.IOException e) {
                    throw new java.io.UncheckedIOException(e);
                }
            });
            final Map<String, Object> partitions = new LinkedHashMap<>();
            summary.forEach((p, c) -> partitions.put(p.toString(), Json.obj("begin", c[0], "end", c[1], "records", c[2],
                "tombstones", tombstones.getOrDefault(p, 0))));
            final Map<String, Object> line = Json.obj("summary", topic, "isolation",
                args.get("isolation", "read_committed"), "partitions", partitions);
            out.write(Json.write(line));
            out.write('\n');
            Json.print("event", "dump-changelog", "topic", topic, "out", file.getFileName().toString(), "partitions", partitions);
        }
    }

    static int list(final Args args) throws Exception {
        try (Admin admin = Admin.create(client(args.need("bootstrap")))) {
            final String prefix = args.get("prefix", "");
            final TreeMap<String, Long> bytes = new TreeMap<>();
            admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().forEach(dir ->
                dir.replicaInfos().forEach((tp, info) -> bytes.merge(tp.topic(), info.size(), Long::sum)));
            describe(admin).forEach((name, d) -> {
                if (name.startsWith(prefix)) {
                    Json.print("event", "topic", "topic", name, "partitions", d.partitions().size(), "bytes", bytes.get(name),
                        "id", d.topicId().toString());
                }
            });
        }
        return 0;
    }

    /** Deletes the internal topics and the consumer group of an application, so that its id can be used anew. */
    static int deleteApp(final Args args) throws Exception {
        final String app = args.need("app");
        try (Admin admin = Admin.create(client(args.need("bootstrap")))) {
            final TreeSet<String> names = new TreeSet<>();
            for (final String name : admin.listTopics().names().get()) {
                if (name.startsWith(app + "-") && (name.endsWith("-changelog") || name.endsWith("-repartition")
                    || name.endsWith("-topic"))) {
                    names.add(name);
                }
            }
            admin.deleteTopics(names).all().get();
            Runner.removeMembers(admin, app);
            try {
                admin.deleteConsumerGroups(List.of(app)).all().get();
            } catch (final java.util.concurrent.ExecutionException none) {
                names.add("(group: " + none.getCause().getMessage() + ")");
            }
            Json.print("event", "delete-app", "app", app, "deleted", names);
        }
        return 0;
    }
}
