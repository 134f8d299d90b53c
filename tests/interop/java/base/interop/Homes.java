package interop;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * "homes-a" and "homes-b": one application before and after a change of its topology. Of A's sub-topologies 0 is gone in B, 2 is
 * split into 1 and 2, 3 and 4 are one, 5 (a table on its source topic) and 6 have other numbers; B has one store more.
 */
final class Homes {
    private static final Grouped<String, String> BY_KEY = Grouped.with(Serdes.String(), Serdes.String());

    private Homes() { }

    static void build(final StreamsBuilder builder, final Naming naming, final boolean before) {
        if (before) {
            builder.stream(naming.topic("fk-right"), Topologies.TEXT).groupByKey(BY_KEY).count(Materialized.as("removed"));
        }
        builder.globalTable(naming.topic("global"), Topologies.TEXT, Materialized.as("global-table"));

        final KStream<String, String> events = builder.stream(naming.topic("events"), Topologies.TEXT);
        events.groupByKey(BY_KEY).count(Materialized.as("count"));
        final KStream<String, String> left = builder.stream(naming.topic("left"), Topologies.TEXT);
        left.groupByKey(BY_KEY).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("window-count").withRetention(Naming.RETENTION));
        if (before) {
            out(events.merge(left), naming);
        }

        final KStream<String, String> versioned = builder.stream(naming.topic("versioned"), Topologies.TEXT);
        versioned.groupByKey(BY_KEY).reduce((a, b) -> b + "+" + a.length(), Materialized.as("reduce"));
        final KStream<String, String> right = builder.stream(naming.topic("right"), Topologies.TEXT);
        right.groupByKey(BY_KEY).windowedBy(SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("session-count").withRetention(Naming.RETENTION));
        if (!before) {
            out(versioned.merge(right), naming);
            versioned.groupByKey(BY_KEY).count(Materialized.as("new-count"));
        }

        builder.table(naming.topic("table"), Topologies.TEXT, Materialized.as("source-table"));

        final KStream<String, String> last = builder.stream(naming.topic("fk-left"), Topologies.TEXT);
        last.groupByKey(BY_KEY).count(Materialized.as("last-count"));
        last.groupByKey(BY_KEY).count(Materialized.as(Stores.inMemoryKeyValueStore("in-memory")));
    }

    private static void out(final KStream<String, String> stream, final Naming naming) {
        stream.to(naming.topic("out"), Produced.with(Serdes.String(), Serdes.String()));
    }
}
