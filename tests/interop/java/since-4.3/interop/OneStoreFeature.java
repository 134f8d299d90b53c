package interop;

import java.time.Duration;
import java.util.List;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.internals.ListValueStoreBuilder;
import org.apache.kafka.streams.state.internals.RocksDBTimeOrderedKeyValueBuffer;
import org.apache.kafka.streams.state.internals.RocksDbIndexedTimeOrderedWindowBytesStoreSupplier;
import org.apache.kafka.streams.state.internals.RocksDbTimeOrderedSessionBytesStoreSupplier;

/** Topologies "one-KIND": one store of that kind, which nothing but its restoration ever writes. */
public final class OneStoreFeature implements Feature {
    private static final Duration WINDOW = Duration.ofMinutes(1);

    @Override
    public boolean build(final String topology, final StreamsBuilder builder, final Naming naming, final List<Feature> features) {
        if (!topology.startsWith(OneKind.PREFIX)) {
            return false;
        }
        builder.addStateStore(store(topology.substring(OneKind.PREFIX.length()), naming.topic("in")));
        builder.stream(naming.topic("in"), Consumed.with(Serdes.Bytes(), Serdes.Bytes()))
            .process(() -> new Processor<Bytes, Bytes, Void, Void>() {
                @Override
                public void process(final Record<Bytes, Bytes> record) { }
            }, OneKind.STORE);
        return true;
    }

    private static StoreBuilder<?> store(final String kind, final String topic) {
        final String name = OneKind.STORE;
        final Duration kept = OneKind.RETENTION;
        final Serde<Bytes> bytes = Serdes.Bytes();
        switch (kind) {
            case "key-value":
                return Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), bytes, bytes);
            case "timestamped-key-value":
            case "foreign-key-subscription":
                return Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore(name), bytes, bytes);
            case "headers-key-value":
                return Stores.timestampedKeyValueStoreWithHeadersBuilder(
                    Stores.persistentTimestampedKeyValueStoreWithHeaders(name), bytes, bytes);
            case "versioned":
                return Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore(name, kept), bytes, bytes);
            case "list-value":
                return new ListValueStoreBuilder<>(Stores.persistentKeyValueStore(name), bytes, bytes, Time.SYSTEM);
            case "window":
                return Stores.windowStoreBuilder(Stores.persistentWindowStore(name, kept, WINDOW, false), bytes, bytes);
            case "timestamped-window":
                return Stores.timestampedWindowStoreBuilder(
                    Stores.persistentTimestampedWindowStore(name, kept, WINDOW, false), bytes, bytes);
            case "headers-window":
                return Stores.timestampedWindowStoreWithHeadersBuilder(
                    Stores.persistentTimestampedWindowStoreWithHeaders(name, kept, WINDOW, false), bytes, bytes);
            case "time-ordered-window":
                return Stores.timestampedWindowStoreBuilder(
                    RocksDbIndexedTimeOrderedWindowBytesStoreSupplier.create(name, kept, WINDOW, false, true), bytes, bytes);
            case "session":
                return Stores.sessionStoreBuilder(Stores.persistentSessionStore(name, kept), bytes, bytes);
            case "headers-session":
                return Stores.sessionStoreWithHeadersBuilder(Stores.persistentSessionStoreWithHeaders(name, kept), bytes, bytes);
            case "time-ordered-session":
                return Stores.sessionStoreBuilder(
                    new RocksDbTimeOrderedSessionBytesStoreSupplier(name, kept.toMillis(), true), bytes, bytes);
            case "grace-buffer":
                return new RocksDBTimeOrderedKeyValueBuffer.Builder<>(name, bytes, bytes, kept, topic);
            default:
                throw new IllegalArgumentException("no store of kind '" + kind + "' can be made alone");
        }
    }
}
