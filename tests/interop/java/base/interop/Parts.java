package interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiFunction;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * "parts:removed,global-table,count+window-count": a topology by its name. Between commas stand sub-topologies in the order of
 * their numbers, between plus signs the stores of one. Stores of one topic are in one sub-topology, whatever the name says.
 */
final class Parts {
    static final String PREFIX = "parts:";
    private static final Grouped<String, String> BY_KEY = Grouped.with(Serdes.String(), Serdes.String());
    private static final Map<String, String> TOPICS = Map.ofEntries(
        Map.entry("removed", "fk-right"), Map.entry("count", "events"), Map.entry("window-count", "left"),
        Map.entry("reduce", "versioned"), Map.entry("session-count", "right"), Map.entry("last-count", "fk-left"),
        Map.entry("failing", "events"), Map.entry("in-memory", "fk-left"), Map.entry("no-log", "fk-left"), Map.entry("new-count", "versioned"),
        Map.entry("new-window", "versioned"), Map.entry("new-in-memory", "versioned"), Map.entry("generated", "fk-right"));

    private static final AtomicLong RECORDS = new AtomicLong();
    /** Later and later, so that a commit comes in between: what was aborted is processed again. */
    private static final AtomicLong FAILS_AT = new AtomicLong(1_700);

    private Parts() { }

    static void build(final StreamsBuilder builder, final Naming naming, final String parts) {
        final Map<String, KStream<String, String>> streams = new LinkedHashMap<>();
        for (final String part : parts.split(",")) {
            final Map<String, KStream<String, String>> united = new LinkedHashMap<>();
            for (final String store : part.split("\\+")) {
                final String topic = TOPICS.get(store);
                if (topic == null) {
                    table(builder, naming, store);
                } else {
                    final KStream<String, String> stream =
                        streams.computeIfAbsent(topic, name -> builder.stream(naming.topic(name), Topologies.TEXT));
                    united.put(topic, stream);
                    aggregate(stream, store);
                }
            }
            if (united.size() > 1) {
                united.values().stream().reduce(KStream::merge).orElseThrow()
                    .to(naming.topic("out"), Produced.with(Serdes.String(), Serdes.String()));
            }
        }
    }

    private static void table(final StreamsBuilder builder, final Naming naming, final String store) {
        final BiFunction<String, String, Object> of = store.startsWith("global-")
            ? (topic, name) -> builder.globalTable(naming.topic(topic), Topologies.TEXT, Materialized.as(name))
            : (topic, name) -> builder.table(naming.topic(topic), Topologies.TEXT, Materialized.as(name));
        switch (store) {
            case "global-table":
                of.apply("global", store);
                break;
            case "global-second":
                of.apply("fk-right", store);
                break;
            case "global-memory":
                builder.globalTable(naming.topic("global"), Topologies.TEXT, Materialized.as(Stores.inMemoryKeyValueStore(store)));
                break;
            case "source-table":
                of.apply("table", store);
                break;
            default:
                throw new IllegalArgumentException(store);
        }
    }

    private static void aggregate(final KStream<String, String> stream, final String store) {
        switch (store) {
            case "window-count":
            case "new-window":
                stream.groupByKey(BY_KEY).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
                    .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(store).withRetention(Naming.RETENTION));
                break;
            case "session-count":
                stream.groupByKey(BY_KEY).windowedBy(SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE))
                    .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as(store).withRetention(Naming.RETENTION));
                break;
            case "reduce":
                stream.groupByKey(BY_KEY).reduce((a, b) -> b + "+" + a.length(), Materialized.as(store));
                break;
            case "in-memory":
            case "new-in-memory":
                stream.groupByKey(BY_KEY).count(Materialized.as(Stores.inMemoryKeyValueStore(store)));
                break;
            case "no-log":
                stream.groupByKey(BY_KEY)
                    .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(store).withLoggingDisabled());
                break;
            case "failing":
                // Registered last, so that the stores before it have the record, and its transaction is aborted.
                stream.foreach((key, value) -> {
                    if (RECORDS.incrementAndGet() == FAILS_AT.get()) {
                        FAILS_AT.getAndUpdate(at -> 2 * at);
                        throw new IllegalStateException("deliberate");
                    }
                });
                break;
            case "generated":
                stream.groupByKey(BY_KEY).count();
                break;
            default:
                stream.groupByKey(BY_KEY).count(Materialized.as(store));
        }
    }
}
