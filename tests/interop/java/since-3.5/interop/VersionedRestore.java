package interop;

import java.io.BufferedReader;
import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedBytesStore;

/**
 * Versioned stores without an application: each line of the file named by the argument is a store,
 * {"dir", "retention", "interval", "put", "runs"}. A run opens the store, hands it batches of records [key, value, timestamp]
 * (hex, hex or null, ms), and closes it. The records go through the store's restore callback, or with "put" through put().
 */
public final class VersionedRestore {
    private static final StreamsMetricsImpl METRICS = metrics();
    private static final TaskId TASK = new TaskId(0, 0);

    private final File dir;
    private final Map<String, Object> configs;
    private RecordBatchingStateRestoreCallback restore;

    private VersionedRestore(final File dir, final Map<String, Object> configs) {
        this.dir = dir;
        this.configs = configs;
    }

    public static void main(final String[] argv) throws Exception {
        final ObjectMapper mapper = new ObjectMapper();
        final Map<String, Object> settings = Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, "versioned", StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:1",
            StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, SmallBuffers.class);
        final Map<String, Object> configs = new java.util.HashMap<>(new StreamsConfig(settings).values());
        try (BufferedReader jobs = Files.newBufferedReader(Path.of(argv[0]))) {
            for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
                final JsonNode job = mapper.readTree(line);
                final File dir = new File(job.get("dir").asText());
                Files.createDirectories(dir.toPath());
                new VersionedRestore(dir, configs).run(job);
            }
        }
        System.exit(0); // also when a thread of Kafka's still runs
    }

    private void run(final JsonNode job) {
        for (final JsonNode batches : job.get("runs")) {
            final VersionedBytesStore store = (VersionedBytesStore) Stores.persistentVersionedKeyValueStore("store",
                Duration.ofMillis(job.get("retention").asLong()), Duration.ofMillis(job.get("interval").asLong())).get();
            store.init((StateStoreContext) context(), store);
            for (final JsonNode batch : batches) {
                final List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
                batch.forEach(record -> records.add(new ConsumerRecord<>("changelog", 0, records.size(), record.get(2).asLong(),
                    TimestampType.CREATE_TIME, 0, 0, bytes(record.get(0)), bytes(record.get(1)), new RecordHeaders(),
                    Optional.empty())));
                if (job.get("put").asBoolean()) {
                    records.forEach(record -> store.put(Bytes.wrap(record.key()), record.value(), record.timestamp()));
                } else {
                    restore.restoreBatch(records);
                }
            }
            store.close();
        }
    }

    private static byte[] bytes(final JsonNode hex) {
        return hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
    }

    /** The context that stores are opened with has a new method or two in each release: a proxy knows those that matter. */
    private Object context() {
        return Proxy.newProxyInstance(VersionedRestore.class.getClassLoader(), new Class<?>[] {InternalProcessorContext.class},
            (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "register":
                        restore = (RecordBatchingStateRestoreCallback) arguments[1];
                        return null;
                    case "metrics":
                        return METRICS;
                    case "taskId":
                        return TASK;
                    case "stateDir":
                        return dir;
                    case "appConfigs":
                        return configs;
                    default:
                        return nothing(method);
                }
            });
    }

    private static Object nothing(final Method method) {
        final Class<?> type = method.getReturnType();
        return type == Optional.class ? Optional.empty() : type == long.class ? (Object) 0L : type == boolean.class ? false : null;
    }

    /** 3.9 wants the version of the metrics too. */
    private static StreamsMetricsImpl metrics() {
        try {
            final Constructor<?> constructor = StreamsMetricsImpl.class.getConstructors()[0];
            return (StreamsMetricsImpl) constructor.newInstance(Arrays.stream(constructor.getParameterTypes())
                .map(type -> type == Metrics.class ? new Metrics() : type == Time.class ? Time.SYSTEM : "latest").toArray());
        } catch (final ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
