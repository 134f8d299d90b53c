package interop;

import java.util.Set;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * "shared-written", "shared-read": two processors of two topics whose suppliers (ConnectedStoreProvider) return one
 * StoreBuilder, with a count beside each and a count of a third topic behind them. Both write, or the second only reads.
 */
final class Shared {
    private static final Grouped<String, String> BY_KEY = Grouped.with(Serdes.String(), Serdes.String());

    private Shared() { }

    static void build(final StreamsBuilder builder, final Naming naming, final String topology) {
        final StoreBuilder<KeyValueStore<String, String>> store = Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("shared"), Serdes.String(), Serdes.String());
        final KStream<String, String> events = builder.stream(naming.topic("events"), Topologies.TEXT);
        events.groupByKey(BY_KEY).count(Materialized.as("count"));
        events.process(new Supplier(store, "events-"));
        final KStream<String, String> versioned = builder.stream(naming.topic("versioned"), Topologies.TEXT);
        versioned.groupByKey(BY_KEY).count(Materialized.as("second-count"));
        versioned.process(new Supplier(store, topology.equals("shared-written") ? "versioned-" : null));
        builder.stream(naming.topic("fk-left"), Topologies.TEXT).groupByKey(BY_KEY).count(Materialized.as("last-count"));
    }

    private static final class Supplier implements ProcessorSupplier<String, String, Void, Void> {
        private final StoreBuilder<KeyValueStore<String, String>> builder;
        private final String prefix;

        Supplier(final StoreBuilder<KeyValueStore<String, String>> builder, final String prefix) {
            this.builder = builder;
            this.prefix = prefix;
        }

        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(builder);
        }

        @Override
        public Processor<String, String, Void, Void> get() {
            return new Processor<>() {
                private KeyValueStore<String, String> store;

                @Override
                public void init(final ProcessorContext<Void, Void> context) {
                    store = context.getStateStore("shared");
                }

                @Override
                public void process(final Record<String, String> record) {
                    if (prefix == null) {
                        store.get(record.key());
                    } else {
                        store.put(prefix + record.key(), record.value());
                    }
                }
            };
        }
    }
}
