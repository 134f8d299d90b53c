package interop;

import java.util.Map;

import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.RangeQuery;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.query.TimestampedKeyQuery;
import org.apache.kafka.streams.query.TimestampedRangeQuery;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.VersionedRecord;

/** The queries that came with 3.7: of versions (KIP-960, KIP-968), in an order (KIP-985), with timestamps (KIP-992). */
public final class LaterQueries implements Feature {
    @Override
    public Query<?> query(final Queries.Question question) {
        final ResultOrder order = ResultOrder.valueOf(question.order.toUpperCase(java.util.Locale.ROOT));
        switch (question.kind) {
            case "range":
                return range(question, order);
            case "timestamped-key":
                return TimestampedKeyQuery.withKey(question.key);
            case "timestamped-range":
                return timestampedRange(question, order);
            case "versioned-key":
                final VersionedKeyQuery<Object, Object> latest = VersionedKeyQuery.withKey(question.key);
                return question.asOf == null ? latest : latest.asOf(question.asOf);
            case "multi-versioned-key":
                return versions(question, order);
            default:
                return null;
        }
    }

    private static Query<?> range(final Queries.Question question, final ResultOrder order) {
        final RangeQuery<Object, Object> range = Queries.range(question);
        return order == ResultOrder.ANY ? range
            : order == ResultOrder.ASCENDING ? range.withAscendingKeys() : range.withDescendingKeys();
    }

    private static Query<?> timestampedRange(final Queries.Question question, final ResultOrder order) {
        final TimestampedRangeQuery<Object, Object> range = TimestampedRangeQuery.withRange(question.lower, question.upper);
        return order == ResultOrder.ANY ? range
            : order == ResultOrder.ASCENDING ? range.withAscendingKeys() : range.withDescendingKeys();
    }

    private static Query<?> versions(final Queries.Question question, final ResultOrder order) {
        MultiVersionedKeyQuery<Object, Object> versions = MultiVersionedKeyQuery.withKey(question.key);
        if (question.from != null) {
            versions = versions.fromTime(question.from);
        }
        if (question.to != null) {
            versions = versions.toTime(question.to);
        }
        return order == ResultOrder.ANY ? versions
            : order == ResultOrder.ASCENDING ? versions.withAscendingTimestamps() : versions.withDescendingTimestamps();
    }

    @Override
    public boolean putValue(final Map<String, Object> row, final Object value, final StoreBytes bytes) {
        if (!(value instanceof VersionedRecord)) {
            return false;
        }
        final VersionedRecord<?> record = (VersionedRecord<?>) value;
        row.put("value", StoreDump.base64(bytes.rawValue(record.value())));
        row.put("timestamp", record.timestamp());
        record.validTo().ifPresent(end -> row.put("valid_to", end));
        return true;
    }
}
