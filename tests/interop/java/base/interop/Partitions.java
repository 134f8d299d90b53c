package interop;

import java.io.BufferedWriter;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Random;

import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.kstream.internals.WindowedSerializer;
import org.apache.kafka.streams.kstream.internals.WindowedStreamPartitioner;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.internals.DefaultStreamPartitioner;
import org.apache.kafka.streams.state.internals.SessionKeySchema;
import org.apache.kafka.streams.state.internals.WindowKeySchema;

/**
 * Keys as Streams writes them to changelogs, and the partition that Streams' own partitioners give their records: a line
 * "KIND HEX PARTITION" for each, in the file "into", without a broker.
 */
final class Partitions {
    private final Random random;
    private final int count;
    private final StreamPartitioner<byte[], Object> plain;
    private final StreamPartitioner<Windowed<byte[]>, Object> windowed;

    @SuppressWarnings("unchecked")
    private Partitions(final Args args) throws ReflectiveOperationException {
        // Releases up to 3.2 have another constructor: only the call fails there, and not the compiler.
        plain = (StreamPartitioner<byte[], Object>) DefaultStreamPartitioner.class.getConstructor(Serializer.class)
            .newInstance(new ByteArraySerializer());
        random = new Random(args.num("seed", 1));
        count = (int) args.num("count", 3);
        final WindowedSerializer<byte[]> inner = new TimeWindowedSerializer<>(new ByteArraySerializer());
        windowed = new WindowedStreamPartitioner<>(inner);
    }

    static int run(final Args args) throws Exception {
        final Partitions partitions = new Partitions(args);
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(args.need("into")))) {
            for (final String kind : args.all("kinds")) {
                for (long i = 0; i < args.num("keys", 1_000); i++) {
                    final byte[] key = partitions.bytes(1 + partitions.random.nextInt(40));
                    out.write(kind + " " + HexFormat.of().formatHex(partitions.logged(kind, key)) + " "
                        + partitions.partition(kind, key) + "\n");
                }
            }
        }
        return 0;
    }

    private byte[] bytes(final int length) {
        final byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        return bytes;
    }

    private int partition(final String kind, final byte[] key) throws ReflectiveOperationException {
        // What comes from a windowed table is partitioned by the key within.
        if (kind.equals("window") || kind.equals("time-windowed") || kind.equals("session")) {
            return call(windowed, new Windowed<>(key, new TimeWindow(1_000, 2_000)));
        }
        return call(plain, key);
    }

    /** 4.4 has a method with headers, and only that one works there. Releases before 3.4 have none of the two. */
    private int call(final StreamPartitioner<?, Object> partitioner, final Object key) throws ReflectiveOperationException {
        Optional<?> all = Optional.empty();
        for (final Method method : partitioner.getClass().getMethods()) {
            method.setAccessible(true);
            if (method.getName().equals("partitions") && method.getParameterCount() == 5) {
                all = (Optional<?>) method.invoke(partitioner, "topic", key, null, new RecordHeaders(), count);
                break;
            }
            if (method.getName().equals("partitions") && !hasHeaders(partitioner)) {
                all = (Optional<?>) method.invoke(partitioner, "topic", key, null, count);
                break;
            }
        }
        return (Integer) ((Collection<?>) all.orElseThrow()).iterator().next();
    }

    private static boolean hasHeaders(final StreamPartitioner<?, Object> partitioner) {
        return java.util.Arrays.stream(partitioner.getClass().getMethods())
            .anyMatch(method -> method.getName().equals("partitions") && method.getParameterCount() == 5);
    }

    private byte[] logged(final String kind, final byte[] key) throws ReflectiveOperationException {
        final long time = random.nextLong() & Long.MAX_VALUE;
        switch (kind) {
            case "key-value":
            case "versioned":
                return key;
            case "window":
                return WindowKeySchema.toStoreKeyBinary(Bytes.wrap(key), time, random.nextInt(100)).get();
            case "session":
                return SessionKeySchema.toBinary(new Windowed<>(Bytes.wrap(key), new SessionWindow(time / 2, time))).get();
            case "time-windowed":
                return new TimeWindowedSerializer<>(new ByteArraySerializer())
                    .serialize("topic", new Windowed<>(key, new TimeWindow(time / 2, time)));
            case "list-value":
                return joinSide(key, time);
            case "foreign-key-subscription":
                return combined(key, bytes(random.nextInt(20)));
            case "grace-buffer":
                return buffer(key, time);
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** Its constructor is not public, nor is that of its key. */
    @SuppressWarnings("unchecked")
    private byte[] joinSide(final byte[] key, final long time) throws ReflectiveOperationException {
        final String internals = "org.apache.kafka.streams.state.internals.";
        final Class<?> type = Class.forName(internals + "TimestampedKeyAndJoinSideSerializer");
        final Constructor<?> constructor = type.getDeclaredConstructor(Serializer.class);
        constructor.setAccessible(true);
        final Class<?> pair = Class.forName(internals + "TimestampedKeyAndJoinSide");
        final Object value = pair.getMethod(random.nextBoolean() ? "makeLeft" : "makeRight", Object.class, long.class)
            .invoke(null, key, time);
        return ((Serializer<Object>) constructor.newInstance(new ByteArraySerializer()))
            .serialize("topic", new RecordHeaders(), value); // 4.3 knows only this one
    }

    /** CombinedKeySchema.toBytes needs a context of a running task: this is its body. */
    private static byte[] combined(final byte[] foreign, final byte[] primary) {
        return ByteBuffer.allocate(Integer.BYTES + foreign.length + primary.length)
            .putInt(foreign.length).put(foreign).put(primary).array();
    }

    /** The class is not public. */
    private byte[] buffer(final byte[] key, final long time) throws ReflectiveOperationException {
        final Class<?> schema =
            Class.forName("org.apache.kafka.streams.state.internals.PrefixedWindowKeySchemas$TimeFirstWindowKeySchema");
        final Method method = schema.getMethod("toStoreKeyBinary", Bytes.class, long.class, int.class);
        method.setAccessible(true);
        return ((Bytes) method.invoke(null, Bytes.wrap(key), time, random.nextInt(100))).get();
    }
}
