package interop;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;

import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.StateSerdes;

/**
 * Keys and values of one store as the bytes that lie in it. Its own serdes make them: not every key is text (the subscriptions
 * of a foreign-key join, the unmatched records of a stream-stream join). They are in a field that has the same name everywhere.
 */
final class StoreBytes {
    private static final int TIMESTAMP_BYTES = 8;

    private final StateSerdes<Object, Object> serdes; // null: a store without, or no store of this name

    private StoreBytes(final StateSerdes<Object, Object> serdes) {
        this.serdes = serdes;
    }

    @SuppressWarnings("unchecked")
    static StoreBytes of(final KafkaStreams streams, final String store) {
        try {
            final Object found = streams.store(StoreQueryParameters.fromNameAndType(store, new StoreDump.AnyStore()));
            // A versioned store keeps its serdes in the key-value store that it wraps.
            final Object internal = field(found, "internal");
            return new StoreBytes((StateSerdes<Object, Object>) field(internal == null ? found : internal, "serdes"));
        } catch (final InvalidStateStoreException unknown) {
            return new StoreBytes(null);
        }
    }

    /** A key as the application knows it; text where the store does not say. */
    Object key(final byte[] raw) {
        if (raw == null) {
            return null;
        }
        try {
            return serdes == null ? new String(raw, StandardCharsets.UTF_8) : serdes.keyFrom(raw);
        } catch (final RuntimeException e) { // not to be taken for an answer of Streams
            throw new IllegalArgumentException("not a key of this store: " + e, e);
        }
    }

    byte[] rawKey(final Object key) {
        return simple(key) || serdes == null ? StoreDump.bytes(key) : serdes.rawKey(key);
    }

    /** Without what the store keeps beside the value: the serializers of a timestamp and of headers wrap that of the value. */
    @SuppressWarnings("unchecked")
    byte[] rawValue(final Object value) {
        if (simple(value) || serdes == null) {
            return StoreDump.bytes(value);
        }
        Serializer<Object> serializer = serdes.valueSerializer();
        for (Object inner = serializer; inner != null; inner = field(inner, "valueSerializer")) {
            serializer = (Serializer<Object>) inner;
        }
        return serializer.serialize(serdes.topic(), new RecordHeaders(), value); // 4.3 knows subscriptions only with headers
    }

    private static boolean simple(final Object o) {
        return o == null || o instanceof byte[] || o instanceof Bytes || o instanceof String || o instanceof Long;
    }

    private static Object field(final Object o, final String name) {
        for (Class<?> type = o.getClass(); type != null; type = type.getSuperclass()) {
            try {
                final Field field = type.getDeclaredField(name);
                field.setAccessible(true);
                return field.get(o);
            } catch (final NoSuchFieldException above) {
                continue;
            } catch (final IllegalAccessException e) {
                throw new IllegalStateException(e);
            }
        }
        return null;
    }
}
