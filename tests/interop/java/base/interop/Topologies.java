package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BiConsumer;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;

/** The applications. Every topic name carries the prefix given with "prefix" (default: the topology's name). */
final class Topologies {
    private Topologies() { }

    static final Consumed<String, String> TEXT = Consumed.with(Serdes.String(), Serdes.String());

    /** What this release has, as far as release asOf (like "3.4") had it too. */
    static List<Feature> features(final String asOf) {
        final List<Feature> list = new ArrayList<>();
        for (final String[] sinceAndName : Feature.CLASSES) {
            if (Double.parseDouble(sinceAndName[0]) > Double.parseDouble(asOf)) {
                continue;
            }
            final String name = sinceAndName[1];
            try {
                list.add((Feature) Class.forName(name).getDeclaredConstructor().newInstance());
            } catch (final ClassNotFoundException older) {
                continue; // this release does not have it
            } catch (final ReflectiveOperationException e) {
                throw new IllegalStateException(name, e);
            }
        }
        return list;
    }

    static StreamsBuilder build(final String topology, final Naming naming, final List<Feature> features) {
        final StreamsBuilder builder = new StreamsBuilder();
        fill(builder, topology, naming, features);
        return builder;
    }

    static void fill(final StreamsBuilder builder, final String topology, final Naming naming, final List<Feature> features) {
        switch (topology) {
            case "kinds":
                kinds(builder, naming, features, true);
                break;
            case "kinds-no-fk":
                kinds(builder, naming, features, false);
                break;
            case "sparse":
                sparse(builder, naming);
                break;
            case "demo":
                demo(builder, naming);
                break;
            case "homes-a":
            case "homes-b":
                Homes.build(builder, naming, topology.equals("homes-a"));
                break;
            case "merge-a":
            case "merge-b":
            case "merge-tables":
            case "merge-stateless":
            case "merge-joined":
                Merging.build(builder, naming, topology);
                break;
            case "shared-read":
            case "shared-written":
                Shared.build(builder, naming, topology);
                break;
            case "headers-old":
                HeadersOld.build(builder, naming, features);
                break;
            case "headers-joins-old":
                HeadersOld.build(builder, naming, features);
                join(builder, naming);
                break;
            case "bulk":
                builder.stream(naming.topic("in"), Consumed.with(Serdes.Bytes(), Serdes.Bytes()))
                    .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.Bytes()))
                    .reduce((before, now) -> now, Materialized.as("bulk"));
                break;
            case "bulk-plain":
                builder.addStateStore(Stores.keyValueStoreBuilder(
                    Stores.persistentKeyValueStore("bulk"), Serdes.Bytes(), Serdes.Bytes()));
                builder.stream(naming.topic("in"), Consumed.with(Serdes.Bytes(), Serdes.Bytes()))
                    .process(() -> new Processor<Bytes, Bytes, Void, Void>() {
                        private KeyValueStore<Bytes, Bytes> store;

                        @Override
                        public void init(final ProcessorContext<Void, Void> context) {
                            store = context.getStateStore("bulk");
                        }

                        @Override
                        public void process(final Record<Bytes, Bytes> record) {
                            store.put(record.key(), record.value());
                        }
                    }, "bulk");
                break;
            default:
                if (topology.startsWith(Parts.PREFIX)) {
                    Parts.build(builder, naming, topology.substring(Parts.PREFIX.length()));
                } else if (features.stream().noneMatch(f -> f.build(topology, builder, naming, features))) {
                    throw new IllegalArgumentException("topology '" + topology + "' is unknown to this Kafka Streams release");
                }
        }
    }

    private static void kinds(final StreamsBuilder builder, final Naming naming, final List<Feature> features,
                              final boolean foreignKey) {
        final KStream<String, String> events = builder.stream(naming.topic("events"), TEXT);

        // Processor API stores, all in one sub-topology with the DSL aggregations over the same topic.
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(naming.store("kv-plain")), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore(naming.store("kv-timestamped")), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.inMemoryKeyValueStore(naming.store("kv-memory")), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("kv-nolog"), Serdes.String(), Serdes.String()).withLoggingDisabled());
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore(naming.store("window-plain"), Naming.RETENTION, Naming.WINDOW, false),
            Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore(naming.store("window-duplicates"), Naming.RETENTION, Naming.WINDOW, true),
            Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.sessionStoreBuilder(
            Stores.persistentSessionStore(naming.store("session-plain"), Naming.RETENTION), Serdes.String(), Serdes.String()));
        events.process(() -> new KindsProcessor(naming), naming.store("kv-plain"), naming.store("kv-timestamped"),
            naming.store("kv-memory"), "kv-nolog", naming.store("window-plain"), naming.store("window-duplicates"),
            naming.store("session-plain"));

        final Grouped<String, String> byKey = Grouped.with(Serdes.String(), Serdes.String());
        final TimeWindows windows = TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE);
        final SessionWindows sessions = SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE);
        events.groupByKey(byKey).count(Materialized.as(naming.store("count")));
        events.groupByKey(byKey).reduce((a, b) -> b + "+" + a.length(), Materialized.as(naming.store("reduce")));
        events.groupByKey(byKey).windowedBy(windows)
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(naming.store("window-count")).withRetention(Naming.RETENTION));
        events.groupByKey(byKey).windowedBy(sessions)
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as(naming.store("session-count")).withRetention(Naming.RETENTION));

        // The source topic itself is the changelog (topology.optimization=all).
        builder.table(naming.topic("table"), TEXT, Materialized.as("source-table"));

        builder.globalTable(naming.topic("global"), TEXT, Materialized.as("global-table"));

        join(builder, naming);

        if (foreignKey) {
            foreignKeyJoin(builder, naming);
        }

        for (final Feature feature : features) {
            feature.addToKinds(builder, naming, events);
        }
    }

    /** Foreign-key join: value "FK|payload" on the left. */
    private static void foreignKeyJoin(final StreamsBuilder builder, final Naming naming) {
        final KTable<String, String> fkLeft = builder.table(naming.topic("fk-left"), TEXT, Materialized.as(naming.store("fk-left")));
        final KTable<String, String> fkRight = builder.table(naming.topic("fk-right"), TEXT, Materialized.as(naming.store("fk-right")));
        fkLeft.join(fkRight, value -> value.substring(0, value.indexOf('|')), (l, r) -> l + "/" + r,
            TableJoined.as(naming.store("fk")),
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(naming.store("fk-result"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
    }

    /** Stream-stream left join: two window stores that keep duplicates, and the list-value store of unmatched records. */
    static void join(final StreamsBuilder builder, final Naming naming) {
        final KStream<String, String> left = builder.stream(naming.topic("left"), TEXT);
        final KStream<String, String> right = builder.stream(naming.topic("right"), TEXT);
        left.leftJoin(right, (l, r) -> l + "/" + r,
                JoinWindows.ofTimeDifferenceAndGrace(java.time.Duration.ofMinutes(9), Naming.GRACE),
                StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName(naming.store("join")).withStoreName(naming.store("join")))
            .to(naming.topic("out"), org.apache.kafka.streams.kstream.Produced.with(Serdes.String(), Serdes.String()));
    }

    /** A store that is written, and beside it a key-value and a window store that never are. */
    private static void sparse(final StreamsBuilder builder, final Naming naming) {
        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore("kv-written"), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore("kv-never"), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("window-never", Naming.RETENTION, Naming.WINDOW, false),
            Serdes.String(), Serdes.String()));
        builder.stream(naming.topic("events"), TEXT).process(() -> new Processor<String, String, Void, Void>() {
            private TimestampedKeyValueStore<String, String> written;

            @Override
            public void init(final ProcessorContext<Void, Void> context) {
                written = context.getStateStore("kv-written");
            }

            @Override
            public void process(final Record<String, String> record) {
                written.put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp()));
            }
        }, "kv-written", "kv-never", "window-never");
    }

    /** A small application as users have them: what "kstate demo" shows. */
    private static void demo(final StreamsBuilder builder, final Naming naming) {
        final KStream<String, String> events = builder.stream(naming.topic("events"), TEXT);
        final Grouped<String, String> byKey = Grouped.with(Serdes.String(), Serdes.String());
        events.groupByKey(byKey).reduce((before, now) -> now, Materialized.as("latest-order"));
        events.groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("orders-per-minute")
                .withRetention(Naming.RETENTION));
        events.groupByKey(byKey).windowedBy(SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("visits").withRetention(Naming.RETENTION));
        builder.globalTable(naming.topic("global"), TEXT, Materialized.as("customers"));
    }

    private static final class KindsProcessor implements Processor<String, String, Void, Void> {
        private final Naming naming;
        private BiConsumer<String, String> keyValues;
        private TimestampedKeyValueStore<String, String> timestamped;
        private WindowStore<String, String> window;
        private WindowStore<String, String> duplicates;
        private SessionStore<String, String> sessions;

        private KindsProcessor(final Naming naming) {
            this.naming = naming;
        }

        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            final KeyValueStore<String, String> plain = context.getStateStore(naming.store("kv-plain"));
            final KeyValueStore<String, String> memory = context.getStateStore(naming.store("kv-memory"));
            final KeyValueStore<String, String> nolog = context.getStateStore("kv-nolog");
            keyValues = (k, v) -> {
                plain.put(k, v);
                memory.put(k, v);
                nolog.put(k, v);
            };
            timestamped = context.getStateStore(naming.store("kv-timestamped"));
            window = context.getStateStore(naming.store("window-plain"));
            duplicates = context.getStateStore(naming.store("window-duplicates"));
            sessions = context.getStateStore(naming.store("session-plain"));
        }

        @Override
        public void process(final Record<String, String> record) {
            final String key = record.key();
            final String value = record.value();
            final long start = record.timestamp() - record.timestamp() % Naming.WINDOW.toMillis();
            keyValues.accept(key, value);
            timestamped.put(key, ValueAndTimestamp.make(value, record.timestamp()));
            window.put(key, value, start);
            if (value != null) {
                duplicates.put(key, value, start);
            }
            final long length = 1_000 + Math.floorMod(key.hashCode(), 30) * 1_000L;
            sessions.put(new org.apache.kafka.streams.kstream.Windowed<>(key,
                new org.apache.kafka.streams.kstream.internals.SessionWindow(start, start + length)), value);
        }
    }
}
