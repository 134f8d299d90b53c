package interop;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Aggregations with emit-on-close (KIP-825): time-ordered window and session stores with an index. */
public final class EmitFeature implements Feature {
    @Override
    public void addToKinds(final StreamsBuilder builder, final Naming naming, final KStream<String, String> events) {
        final Grouped<String, String> byKey = Grouped.with(Serdes.String(), Serdes.String());
        events.groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("window-final").withRetention(Naming.RETENTION));
        events.groupByKey(byKey).windowedBy(SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("session-final").withRetention(Naming.RETENTION));
    }

    @Override
    public void addToHeaders(final StreamsBuilder builder, final Naming naming, final KStream<String, String> events) {
        addToKinds(builder, naming, events);
    }
}
