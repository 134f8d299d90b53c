package interop;

import java.io.BufferedWriter;
import java.io.IOException;
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
import java.util.function.Consumer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Dumps many changelogs with one consumer, as {@link Topics} does with one for each topic. */
final class Changelogs {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Changelogs() { }

    /** {"do": "dump-changelog", "topics": […], "files": […]}. */
    static int dump(final Args args) throws Exception {
        final Properties p = Topics.client(args.need("bootstrap"));
        p.put("isolation.level", "read_committed");
        p.put("enable.auto.commit", "false");
        p.put("max.poll.records", "20000");
        p.put("fetch.max.wait.ms", "10");
        final Map<String, BufferedWriter> files = new LinkedHashMap<>();
        for (int i = 0; i < args.all("topics").size(); i++) {
            files.put(args.all("topics").get(i), Files.newBufferedWriter(Path.of(args.all("files").get(i)), StandardCharsets.UTF_8));
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            final List<TopicPartition> all = new ArrayList<>();
            for (final String topic : files.keySet()) {
                consumer.partitionsFor(topic).forEach(i -> all.add(new TopicPartition(topic, i.partition())));
            }
            final Map<TopicPartition, Long> begin = consumer.beginningOffsets(all);
            final Map<TopicPartition, Long> end = consumer.endOffsets(all);
            final Map<TopicPartition, long[]> counts = new HashMap<>();
            all.forEach(tp -> counts.put(tp, new long[2]));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            final long deadline = System.nanoTime() + Duration.ofMinutes(10).toNanos();
            while (all.stream().anyMatch(tp -> consumer.position(tp) < end.get(tp))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the changelogs cannot be read to their ends");
                }
                for (final ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    final TopicPartition tp = new TopicPartition(record.topic(), record.partition());
                    if (record.offset() < end.get(tp)) {
                        counts.get(tp)[0]++;
                        counts.get(tp)[1] += record.value() == null ? 1 : 0;
                        write(files.get(tp.topic()), record);
                    }
                }
            }
            for (final Map.Entry<String, BufferedWriter> file : files.entrySet()) {
                finish(file.getKey(), file.getValue(), all, begin, end, counts);
            }
        }
        return 0;
    }

    private static void write(final BufferedWriter file, final ConsumerRecord<byte[], byte[]> record) throws IOException {
        file.write(Json.write(Json.obj("partition", record.partition(), "offset", record.offset(),
            "timestamp", record.timestamp(), "timestampType", record.timestampType().toString(),
            "key", StoreDump.base64(record.key()), "value", StoreDump.base64(record.value()),
            "headers", StoreDump.headers(record.headers()))));
        file.write('\n');
    }

    private static void finish(final String topic, final BufferedWriter file, final List<TopicPartition> all,
                               final Map<TopicPartition, Long> begin, final Map<TopicPartition, Long> end,
                               final Map<TopicPartition, long[]> counts) throws IOException {
        final Map<String, Object> partitions = new TreeMap<>();
        all.stream().filter(tp -> tp.topic().equals(topic)).forEach(tp -> partitions.put(String.valueOf(tp.partition()),
            Json.obj("begin", begin.get(tp), "end", end.get(tp), "records", counts.get(tp)[0], "tombstones", counts.get(tp)[1])));
        file.write(Json.write(Json.obj("summary", topic, "isolation", "read_committed", "partitions", partitions)));
        file.write('\n');
        file.close();
    }

    /** Passes on each record of a dump, in order. */
    static void read(final Path dump, final Consumer<JsonNode> sink) throws IOException {
        for (final String line : Files.readAllLines(dump)) {
            final JsonNode record = MAPPER.readTree(line);
            if (!record.has("summary")) {
                sink.accept(record);
            }
        }
    }
}
