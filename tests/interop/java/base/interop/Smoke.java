package interop;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;

/**
 * Kafka's own smoke tests. Their classes are in the jar of Kafka's tests on the class path, so they are called by name:
 * they generate input, and verify from all output whether an application counted every record.
 */
final class Smoke {
    private static final String TESTS = "org.apache.kafka.streams.tests.";
    private static final String RELATIONAL = "relational";
    private static final long CLOSE_SECONDS = 120;

    private final Args args;
    private final boolean relational;

    private Smoke(final Args args) {
        this.args = args;
        this.relational = args.need("test").equals(RELATIONAL);
        Json.write(null); // it has taken standard output now
        System.setOut(System.err); // where Kafka's tests print their own lines
    }

    /** Creates the topics of a test. */
    static int topics(final Args args) throws Exception {
        final Smoke smoke = new Smoke(args);
        final String[] names = (String[]) call(type(smoke.relational ? "RelationalSmokeTest" : "SmokeTestDriver"), null, "topics");
        final List<NewTopic> topics = new ArrayList<>();
        for (final String name : names) {
            topics.add(new NewTopic(name, (int) args.num("partitions", 3), (short) 1));
        }
        try (Admin admin = Admin.create(Topics.client(args.need("bootstrap")))) {
            admin.createTopics(topics).all().get();
        }
        return 0;
    }

    /** Generates input over some seconds, tells so, waits for the file "until", and verifies all output. */
    static int drive(final Args args) throws Exception {
        return new Smoke(args).drive();
    }

    /** Runs the application of a test until the file "until" exists; closes it. */
    static int client(final Args args) throws Exception {
        return new Smoke(args).client();
    }

    private int drive() throws Exception {
        final String bootstrap = args.need("bootstrap");
        final Duration over = Duration.ofSeconds(args.num("seconds", 30));
        final int keys = (int) args.num("keys", 20);
        final int records = (int) args.num("records", 500);
        if (relational) {
            final Object data = call(type("RelationalSmokeTest$DataSet"), null, "generate", keys, records);
            call(data.getClass(), data, "produce", bootstrap, over);
            generated();
            final Object passed = call(type("RelationalSmokeTest$App"), null, "verifySync", bootstrap, Instant.now().plus(Duration.ofMinutes(3)));
            return verified((Boolean) passed, "");
        }
        final Class<?> driver = type("SmokeTestDriver");
        final Object data = call(driver, null, "generate", bootstrap, keys, records, over);
        generated();
        final Object result = call(driver, null, "verify", bootstrap, data, records, args.get("guarantee", "alos").equals("eos"));
        return verified((Boolean) call(result.getClass(), result, "passed"), call(result.getClass(), result, "result").toString());
    }

    private void generated() throws InterruptedException {
        Json.print("event", "generated");
        while (!Files.exists(Path.of(args.need("until")))) {
            Thread.sleep(50);
        }
    }

    private static int verified(final boolean passed, final String text) {
        Json.print("event", "verified", "passed", passed, "text", text);
        return passed ? 0 : 6;
    }

    private int client() throws Exception {
        final Properties c = new Properties();
        c.put("application.id", args.need("app"));
        c.put("bootstrap.servers", args.need("bootstrap"));
        c.put("state.dir", args.need("state-dir"));
        c.put("processing.guarantee", args.get("guarantee", "alos").equals("eos") ? "exactly_once_v2" : "at_least_once");
        c.put("auto.offset.reset", "earliest");
        c.put("session.timeout.ms", "6000");
        c.put("heartbeat.interval.ms", "500");
        // What a killed run has not committed is aborted soon, so that those who read only committed records go on.
        c.put("transaction.timeout.ms", "10000");
        for (final String pair : args.all("conf")) {
            c.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        final KafkaStreams streams = new KafkaStreams(topology(), c);
        final boolean[] failed = new boolean[1];
        streams.setStateListener((now, before) -> {
            failed[0] |= now == KafkaStreams.State.ERROR;
            Json.print("event", "state", "from", before.toString(), "to", now.toString());
        });
        streams.setUncaughtExceptionHandler(e -> {
            Json.print("event", "exception", "where", "thread", "class", e.getClass().getName(), "message", e.getMessage());
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        final long[] restored = new long[1];
        streams.setGlobalStateRestoreListener(new Count(restored));
        streams.start();
        while (!Files.exists(Path.of(args.need("until"))) && !failed[0]) {
            Thread.sleep(50);
        }
        final boolean closed = streams.close(Duration.ofSeconds(CLOSE_SECONDS));
        Json.print("event", "closed", "closed", closed, "restored", restored[0]);
        return failed[0] || !closed ? 3 : 0;
    }

    /** Counts the records of every restoration, and tells those of each as they end. */
    private static final class Count implements org.apache.kafka.streams.processor.StateRestoreListener {
        private final long[] restored;

        Count(final long[] restored) {
            this.restored = restored;
        }

        @Override
        public void onRestoreStart(final org.apache.kafka.common.TopicPartition partition, final String store, final long start, final long end) { }

        @Override
        public void onBatchRestored(final org.apache.kafka.common.TopicPartition partition, final String store, final long end, final long number) { }

        @Override
        public synchronized void onRestoreEnd(final org.apache.kafka.common.TopicPartition partition, final String store, final long total) {
            restored[0] += total;
            if (total > 0) {
                Json.print("event", "restored", "store", store, "partition", partition.partition(), "records", total);
            }
        }
    }

    private Topology topology() throws Exception {
        if (relational) {
            return (Topology) call(type("RelationalSmokeTest$App"), null, "getTopology");
        }
        final Constructor<?> constructor = type("SmokeTestClient").getDeclaredConstructor(String.class);
        constructor.setAccessible(true);
        final Object client = constructor.newInstance(args.need("app"));
        return (Topology) call(client.getClass(), client, "getTopology");
    }

    private static Class<?> type(final String name) throws ClassNotFoundException {
        return Class.forName(TESTS + name);
    }

    /** The method of this name that takes these arguments. What it throws is thrown as it is. */
    private static Object call(final Class<?> type, final Object of, final String name, final Object... arguments) throws Exception {
        for (final Method method : type.getDeclaredMethods()) {
            if (method.getName().equals(name) && takes(method.getParameterTypes(), arguments)) {
                method.setAccessible(true);
                try {
                    return method.invoke(of, arguments);
                } catch (final InvocationTargetException e) {
                    throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
                }
            }
        }
        throw new NoSuchMethodException(type.getName() + "." + name);
    }

    private static boolean takes(final Class<?>[] parameters, final Object[] arguments) {
        boolean same = parameters.length == arguments.length;
        for (int i = 0; same && i < parameters.length; i++) {
            final Class<?> boxed = Map.<Class<?>, Class<?>>of(int.class, Integer.class, boolean.class, Boolean.class, long.class, Long.class)
                .getOrDefault(parameters[i], parameters[i]);
            same = boxed.isInstance(arguments[i]);
        }
        return same;
    }
}
