package interop;

import java.util.List;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Aggregations with emit-on-close (KIP-825): time-ordered window and session stores with an index. */
public final class EmitFeature implements Feature {
    @Override
    public void addToKinds(final StreamsBuilder builder, final Naming naming, final KStream<String, String> events) {
        final Grouped<String, String> byKey = Grouped.with(Serdes.String(), Serdes.String());
        events.groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(naming.store("window-final")).withRetention(Naming.RETENTION));
        events.groupByKey(byKey).windowedBy(SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as(naming.store("session-final")).withRetention(Naming.RETENTION));
    }

    @Override
    public void addToHeaders(final StreamsBuilder builder, final Naming naming, final KStream<String, String> events) {
        addToKinds(builder, naming, events);
    }

    /** "emit-text": aggregations with emit-on-close whose values are strings, which nothing but a string serde can tell apart. */
    @Override
    public boolean build(final String topology, final StreamsBuilder builder, final Naming naming, final List<Feature> features) {
        if (topology.equals("moved")) {
            moved(builder, naming);
            return true;
        }
        if (topology.equals("everything")) {
            Topologies.fill(builder, "kinds", naming, features);
            moved(builder, naming.part("m"));
            return true;
        }
        if (!topology.equals("emit-text")) {
            return false;
        }
        final Grouped<String, String> byKey = Grouped.with(Serdes.String(), Serdes.String());
        final KStream<String, String> events = builder.stream(naming.topic("events"), Topologies.TEXT);
        events.groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .aggregate(() -> "", EmitFeature::append,
                Materialized.<String, String, WindowStore<Bytes, byte[]>>as("window-text")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()).withRetention(Naming.RETENTION));
        events.groupByKey(byKey).windowedBy(SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .aggregate(() -> "", EmitFeature::append, (key, one, other) -> one + other,
                Materialized.<String, String, SessionStore<Bytes, byte[]>>as("session-text")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()).withRetention(Naming.RETENTION));
        return true;
    }

    /**
     * "moved": counts that are emitted once when their window closes, of the input and behind a repartition topic, and a
     * foreign-key join without a name; all write to the topic "out". "everything": these beside all kinds.
     */
    private static void moved(final StreamsBuilder builder, final Naming naming) {
        final Produced<String, String> text = Produced.with(Serdes.String(), Serdes.String());
        builder.stream(naming.topic("events"), Topologies.TEXT)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(naming.store("closed")).withRetention(Naming.RETENTION))
            .toStream((key, count) -> key.key() + "@" + key.window().start())
            .mapValues(count -> Long.toString(count))
            .to(naming.topic("out"), text);
        builder.stream(naming.topic("events"), Topologies.TEXT)
            .selectKey((key, value) -> key)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(naming.store("regrouped"))
                .withRetention(Naming.RETENTION))
            .toStream((key, count) -> key.key() + "#" + key.window().start())
            .mapValues(count -> Long.toString(count))
            .to(naming.topic("out"), text);
        final KTable<String, String> left = builder.table(naming.topic("fk-left"), Topologies.TEXT, Materialized.as(naming.store("fk-left")));
        final KTable<String, String> right = builder.table(naming.topic("fk-right"), Topologies.TEXT, Materialized.as(naming.store("fk-right")));
        left.join(right, value -> value.substring(0, value.indexOf('|')), (l, r) -> l + "/" + r,
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(naming.store("fk-result"))
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
            .toStream().to(naming.topic("out"), text);
    }

    private static String append(final String key, final String value, final String before) {
        return value == null ? before : before + value.substring(0, Math.min(2, value.length()));
    }
}
