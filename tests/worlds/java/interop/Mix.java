package interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;

/**
 * "mix:events=plain+count;versioned=reduce;join;fk;table;global": a topology by its name. Each part is a topic and the kinds of
 * stores over it; "join", "fk", "table" and "global" bring their own topics. A store is named KIND-TOPIC.
 */
final class Mix implements Feature {
    static final String PREFIX = "mix:";
    private static final Grouped<String, String> BY_KEY = Grouped.with(Serdes.String(), Serdes.String());
    private static final Produced<String, String> TEXT_OUT = Produced.with(Serdes.String(), Serdes.String());
    private static final TimeWindows WINDOWS = TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE);
    private static final SessionWindows SESSIONS = SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE);

    @Override
    public boolean build(final String topology, final StreamsBuilder builder, final Naming naming, final List<Feature> features) {
        if (!topology.startsWith(PREFIX)) {
            return false;
        }
        for (final String part : topology.substring(PREFIX.length()).split(";")) {
            final int equals = part.indexOf('=');
            if (equals < 0) {
                special(builder, naming, part);
            } else {
                topic(builder, naming, part.substring(0, equals), List.of(part.substring(equals + 1).split("\\+")));
            }
        }
        return true;
    }

    private static void special(final StreamsBuilder builder, final Naming naming, final String part) {
        switch (part) {
            case "join":
                paced(builder, naming, "left").leftJoin(paced(builder, naming, "right"), (l, r) -> l.length() + "/" + r,
                        JoinWindows.ofTimeDifferenceAndGrace(java.time.Duration.ofMinutes(9), Naming.GRACE),
                        StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName("join").withStoreName("join"))
                    .filter((key, value) -> false).to(naming.topic("out"), TEXT_OUT);
                break;
            case "fk":
                final KTable<String, String> left = builder.table(naming.topic("fk-left"), Topologies.TEXT, Materialized.as("fk-left"));
                final KTable<String, String> right = builder.table(naming.topic("fk-right"), Topologies.TEXT, Materialized.as("fk-right"));
                left.join(right, value -> value.substring(0, value.indexOf('|')), (l, r) -> l + "/" + r, TableJoined.as("fk"),
                    Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("fk-result")
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
                break;
            case "table":
                builder.table(naming.topic("table"), Topologies.TEXT, Materialized.as("source-table"));
                break;
            case "global":
                builder.globalTable(naming.topic("global"), Topologies.TEXT, Materialized.as("global-table"));
                break;
            default:
                throw new IllegalArgumentException(part);
        }
    }

    private static KStream<String, String> paced(final StreamsBuilder builder, final Naming naming, final String topic) {
        return builder.stream(naming.topic(topic), Topologies.TEXT).peek((key, value) -> Farm.pace());
    }

    private static void topic(final StreamsBuilder builder, final Naming naming, final String topic, final List<String> kinds) {
        final KStream<String, String> stream = paced(builder, naming, topic);
        final Map<String, String> puts = new LinkedHashMap<>();
        for (final String kind : kinds) {
            final String store = kind + "-" + topic;
            if (!put(builder, kind, store)) {
                aggregate(stream, kind, store, naming);
            } else {
                puts.put(store, kind);
            }
        }
        if (!puts.isEmpty()) {
            stream.process(() -> new Puts(puts), puts.keySet().toArray(new String[0]));
        }
    }

    /** Adds a store that a processor writes to, if the kind is one. */
    private static boolean put(final StreamsBuilder builder, final String kind, final String store) {
        switch (kind) {
            case "plain":
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), Serdes.String(), Serdes.String()));
                return true;
            case "nolog":
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), Serdes.String(),
                    Serdes.String()).withLoggingDisabled());
                return true;
            case "timestamped":
                builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore(store),
                    Serdes.String(), Serdes.String()));
                return true;
            case "window":
            case "duplicates":
                builder.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore(store, Naming.RETENTION, Naming.WINDOW,
                    kind.equals("duplicates")), Serdes.String(), Serdes.String()));
                return true;
            case "session":
                builder.addStateStore(Stores.sessionStoreBuilder(Stores.persistentSessionStore(store, Naming.RETENTION),
                    Serdes.String(), Serdes.String()));
                return true;
            default:
                return false;
        }
    }

    private static void aggregate(final KStream<String, String> stream, final String kind, final String store, final Naming naming) {
        final KGroupedStream<String, String> grouped = stream.groupByKey(BY_KEY);
        final Materialized<String, Long, WindowStore<Bytes, byte[]>> windows =
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(store).withRetention(Naming.RETENTION);
        final Materialized<String, Long, SessionStore<Bytes, byte[]>> sessions =
            Materialized.<String, Long, SessionStore<Bytes, byte[]>>as(store).withRetention(Naming.RETENTION);
        switch (kind) {
            case "count":
                grouped.count(Materialized.as(store));
                break;
            case "memory":
                grouped.count(Materialized.as(Stores.inMemoryKeyValueStore(store)));
                break;
            case "reduce":
                grouped.reduce((before, now) -> now + "+" + before.length(), Materialized.as(store));
                break;
            case "counts":
                grouped.windowedBy(WINDOWS).count(windows);
                break;
            case "visits":
                grouped.windowedBy(SESSIONS).count(sessions);
                break;
            case "closed":
                grouped.windowedBy(WINDOWS).emitStrategy(EmitStrategy.onWindowClose()).count(windows);
                break;
            case "ended":
                grouped.windowedBy(SESSIONS).emitStrategy(EmitStrategy.onWindowClose()).count(sessions);
                break;
            case "suppressed":
                grouped.windowedBy(WINDOWS).count(windows)
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("buffer-" + store));
                break;
            case "versioned":
                versioned(stream, store);
                break;
            case "graced":
                final KTable<String, String> table = versioned(stream.filter((k, v) -> v != null), store);
                stream.filter((k, v) -> v != null).join(table, (l, r) -> l + "/" + r, Joined.with(Serdes.String(), Serdes.String(),
                    Serdes.String(), "join-" + store, java.time.Duration.ofMinutes(4))).to(naming.topic("out"), TEXT_OUT);
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static KTable<String, String> versioned(final KStream<String, String> stream, final String store) {
        return stream.toTable(Materialized.<String, String>as(
            Stores.persistentVersionedKeyValueStore(store, Naming.HISTORY, Naming.HISTORY_SEGMENT))
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
    }

    private static final class Puts implements Processor<String, String, Void, Void> {
        private final Map<String, String> kinds;
        private final List<BiConsumer<Record<String, String>, Long>> puts = new ArrayList<>();

        Puts(final Map<String, String> kinds) {
            this.kinds = kinds;
        }

        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            kinds.forEach((store, kind) -> puts.add(put(context, store, kind)));
        }

        private static BiConsumer<Record<String, String>, Long> put(final ProcessorContext<Void, Void> context, final String store,
                                                                    final String kind) {
            switch (kind) {
                case "timestamped":
                    final TimestampedKeyValueStore<String, String> timestamped = context.getStateStore(store);
                    return (r, start) -> timestamped.put(r.key(), ValueAndTimestamp.make(r.value(), r.timestamp()));
                case "window":
                    final WindowStore<String, String> window = context.getStateStore(store);
                    return (r, start) -> window.put(r.key(), r.value(), start);
                case "duplicates":
                    final WindowStore<String, String> duplicates = context.getStateStore(store);
                    return (r, start) -> {
                        if (r.value() != null) {
                            duplicates.put(r.key(), r.value(), start);
                        }
                    };
                case "session":
                    final SessionStore<String, String> session = context.getStateStore(store);
                    return (r, start) -> session.put(new Windowed<>(r.key(), new SessionWindow(start, start + 1_000
                        + Math.floorMod(r.key().hashCode(), 30) * 1_000L)), r.value());
                default:
                    final KeyValueStore<String, String> plain = context.getStateStore(store);
                    return (r, start) -> plain.put(r.key(), r.value());
            }
        }

        @Override
        public void process(final Record<String, String> record) {
            final long start = record.timestamp() - record.timestamp() % Naming.WINDOW.toMillis();
            puts.forEach(put -> put.accept(record, start));
        }
    }
}
