package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;

/** All versions of every key through the multi-version query (KIP-968), beside what VersionedFeature reads. */
public final class MultiVersionedFeature implements Feature {
    @Override
    public boolean dump(final KafkaStreams streams, final StateStore store, final String name, final int partition,
                        final Map<String, List<Topics.KeyTime>> index, final List<StoreDump.Row> out) {
        if (!(store instanceof VersionedKeyValueStore)) {
            return false;
        }
        final TreeSet<Bytes> keys = new TreeSet<>();
        for (final Topics.KeyTime kt : index.getOrDefault(VersionedFeature.topicOf(name), List.of())) {
            if (kt.partition == partition) {
                keys.add(Bytes.wrap(kt.key));
            }
        }
        for (final Bytes key : keys) {
            final MultiVersionedKeyQuery<String, Object> query =
                MultiVersionedKeyQuery.withKey(new String(key.get(), StandardCharsets.UTF_8));
            final QueryResult<VersionedRecordIterator<Object>> result = streams.query(StateQueryRequest.inStore(name)
                .withQuery(query).withPartitions(Set.of(partition))).getPartitionResults().get(partition);
            if (result.isFailure()) {
                throw new UnsupportedOperationException(result.getFailureMessage());
            }
            try (VersionedRecordIterator<Object> versions = result.getResult()) {
                while (versions.hasNext()) {
                    final VersionedRecord<Object> record = versions.next();
                    final Map<String, Object> line = StoreDump.line(name, partition, "versioned-history", key.get());
                    line.put("value", StoreDump.base64(StoreDump.bytes(record.value())));
                    line.put("timestamp", record.timestamp());
                    final Optional<Long> validTo = record.validTo();
                    line.put("validTo", validTo.orElse(null));
                    out.add(new StoreDump.Row(key.get(), record.timestamp(), 1, Json.write(line)));
                }
            }
        }
        return false; // the rows of VersionedFeature come too
    }
}
