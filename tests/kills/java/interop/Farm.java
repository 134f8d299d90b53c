package interop;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.locks.LockSupport;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Several applications in one JVM: they die together in the middle of their work, or start together on what is left. */
final class Farm {
    private static final long POLL_NANOS = 2_000_000;
    private static final long RUNNING_MS = 300;
    private static final long UNSURE_MS = 5_000;
    private static final long TOGETHER_NANOS = 10_000_000_000L;
    private static final String OWN = "kills";
    /** Topologies besides those of the harness: see the server that adds them. */
    static final List<Feature> MORE = new ArrayList<>();
    private static volatile boolean open;
    private static volatile long pace;

    private Farm() { }

    /** Holds a record until all applications run, and then as long as the command says. */
    static void pace() {
        while (!open) {
            LockSupport.parkNanos(POLL_NANOS);
        }
        if (pace > 0) {
            LockSupport.parkNanos(pace);
        }
    }

    /** Three tasks: one with most kinds, one of a join, one of a versioned table. */
    private static StreamsBuilder own(final Naming naming, final long nanosPerRecord) {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("kv-plain"), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("window-plain", Naming.RETENTION, Naming.WINDOW, false), Serdes.String(), Serdes.String()));
        final KStream<String, String> events = builder.stream(naming.topic("events"), Topologies.TEXT);
        events.process(() -> new Puts(nanosPerRecord), "kv-plain", "window-plain");
        final Grouped<String, String> byKey = Grouped.with(Serdes.String(), Serdes.String());
        events.groupByKey(byKey).count(Materialized.as("count"));
        events.groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(Naming.WINDOW, Naming.GRACE))
            .reduce((before, now) -> now, Materialized.<String, String, WindowStore<Bytes, byte[]>>as("window-reduce")
                .withRetention(Naming.RETENTION));
        events.groupByKey(byKey).windowedBy(SessionWindows.ofInactivityGapAndGrace(Naming.SESSION_GAP, Naming.GRACE))
            .reduce((before, now) -> now, Materialized.<String, String, SessionStore<Bytes, byte[]>>as("session-reduce")
                .withRetention(Naming.RETENTION));
        builder.stream(naming.topic("left"), Topologies.TEXT).leftJoin(builder.stream(naming.topic("right"), Topologies.TEXT),
                (l, r) -> l.length() + "/" + r, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMinutes(9), Naming.GRACE),
                StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName("join").withStoreName("join"))
            .filter((key, value) -> false).to(naming.topic("out"), Produced.with(Serdes.String(), Serdes.String()));
        builder.table(naming.topic("versioned"), Topologies.TEXT,
            Materialized.as(Stores.persistentVersionedKeyValueStore("versioned", Naming.HISTORY, Naming.HISTORY_SEGMENT)));
        return builder;
    }

    private static final class Puts implements Processor<String, String, Void, Void> {
        private final long nanos;
        private KeyValueStore<String, String> plain;
        private WindowStore<String, String> window;

        Puts(final long nanos) {
            this.nanos = nanos;
        }

        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            plain = context.getStateStore("kv-plain");
            window = context.getStateStore("window-plain");
        }

        @Override
        public void process(final Record<String, String> record) {
            plain.put(record.key(), record.value());
            window.put(record.key(), record.value(), record.timestamp() - record.timestamp() % Naming.WINDOW.toMillis());
            while (!open) {
                LockSupport.parkNanos(POLL_NANOS);
            }
            LockSupport.parkNanos(nanos);
        }
    }

    /** One application, which can be closed and started again. */
    private static final class Instance {
        final Args args;
        final String app;
        final String bootstrap;
        final long nanos;
        KafkaStreams streams;
        boolean failed;
        double before;
        Metric total;
        boolean again;
        long runningSince;
        final long patience;
        TreeSet<String> sources = new TreeSet<>();

        Instance(final Args args, final String bootstrap, final long nanos) {
            this.args = args;
            this.app = args.need("app");
            this.bootstrap = bootstrap;
            this.nanos = nanos;
            this.patience = Duration.ofSeconds(args.num("patience", 600)).toNanos();
        }

        void start() {
            final Properties config = config();
            final Naming naming = new Naming(args.need("prefix"));
            final String name = args.get("topology", OWN);
            final List<Feature> features = Topologies.features("9.9");
            features.addAll(MORE);
            final StreamsBuilder builder = name.equals(OWN) ? own(naming, nanos) : Topologies.build(name, naming, features);
            final Topology topology = builder.build(config);
            sources = Runner.sources(topology.describe());
            if (args.has("describe-into")) {
                describe(topology);
            }
            streams = new KafkaStreams(topology, config);
            streams.setUncaughtExceptionHandler(e -> {
                failed = true;
                Json.print("event", "exception", "app", app, "class", e.getClass().getName(), "message", e.getMessage(),
                    "cause", String.valueOf(e.getCause()));
                return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.setGlobalStateRestoreListener(new Restores(app));
            streams.start();
        }

        private void describe(final Topology topology) {
            try {
                Files.writeString(Path.of(args.need("describe-into")), topology.describe().toString());
            } catch (final IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /** The metric is looked up once: a map of all metrics of many applications costs milliseconds. */
        double processed() {
            if (total == null) {
                for (final Map.Entry<org.apache.kafka.common.MetricName, ? extends Metric> e : streams.metrics().entrySet()) {
                    if (e.getKey().name().equals("process-total") && e.getKey().group().equals("stream-thread-metrics")) {
                        total = e.getValue();
                    }
                }
            }
            return before + (total == null ? 0 : ((Number) total.metricValue()).doubleValue());
        }

        private Properties config() {
            final Properties c = new Properties();
            c.put("application.id", app);
            c.put("client.id", app);
            c.put("bootstrap.servers", bootstrap);
            c.put("state.dir", args.need("state-dir"));
            c.put("processing.guarantee", args.need("guarantee").equals("alos") ? "at_least_once" : "exactly_once_v2");
            if (args.has("transactional")) {
                c.put("enable.transactional.statestores", "true");
            }
            if (!args.has("large-buffers")) {
                c.put("rocksdb.config.setter", "interop.SmallBuffers");
            }
            if (!args.get("topology", OWN).equals(OWN)) {
                c.put("topology.optimization", "all");
            }
            c.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", "0");
            c.put("__emit.interval.ms.kstreams.windowed.aggregation__", "0");
            for (final String pair : args.all("conf")) {
                c.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            }
            c.put("commit.interval.ms", args.get("commit-ms", "100"));
            c.put("num.stream.threads", "1");
            c.put("statestore.cache.max.bytes", "0");
            c.put("session.timeout.ms", "10000");
            c.put("heartbeat.interval.ms", "500");
            c.put("consumer.fetch.max.wait.ms", "50");
            c.put("max.poll.records", "50");
            c.put("poll.ms", "20");
            c.put("auto.offset.reset", "earliest");
            c.put("default.key.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
            c.put("default.value.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
            return c;
        }
    }

    private static final class Restores implements StateRestoreListener {
        private final String app;

        Restores(final String app) {
            this.app = app;
        }

        @Override
        public void onRestoreStart(final TopicPartition tp, final String store, final long start, final long end) {
            Json.print("event", "restore-start", "app", app, "store", store, "topic", tp.topic(),
                "partition", tp.partition(), "start", start, "end", end);
        }

        @Override
        public void onBatchRestored(final TopicPartition tp, final String store, final long batchEnd, final long count) { }

        @Override
        public void onRestoreEnd(final TopicPartition tp, final String store, final long total) {
            Json.print("event", "restore-end", "app", app, "store", store, "partition", tp.partition(), "restored", total);
        }
    }

    private static List<Instance> instances(final Args args) throws Exception {
        final List<Instance> all = new ArrayList<>();
        pace = args.num("nanos", 0);
        try (Admin admin = Admin.create(Topics.client(args.need("bootstrap")))) {
            for (final Args each : args.objects("apps")) {
                all.add(new Instance(each, args.need("bootstrap"), args.num("nanos", 0)));
                Runner.removeMembers(admin, each.need("app"));
            }
        }
        for (final Instance each : all) {
            try {
                each.start();
            } catch (final RuntimeException e) {
                each.failed = true;
                Json.print("event", "exception", "app", each.app, "class", e.getClass().getName(), "message", e.getMessage(),
                    "cause", String.valueOf(e.getCause()));
            }
        }
        return all;
    }

    /**
     * Runs the applications until they have processed "halt-at" records together, or nothing for "idle-ms", and halts the JVM.
     * An application with "close-at" is closed once, when it has processed so many, and started again.
     */
    static int kill(final Args args) throws Exception {
        open = false; // all begin at the same time: else the first has processed everything before the last runs
        final List<Instance> all = instances(args);
        final long deadline = System.nanoTime() + Duration.ofSeconds(args.num("timeout", 180)).toNanos();
        final long haltAt = args.num("halt-at", Long.MAX_VALUE);
        // Not longer: a thread that waits in the first record of one task cannot finish the start of another.
        final long together = System.nanoTime() + TOGETHER_NANOS;
        while (System.nanoTime() < together
            && !all.stream().allMatch(each -> each.failed || each.streams.state() == KafkaStreams.State.RUNNING)) {
            Thread.sleep(5);
        }
        open = true;
        final Idle idle = new Idle(args);
        double total = 0;
        while (System.nanoTime() < deadline && total < haltAt && !idle.since(all, total)) {
            total = 0;
            for (final Instance each : all) {
                final double processed = each.processed();
                total += processed;
                if (each.args.has("close-at") && !each.again && processed >= each.args.num("close-at", 0)) {
                    each.again = true;
                    final KafkaStreams old = each.streams;
                    old.close(Duration.ofSeconds(30));
                    each.before = processed;
                    each.total = null;
                    each.start();
                }
            }
            LockSupport.parkNanos(POLL_NANOS);
        }
        for (final Instance each : all) {
            Json.print("event", "killed", "app", each.app, "processed", each.processed(), "closed", each.again,
                "state", each.streams.state().toString());
        }
        Json.print("event", "halt", "processed", total);
        if (args.has("by-signal")) {
            Thread.sleep(60_000);
        }
        Runtime.getRuntime().halt(0);
        return 0;
    }

    /** Whether all applications run, and have processed nothing for a while. */
    private static final class Idle {
        private final long nanos;
        private double before = -1;
        private long since;

        Idle(final Args args) {
            nanos = args.num("idle-ms", 0) * 1_000_000;
        }

        boolean since(final List<Instance> all, final double total) {
            final boolean run = all.stream().allMatch(each -> each.failed || each.streams.state() == KafkaStreams.State.RUNNING);
            if (nanos == 0 || !run || total != before) {
                before = total;
                since = System.nanoTime();
                return false;
            }
            return lasted() > nanos;
        }

        /** How long nothing has been processed, in ns. */
        long lasted() {
            return System.nanoTime() - since;
        }
    }

    /**
     * With "idle-ms": waits until nothing was processed for so long, and all input is committed. A host that is too busy to run the
     * applications looks idle as well. What is committed of internal topics counts only until nothing has happened for a while.
     */
    private static void awaitConsumed(final Args args, final List<Instance> all, final long deadline) throws Exception {
        if (!args.has("idle-ms")) {
            return;
        }
        final Idle idle = new Idle(args);
        try (Admin admin = Admin.create(Topics.client(args.need("bootstrap")))) {
            while (System.nanoTime() < deadline) {
                final double total = all.stream().mapToDouble(Instance::processed).sum();
                if (idle.since(all, total) && isConsumed(admin, all, idle.lasted() > UNSURE_MS * 1_000_000)) {
                    return;
                }
                Thread.sleep(20);
            }
        }
    }

    private static boolean isConsumed(final Admin admin, final List<Instance> all, final boolean unsure) throws Exception {
        for (final Instance each : all) {
            if (!each.failed) {
                final String lag = Runner.lag(admin, each.app, each.sources);
                if (lag != null && !(unsure && lag.startsWith(Runner.INTERNAL))) {
                    return false;
                }
            }
        }
        return true;
    }

    /**
     * Starts the applications on what is there, waits until each is RUNNING or its "patience" in seconds is over, and closes
     * them. With "idle-ms" it waits until they have processed their input, too.
     */
    static int start(final Args args) throws Exception {
        open = true;
        final List<Instance> all = instances(args);
        final long began = System.nanoTime();
        final long deadline = began + Duration.ofSeconds(args.num("timeout", 600)).toNanos();
        boolean waiting = true;
        while (waiting && System.nanoTime() < deadline) {
            waiting = false;
            for (final Instance each : all) {
                if (each.failed || each.streams == null || System.nanoTime() - began > each.patience) {
                    continue;
                }
                if (each.streams.state() != KafkaStreams.State.RUNNING) {
                    each.runningSince = 0;
                } else if (each.runningSince == 0) {
                    each.runningSince = System.nanoTime();
                }
                waiting |= each.runningSince == 0 || System.nanoTime() - each.runningSince < RUNNING_MS * 1_000_000;
            }
            Thread.sleep(20);
        }
        awaitConsumed(args, all, deadline);
        for (final Instance each : all) {
            final String state = each.streams == null ? "none" : each.streams.state().toString();
            final double processed = each.streams == null ? 0 : each.processed();
            final boolean closed = each.streams != null && each.streams.close(Duration.ofSeconds(30));
            Json.print("event", "started", "app", each.app, "state", state, "failed", each.failed, "closed", closed,
                "processed", processed);
        }
        return 0;
    }
}
