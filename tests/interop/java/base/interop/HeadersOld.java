package interop;

import java.util.List;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;

/**
 * "headers-old": the topology "headers" as a release before 4.3 can have it. The same subtopologies, stores and changelogs in
 * the formats without headers, so that it opens a directory of "headers" from which the headers were dropped.
 */
final class HeadersOld {
    private HeadersOld() { }

    static void build(final StreamsBuilder builder, final Naming naming, final List<Feature> features) {
        final KStream<String, String> events = builder.stream(naming.topic("events"), Topologies.TEXT);
        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore("kv-headers"), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.timestampedWindowStoreBuilder(
            Stores.persistentTimestampedWindowStore("window-headers", Naming.RETENTION, Naming.WINDOW, false),
            Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.sessionStoreBuilder(
            Stores.persistentSessionStore("session-headers", Naming.RETENTION), Serdes.String(), Serdes.String()));
        events.process(OldProcessor::new, "kv-headers", "window-headers", "session-headers");
        aggregations(builder, naming, features, events);
    }

    /** The DSL part, which the topology "headers" has too: there dsl.store.format decides. */
    static void aggregations(final StreamsBuilder builder, final Naming naming, final List<Feature> features,
                             final KStream<String, String> events) {
        final Grouped<String, String> byKey = Grouped.with(Serdes.String(), Serdes.String());
        events.groupByKey(byKey).count(Materialized.as("count"));
        events.groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("window-count").withRetention(Naming.RETENTION));
        events.groupByKey(byKey).windowedBy(SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("session-count").withRetention(Naming.RETENTION));
        for (final Feature feature : features) {
            feature.addToHeaders(builder, naming, events);
        }
        builder.table(naming.topic("table"), Topologies.TEXT, Materialized.as("source-table"));
    }

    private static final class OldProcessor implements Processor<String, String, Void, Void> {
        private TimestampedKeyValueStore<String, String> keyValue;
        private TimestampedWindowStore<String, String> window;
        private SessionStore<String, String> sessions;

        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            keyValue = context.getStateStore("kv-headers");
            window = context.getStateStore("window-headers");
            sessions = context.getStateStore("session-headers");
        }

        @Override
        public void process(final Record<String, String> record) {
            final String key = record.key();
            final ValueAndTimestamp<String> value = ValueAndTimestamp.make(record.value(), record.timestamp());
            final long start = record.timestamp() - record.timestamp() % Naming.WINDOW.toMillis();
            keyValue.put(key, value);
            window.put(key, value, start);
            final long length = 1_000 + Math.floorMod(key.hashCode(), 30) * 1_000L;
            sessions.put(new Windowed<>(key, new SessionWindow(start, start + length)), record.value());
        }
    }
}
