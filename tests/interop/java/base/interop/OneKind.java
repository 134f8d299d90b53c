package interop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Random;

import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Changelog records of one kind of store, for topologies "one-KIND" that have that store alone. Keys are key-00000042 with what a
 * changelog of the kind has behind it. Windows and sessions lie in twelve hours; versions of a key are in order, over ten.
 */
final class OneKind {
    static final String PREFIX = "one-";
    static final String STORE = "one";
    static final Duration RETENTION = Duration.ofHours(24);
    private static final long HOUR = 3_600_000;
    private static final byte[] HEADER = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

    private OneKind() { }

    static ProducerRecord<byte[], byte[]> record(final String kind, final String topic, final long i, final long records,
                                                 final int keys, final int valueBytes, final Random random) {
        final int id = random.nextInt(keys);
        final byte[] value = new byte[valueBytes];
        random.nextBytes(value);
        final long time = Naming.BASE_TS + (kind.equals("versioned") ? i * 10 * HOUR / records : i);
        final ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, null, time, key(kind, id), value);
        if (kind.startsWith("headers")) {
            record.headers().add("trace", HEADER);
        }
        return record;
    }

    private static byte[] key(final String kind, final int id) {
        final byte[] text = String.format("key-%08d", id).getBytes(StandardCharsets.US_ASCII);
        final long window = Naming.BASE_TS - id % 12 * HOUR;
        if (kind.endsWith("window") || kind.equals("grace-buffer")) {
            return ByteBuffer.allocate(text.length + 12).put(text).putLong(window).putInt(0).array();
        }
        if (kind.endsWith("session")) {
            return ByteBuffer.allocate(text.length + 16).put(text).putLong(window).putLong(window).array();
        }
        return text;
    }
}
