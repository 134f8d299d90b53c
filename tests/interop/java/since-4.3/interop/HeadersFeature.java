package interop;

import java.util.List;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders;
import org.apache.kafka.streams.state.ValueTimestampHeaders;

/** Stores that keep record headers (KIP-1271, KIP-1285): topology "headers". The run sets dsl.store.format=HEADERS for it. */
public final class HeadersFeature implements Feature {
    @Override
    public boolean build(final String topology, final StreamsBuilder builder, final Naming naming, final List<Feature> features) {
        if (!topology.equals("headers") && !topology.equals("headers-joins")) {
            return false;
        }
        final KStream<String, String> events = builder.stream(naming.topic("events"), Topologies.TEXT);
        builder.addStateStore(Stores.timestampedKeyValueStoreWithHeadersBuilder(
            Stores.persistentTimestampedKeyValueStoreWithHeaders("kv-headers"), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.timestampedWindowStoreWithHeadersBuilder(
            Stores.persistentTimestampedWindowStoreWithHeaders("window-headers", Naming.RETENTION, Naming.WINDOW, false),
            Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.sessionStoreWithHeadersBuilder(
            Stores.persistentSessionStoreWithHeaders("session-headers", Naming.RETENTION), Serdes.String(), Serdes.String()));
        events.process(HeadersProcessor::new, "kv-headers", "window-headers", "session-headers");

        HeadersOld.aggregations(builder, naming, features, events);
        if (topology.equals("headers-joins")) {
            Topologies.join(builder, naming);
        }
        return true;
    }

    private static final class HeadersProcessor implements Processor<String, String, Void, Void> {
        private TimestampedKeyValueStoreWithHeaders<String, String> keyValue;
        private TimestampedWindowStoreWithHeaders<String, String> window;
        private SessionStoreWithHeaders<String, String> sessions;

        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            keyValue = context.getStateStore("kv-headers");
            window = context.getStateStore("window-headers");
            sessions = context.getStateStore("session-headers");
        }

        @Override
        public void process(final Record<String, String> record) {
            final String key = record.key();
            final ValueTimestampHeaders<String> value =
                ValueTimestampHeaders.make(record.value(), record.timestamp(), record.headers());
            final long start = record.timestamp() - record.timestamp() % Naming.WINDOW.toMillis();
            keyValue.put(key, value);
            window.put(key, value, start);
            final long length = 1_000 + Math.floorMod(key.hashCode(), 30) * 1_000L;
            sessions.put(new Windowed<>(key, new SessionWindow(start, start + length)),
                AggregationWithHeaders.make(record.value(), record.headers()));
        }
    }
}
