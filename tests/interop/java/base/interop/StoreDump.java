package interop;

import java.io.BufferedWriter;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.TopologyDescription;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.InvalidStateStorePartitionException;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreType;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.internals.StateStoreProvider;

/**
 * Reads every store of a running KafkaStreams through KafkaStreams#store (interactive queries), partition by partition, and
 * writes one JSON line an entry. Keys and values are the bytes that the store's own serdes make of what the store returned.
 */
final class StoreDump {
    private final KafkaStreams streams;
    private final TopologyDescription description;
    private final List<Feature> features;
    private final Map<String, List<Topics.KeyTime>> index; // of topics whose keys a feature has to know
    private final int partitions;
    final Map<String, Map<String, Object>> digests = new LinkedHashMap<>();
    final List<String> unreadable = new ArrayList<>();

    StoreDump(final KafkaStreams streams, final TopologyDescription description, final List<Feature> features,
              final Map<String, List<Topics.KeyTime>> index, final int partitions) {
        this.streams = streams;
        this.description = description;
        this.features = features;
        this.index = index;
        this.partitions = partitions;
    }

    /** One entry: ordered by key bytes, then by the two numbers, then by its text. */
    static final class Row implements Comparable<Row> {
        final byte[] key;
        final long first;
        final long second;
        final String json;

        Row(final byte[] key, final long first, final long second, final String json) {
            this.key = key;
            this.first = first;
            this.second = second;
            this.json = json;
        }

        @Override
        public int compareTo(final Row o) {
            int c = Arrays.compareUnsigned(key, o.key);
            c = c != 0 ? c : Long.compare(first, o.first);
            c = c != 0 ? c : Long.compare(second, o.second);
            return c != 0 ? c : json.compareTo(o.json);
        }
    }

    static TreeSet<String> localStores(final TopologyDescription description) {
        final TreeSet<String> names = new TreeSet<>();
        for (final TopologyDescription.Subtopology sub : description.subtopologies()) {
            for (final TopologyDescription.Node node : sub.nodes()) {
                if (node instanceof TopologyDescription.Processor) {
                    names.addAll(((TopologyDescription.Processor) node).stores());
                }
            }
        }
        return names;
    }

    static TreeSet<String> globalStores(final TopologyDescription description) {
        final TreeSet<String> names = new TreeSet<>();
        for (final TopologyDescription.GlobalStore global : description.globalStores()) {
            names.addAll(global.processor().stores());
        }
        return names;
    }

    /** Writes the dump when file is not null; fills digests either way. */
    void write(final String file) throws Exception {
        try (BufferedWriter out = file == null ? null : Files.newBufferedWriter(Path.of(file), StandardCharsets.UTF_8)) {
            for (final String name : localStores(description)) {
                final TreeMap<Integer, StateStore> found = new TreeMap<>();
                for (int p = 0; p < partitions; p++) {
                    final StateStore store = open(name, p);
                    if (store != null) {
                        found.put(p, store);
                    }
                }
                store(name, found, out);
            }
            for (final String name : globalStores(description)) {
                final TreeMap<Integer, StateStore> found = new TreeMap<>();
                found.put(-1, streams.store(StoreQueryParameters.fromNameAndType(name, new AnyStore())));
                store(name, found, out);
            }
        }
    }

    private StateStore open(final String name, final int partition) {
        try {
            return streams.store(StoreQueryParameters.fromNameAndType(name, new AnyStore()).withPartition(partition));
        } catch (final InvalidStateStorePartitionException none) {
            return null;
        } catch (final InvalidStateStoreException none) {
            if (String.valueOf(none.getMessage()).contains("partition")) {
                return null;
            }
            throw none;
        }
    }

    private void store(final String name, final TreeMap<Integer, StateStore> byPartition, final BufferedWriter out)
        throws Exception {
        final MessageDigest sha = MessageDigest.getInstance("SHA-256");
        long entries = 0;
        String note = null;
        boolean persistent = false;
        final Map<String, Object> positions = new LinkedHashMap<>();
        for (final Map.Entry<Integer, StateStore> entry : byPartition.entrySet()) {
            persistent = entry.getValue().persistent();
            try {
                positions.put(entry.getKey().toString(), position(entry.getValue().getPosition()));
            } catch (final UnsupportedOperationException none) {
                positions.put(entry.getKey().toString(), null);
            }
            final List<Row> rows = new ArrayList<>();
            try {
                rows(name, entry.getKey(), entry.getValue(), rows);
            } catch (final UnsupportedOperationException notQueryable) {
                note = "not dumped: " + notQueryable;
            } catch (final RuntimeException e) { // what the store serves is broken: the run goes on to the other stores
                note = "cannot be read: partition " + entry.getKey() + ": " + e;
                unreadable.add(name);
            }
            rows.sort(null);
            for (final Row row : rows) {
                sha.update(row.json.getBytes(StandardCharsets.UTF_8));
                sha.update((byte) '\n');
                if (out != null) {
                    out.write(row.json);
                    out.write('\n');
                }
            }
            entries += rows.size();
        }
        final Map<String, Object> digest = Json.obj("entries", entries, "sha256", hex(sha.digest()),
            "persistent", persistent, "position", positions);
        if (note != null) {
            digest.put("note", note);
        }
        digests.put(name, digest);
    }

    /** Topic -> partition -> offset. */
    static Object position(final Position position) {
        final Map<String, Object> topics = new TreeMap<>();
        if (position != null) {
            for (final String topic : position.getTopics()) {
                topics.put(topic, new TreeMap<>(position.getPartitionPositions(topic)));
            }
        }
        return topics;
    }

    private void rows(final String name, final int partition, final StateStore store, final List<Row> rows) throws Exception {
        for (final Feature feature : features) {
            if (feature.dump(streams, store, name, partition, index, rows)) {
                return;
            }
        }
        if (store instanceof ReadOnlyWindowStore) {
            try (KeyValueIterator<? extends Windowed<?>, ?> all = ((ReadOnlyWindowStore<?, ?>) store).all()) {
                windowed("window", name, partition, all, rows);
            }
        } else if (store instanceof ReadOnlySessionStore) {
            try (KeyValueIterator<? extends Windowed<?>, ?> all = ((ReadOnlySessionStore<?, ?>) store).fetch(null, null)) {
                windowed("session", name, partition, all, rows);
            }
        } else if (store instanceof ReadOnlyKeyValueStore) {
            try (KeyValueIterator<?, ?> all = ((ReadOnlyKeyValueStore<?, ?>) store).all()) {
                while (all.hasNext()) {
                    final KeyValue<?, ?> kv = all.next();
                    final byte[] key = bytes(kv.key);
                    final Map<String, Object> line = line(name, partition, "key-value", key);
                    putValue(line, kv.value, StoreDump::bytes);
                    rows.add(new Row(key, 0, 0, Json.write(line)));
                }
            }
        } else {
            throw new UnsupportedOperationException("no reader for " + store.getClass().getName());
        }
    }

    private static void windowed(final String kind, final String name, final int partition,
                                 final KeyValueIterator<? extends Windowed<?>, ?> all, final List<Row> rows) {
        while (all.hasNext()) {
            final KeyValue<? extends Windowed<?>, ?> kv = all.next();
            final byte[] key = bytes(kv.key.key());
            final Map<String, Object> line = line(name, partition, kind, key);
            line.put("start", kv.key.window().start());
            line.put("end", kv.key.window().end());
            putValue(line, kv.value, StoreDump::bytes);
            rows.add(new Row(key, kv.key.window().start(), kv.key.window().end(), Json.write(line)));
        }
    }

    static Map<String, Object> line(final String store, final int partition, final String kind, final byte[] key) {
        return Json.obj("store", store, "partition", partition, "kind", kind, "key", base64(key));
    }

    /**
     * Adds value, and timestamp and headers where the store keeps them. 4.3 shows some stores without either through types
     * with both: no headers, and a timestamp of -1, are left out, so that the rows are those of earlier releases.
     */
    static void putValue(final Map<String, Object> line, final Object value, final Function<Object, byte[]> bytes) {
        if (value instanceof ValueAndTimestamp) {
            line.put("value", base64(bytes.apply(((ValueAndTimestamp<?>) value).value())));
            line.put("timestamp", ((ValueAndTimestamp<?>) value).timestamp());
            return;
        }
        final String type = value == null ? "" : value.getClass().getSimpleName();
        if (type.equals("ValueTimestampHeaders")) {
            line.put("value", base64(bytes.apply(call(value, "value"))));
            if (!Long.valueOf(-1).equals(call(value, "timestamp"))) {
                line.put("timestamp", call(value, "timestamp"));
            }
            putHeaders(line, value);
        } else if (type.equals("AggregationWithHeaders")) {
            line.put("value", base64(bytes.apply(call(value, "aggregation"))));
            putHeaders(line, value);
        } else {
            line.put("value", base64(bytes.apply(value)));
        }
    }

    private static void putHeaders(final Map<String, Object> line, final Object value) {
        final List<Object> headers = headers((Headers) call(value, "headers"));
        if (!headers.isEmpty()) {
            line.put("headers", headers);
        }
    }

    static List<Object> headers(final Headers headers) {
        final List<Object> list = new ArrayList<>();
        for (final Header h : headers) {
            final List<Object> pair = new ArrayList<>();
            pair.add(h.key());
            pair.add(base64(h.value()));
            list.add(pair);
        }
        return list;
    }

    static byte[] bytes(final Object o) {
        if (o == null || o instanceof byte[]) {
            return (byte[]) o;
        }
        if (o instanceof Bytes) {
            return ((Bytes) o).get();
        }
        if (o instanceof String) {
            return ((String) o).getBytes(StandardCharsets.UTF_8);
        }
        if (o instanceof Long) {
            return Serdes.Long().serializer().serialize(null, (Long) o);
        }
        if (o.getClass().getSimpleName().equals("SubscriptionWrapper")) { // accessors were renamed between releases
            final Object[] hash = {either(o, "hash", "getHash")};
            return ("FK " + either(o, "instruction", "getInstruction") + " " + Arrays.deepToString(hash)
                + " " + either(o, "primaryKey", "getPrimaryKey")).getBytes(StandardCharsets.UTF_8);
        }
        return o.toString().getBytes(StandardCharsets.UTF_8); // internal types: TimestampedKeyAndJoinSide, LeftOrRightValue
    }

    private static Object either(final Object o, final String name, final String olderName) {
        for (final Method m : o.getClass().getMethods()) {
            if ((m.getName().equals(name) || m.getName().equals(olderName)) && m.getParameterCount() == 0) {
                return call(o, m.getName());
            }
        }
        throw new IllegalStateException(o.getClass() + " has neither " + name + " nor " + olderName);
    }

    private static Object call(final Object o, final String method) {
        try {
            final Method m = o.getClass().getMethod(method);
            m.setAccessible(true);
            return m.invoke(o);
        } catch (final ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static String base64(final byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static String hex(final byte[] bytes) {
        final StringBuilder sb = new StringBuilder();
        for (final byte b : bytes) {
            sb.append(String.format("%02x", b));
        }
        return sb.toString();
    }

    /** Gives the store object itself, of whatever kind. */
    static final class AnyStore implements QueryableStoreType<StateStore> {
        @Override
        public boolean accepts(final StateStore store) {
            return true;
        }

        @Override
        public StateStore create(final StateStoreProvider provider, final String name) {
            final List<StateStore> stores = provider.stores(name, this);
            if (stores.isEmpty()) {
                throw new InvalidStateStorePartitionException("no such partition of " + name);
            }
            return stores.get(0);
        }
    }
}
