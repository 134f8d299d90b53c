package interop;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;

/** Versioned key-value stores (KIP-889). */
public final class VersionedFeature implements Feature {
    @Override
    public void addToKinds(final StreamsBuilder builder, final Naming naming, final KStream<String, String> events) {
        // Not builder.table: toTable gives it a changelog of its own even though topology.optimization=all.
        builder.stream(naming.topic("versioned"), Topologies.TEXT)
            .toTable(Materialized.<String, String>as(
                Stores.persistentVersionedKeyValueStore(naming.store("versioned"), Naming.HISTORY, Naming.HISTORY_SEGMENT))
                .withKeySerde(org.apache.kafka.common.serialization.Serdes.String())
                .withValueSerde(org.apache.kafka.common.serialization.Serdes.String()));
    }

    /** The input topic that a versioned store is built from. */
    static String topicOf(final String store) {
        return store.startsWith("grace-table") ? "events" : "versioned";
    }

    /** For every key of the input topic: what the store says as of each time at which the topic has a record of that key. */
    @Override
    @SuppressWarnings("unchecked")
    public boolean dump(final KafkaStreams streams, final StateStore store, final String name, final int partition,
                        final Map<String, List<Topics.KeyTime>> index, final List<StoreDump.Row> out) {
        if (!(store instanceof VersionedKeyValueStore)) {
            return false;
        }
        final VersionedKeyValueStore<String, Object> versioned = (VersionedKeyValueStore<String, Object>) store;
        final TreeMap<Bytes, TreeSet<Long>> times = new TreeMap<>();
        for (final Topics.KeyTime kt : index.getOrDefault(topicOf(name), List.of())) {
            if (kt.partition == partition) {
                times.computeIfAbsent(Bytes.wrap(kt.key), k -> new TreeSet<>()).add(kt.timestamp);
            }
        }
        times.forEach((key, stamps) -> {
            final String text = new String(key.get(), java.nio.charset.StandardCharsets.UTF_8);
            stamps.add(Long.MAX_VALUE);
            for (final long asOf : stamps) {
                final VersionedRecord<Object> record =
                    asOf == Long.MAX_VALUE ? versioned.get(text) : versioned.get(text, asOf);
                final Map<String, Object> line = StoreDump.line(name, partition, "versioned", key.get());
                line.put("asOf", asOf == Long.MAX_VALUE ? "latest" : (Object) asOf);
                line.put("value", record == null ? null : StoreDump.base64(StoreDump.bytes(record.value())));
                line.put("timestamp", record == null ? null : record.timestamp());
                out.add(new StoreDump.Row(key.get(), asOf, 0, Json.write(line)));
            }
        });
        return true;
    }
}
