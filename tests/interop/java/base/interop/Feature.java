package interop;

import java.util.List;
import java.util.Map;

import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.query.Query;

/**
 * What only some Kafka Streams releases have. An implementation lives in a folder since-X.Y of its own, is compiled only
 * for releases from X.Y on, and is loaded by name.
 */
interface Feature {
    String[][] CLASSES = {
        {"3.3", "interop.EmitFeature"}, {"3.5", "interop.VersionedFeature"}, {"3.6", "interop.GraceJoinFeature"}, {"3.7", "interop.MultiVersionedFeature"},
        {"3.7", "interop.LaterQueries"}, {"4.3", "interop.HeadersFeature"},
        {"4.3", "interop.OneStoreFeature"}, {"4.4", "interop.HeaderQueries"}
    };

    /** Adds this release's stores to the topology "kinds". */
    default void addToKinds(final StreamsBuilder builder, final Naming naming, final KStream<String, String> events) { }

    /** Adds this release's aggregations to the topologies "headers" and "headers-old". */
    default void addToHeaders(final StreamsBuilder builder, final Naming naming, final KStream<String, String> events) { }

    /** Builds a whole topology of this name; false when the name is not this feature's. */
    default boolean build(final String topology, final StreamsBuilder builder, final Naming naming,
                          final List<Feature> features) {
        return false;
    }

    /** Adds the rows of one store to out, and returns true, if this feature knows this store. */
    default boolean dump(final KafkaStreams streams, final StateStore store, final String name, final int partition,
                         final Map<String, List<Topics.KeyTime>> index, final List<StoreDump.Row> out) throws Exception {
        return false;
    }

    /** The query of this kind, if releases before this feature's have none, or have it without what is asked. */
    default Query<?> query(final Queries.Question question) {
        return null;
    }

    /** Adds a value that a query gave to its row, and returns true, if only this feature knows its type. */
    default boolean putValue(final Map<String, Object> row, final Object value, final StoreBytes bytes) {
        return false;
    }
}
