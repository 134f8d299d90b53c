package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Seeded input. The same topology, records, keys, seed and partitions give the same records in the same order; first: I
 * goes on after a run of I records (later event times), so that a second batch can follow a first. behind: APP waits until the
 * application has almost consumed what was sent before.
 */
final class Produce {
    private static final String LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789";

    private Produce() { }

    static int run(final Args args, final String bootstrap) throws Exception {
        final String topology = args.need("topology");
        final Naming naming = new Naming(args.get("prefix", topology));
        final int partitions = (int) args.num("partitions", 2);
        final long records = args.num("records", 600);
        final long first = args.num("first", 0);
        final int keys = (int) args.num("keys", 40);
        final int valueBytes = (int) args.num("value-bytes", 24);
        final long seed = args.num("seed", 1);
        final boolean one = topology.startsWith(OneKind.PREFIX);
        final boolean bulk = topology.startsWith("bulk") || one;

        final List<String> topics = new ArrayList<>();
        if (bulk) {
            topics.add("in");
        } else if (topology.startsWith("headers")) {
            topics.addAll(List.of("events", "table"));
            if (topology.contains("joins")) {
                topics.addAll(List.of("left", "right", "out"));
            }
        } else if (topology.equals("sparse") || topology.equals("emit-text")) {
            topics.add("events");
        } else if (topology.equals("demo")) {
            topics.addAll(List.of("events", "global"));
        } else {
            topics.addAll(List.of("events", "table", "versioned", "global", "left", "right", "fk-left", "fk-right", "out"));
        }
        try (Admin admin = Admin.create(Topics.client(bootstrap))) {
            final Set<String> present = admin.listTopics().names().get();
            final List<NewTopic> missing = new ArrayList<>();
            for (final String t : topics) {
                if (!present.contains(naming.topic(t))) {
                    missing.add(new NewTopic(naming.topic(t), partitions, (short) 1).configs(Map.of("retention.ms", "-1")));
                }
            }
            admin.createTopics(missing).all().get();
            if (args.has("behind")) {
                waitFor(admin, args.need("behind"), naming, topics, records);
            }
        }

        final Properties p = Topics.client(bootstrap);
        p.put("linger.ms", "5");
        p.put("batch.size", "262144");
        p.put("enable.idempotence", "true");
        // A partition just made may refuse its first batch (NOT_LEADER_OR_FOLLOWER); with a second one under way the producer
        // may then never get its sequence numbers in order again.
        p.put("max.in.flight.requests.per.connection", "1");
        final long began = System.nanoTime();
        long sent = 0;
        final AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (final String topic : topics) {
                if (topic.equals("out")) {
                    continue;
                }
                // A generator of its own for every topic and batch.
                final Random random = new Random(seed * 1_000_003L + topic.hashCode() * 31L + first);
                for (long i = first; i < first + records; i++) {
                    final String into = args.get("into", naming.topic(topic));
                    producer.send(one
                        ? OneKind.record(topology.substring(OneKind.PREFIX.length()), into, i, records, keys, valueBytes, random)
                        : bulk ? bulk(into, i, records, keys, valueBytes, random)
                        : record(topic, naming.topic(topic), i, records, keys, valueBytes, random), (meta, e) -> {
                            if (e != null) {
                                failure.compareAndSet(null, e);
                            }
                        });
                    sent++;
                }
            }
            producer.flush();
            if (failure.get() != null) {
                throw failure.get();
            }
        }
        Json.print("event", "produce", "topology", topology, "records", sent,
            "seconds", (System.nanoTime() - began) / 1e9);
        return 0;
    }

    /** Waits until this application has, of every partition, no more than so many records before it. */
    private static void waitFor(final Admin admin, final String app, final Naming naming, final List<String> topics,
                                final long records) throws Exception {
        final Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        Topics.describe(admin, name -> topics.stream().filter(t -> !t.equals("out") && !t.equals("global"))
            .anyMatch(t -> naming.topic(t).equals(name))).forEach((name, d) ->
                d.partitions().forEach(p -> wanted.put(new TopicPartition(name, p.partition()), OffsetSpec.latest())));
        for (;;) {
            final Map<TopicPartition, OffsetAndMetadata> committed =
                admin.listConsumerGroupOffsets(app).partitionsToOffsetAndMetadata().get();
            if (admin.listOffsets(wanted).all().get().entrySet().stream().allMatch(end -> end.getValue().offset()
                    - (committed.get(end.getKey()) == null ? 0 : committed.get(end.getKey()).offset()) <= records)) {
                return;
            }
            Thread.sleep(50);
        }
    }

    private static ProducerRecord<byte[], byte[]> bulk(final String topic, final long i, final long records, final int keys,
                                                       final int valueBytes, final Random random) {
        // The first KEYS records take each key once, so that the number of keys is exact.
        final long key = i < keys ? i : random.nextInt(keys);
        final byte[] value = new byte[valueBytes];
        random.nextBytes(value);
        return new ProducerRecord<>(topic, null, Naming.BASE_TS + i, utf8(String.format("key-%08d", key)), value);
    }

    private static ProducerRecord<byte[], byte[]> record(final String name, final String topic, final long i, final long records,
                                                         final int keys, final int valueBytes, final Random random)
        throws ExecutionException {
        final boolean stream = name.equals("events") || name.equals("left") || name.equals("right");
        // Time goes on evenly over Naming.SPAN, with up to 45 s of disorder.
        final long ts = Naming.BASE_TS + 60_000 + i * Naming.SPAN.toMillis() / records - random.nextInt(45_000);
        final String key;
        String value = text(random, valueBytes);
        if (name.equals("fk-right")) {
            key = String.format("f%03d", random.nextInt(Math.max(2, keys / 4)));
        } else {
            key = String.format("k%04d", random.nextInt(keys));
        }
        if (name.equals("fk-left")) {
            value = String.format("f%03d|", random.nextInt(Math.max(2, keys / 4))) + value;
        }
        final int percent = random.nextInt(100);
        if (percent < (stream ? 5 : 15)) {
            value = name.equals("left") || name.equals("right") ? value : null; // tombstone
        } else if (percent == 99 && !name.equals("fk-left")) {
            value = ""; // empty is not null
        }
        final ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, null, ts, utf8(key), value == null ? null : utf8(value));
        final Headers headers = record.headers();
        if (percent % 3 == 0) {
            headers.add("trace", utf8("t-" + i));
        }
        if (percent % 10 == 0) {
            headers.add("trace", utf8("again"));
            headers.add("empty", new byte[0]);
            headers.add("null", null);
        }
        return record;
    }

    private static String text(final Random random, final int length) {
        final StringBuilder sb = new StringBuilder();
        for (int i = 0; i < length; i++) {
            sb.append(LETTERS.charAt(random.nextInt(LETTERS.length())));
        }
        return sb.toString();
    }

    private static byte[] utf8(final String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }
}
