package interop;

import java.time.Duration;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Stream-table join with a grace period (KIP-923): a persistent time-ordered buffer with a changelog. */
public final class GraceJoinFeature implements Feature {
    @Override
    public void addToKinds(final StreamsBuilder builder, final Naming naming, final KStream<String, String> events) {
        final KTable<String, String> table = events.filter((k, v) -> v != null).toTable(Materialized.<String, String>as(
                Stores.persistentVersionedKeyValueStore(naming.store("grace-table"), Naming.HISTORY, Naming.HISTORY_SEGMENT))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()));
        events.filter((k, v) -> v != null)
            .join(table, (l, r) -> l + "/" + r,
                Joined.with(Serdes.String(), Serdes.String(), Serdes.String(), naming.store("grace-join"), Duration.ofMinutes(4)))
            .to(naming.topic("out"), Produced.with(Serdes.String(), Serdes.String()));
    }
}
