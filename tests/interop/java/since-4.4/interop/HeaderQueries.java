package interop;

import java.util.Locale;
import java.util.Map;

import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.ReadOnlyRecord;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.query.TimestampedKeyWithHeadersQuery;
import org.apache.kafka.streams.query.TimestampedRangeWithHeadersQuery;
import org.apache.kafka.streams.query.TimestampedWindowKeyWithHeadersQuery;
import org.apache.kafka.streams.query.TimestampedWindowRangeWithHeadersQuery;

/** The queries that came with 4.4: values with timestamps and record headers (KIP-1356). */
public final class HeaderQueries implements Feature {
    @Override
    public Query<?> query(final Queries.Question question) {
        switch (question.kind) {
            case "headers-key":
                return TimestampedKeyWithHeadersQuery.withKey(question.key);
            case "headers-range":
                final ResultOrder order = ResultOrder.valueOf(question.order.toUpperCase(Locale.ROOT));
                final TimestampedRangeWithHeadersQuery<Object, Object> range =
                    TimestampedRangeWithHeadersQuery.withRange(question.lower, question.upper);
                return order == ResultOrder.ANY ? range
                    : order == ResultOrder.ASCENDING ? range.withAscendingKeys() : range.withDescendingKeys();
            case "headers-window-key":
                return TimestampedWindowKeyWithHeadersQuery.withKeyAndWindowStartRange(question.key, question.from, question.to);
            case "headers-window-range-key":
                return TimestampedWindowRangeWithHeadersQuery.withKey(question.key);
            case "headers-window-range-time":
                return TimestampedWindowRangeWithHeadersQuery.withWindowStartRange(question.from, question.to);
            default:
                return null;
        }
    }

    @Override
    public boolean putValue(final Map<String, Object> row, final Object value, final StoreBytes bytes) {
        if (!(value instanceof ReadOnlyRecord)) {
            return false;
        }
        final ReadOnlyRecord<?, ?> record = (ReadOnlyRecord<?, ?>) value;
        if (record.key() instanceof Windowed) {
            final Windowed<?> windowed = (Windowed<?>) record.key();
            row.put("key", StoreDump.base64(bytes.rawKey(windowed.key())));
            row.put("start", windowed.window().start());
            row.put("end", windowed.window().end());
        } else {
            row.put("key", StoreDump.base64(bytes.rawKey(record.key())));
        }
        row.put("value", StoreDump.base64(bytes.rawValue(record.value())));
        row.put("timestamp", record.timestamp());
        row.put("headers", StoreDump.headers(record.headers()));
        return true;
    }
}
