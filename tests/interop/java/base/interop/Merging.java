package interop;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.WindowStore;

/**
 * "merge-a": two counts and a table, each a sub-topology of its own, and a count behind a repartition topic. "merge-b" has the two
 * counts in one sub-topology and no repartition topic; "merge-tables" the table and the windows in one; "merge-stateless" the first
 * count and a topic that has no store, and "merge-joined" joins these two.
 */
final class Merging {
    private static final Grouped<String, String> BY_KEY = Grouped.with(Serdes.String(), Serdes.String());

    private Merging() { }

    static void build(final StreamsBuilder builder, final Naming naming, final String topology) {
        final KStream<String, String> events = builder.stream(naming.topic("events"), Topologies.TEXT);
        events.groupByKey(BY_KEY).count(Materialized.as("event-count"));
        final KStream<String, String> left = builder.stream(naming.topic("left"), Topologies.TEXT);
        left.groupByKey(BY_KEY).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("left-window").withRetention(Naming.RETENTION));
        final KTable<String, String> table = builder.table(naming.topic("table"), Topologies.TEXT, Materialized.as("source-table"));
        switch (topology) {
            case "merge-a":
                builder.stream(naming.topic("fk-left"), Topologies.TEXT).selectKey((key, value) -> value)
                    .groupByKey(Grouped.with("by-value", Serdes.String(), Serdes.String())).count(Materialized.as("by-value-count"));
                break;
            case "merge-b":
                out(events.merge(left), naming);
                break;
            case "merge-tables":
                out(table.toStream().merge(left), naming);
                break;
            case "merge-stateless":
                out(events.merge(builder.stream(naming.topic("right"), Topologies.TEXT)), naming);
                break;
            case "merge-joined":
                out(events.join(builder.stream(naming.topic("right"), Topologies.TEXT), (one, other) -> one + other,
                    JoinWindows.ofTimeDifferenceAndGrace(Naming.WINDOW, Naming.GRACE),
                    StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName("join").withStoreName("join")), naming);
                break;
            default:
                throw new IllegalArgumentException(topology);
        }
    }

    private static void out(final KStream<String, String> stream, final Naming naming) {
        stream.to(naming.topic("out"), Produced.with(Serdes.String(), Serdes.String()));
    }
}
