package interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyDescription;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** Runs one application until it has consumed its input, and tells what it did as JSON lines. */
final class Runner {
    private static final long FETCHED_MS = 500;
    /** From the end of the global thread on: what the client itself makes of it, ERROR up to 4.2, comes first. */
    private static final long GLOBAL_GONE_MS = 3_000;
    /** So long nothing may have been processed: with every topic committed to its end, and when an internal one is not. */
    private static final long IDLE_MS = 300;
    private static final long IDLE_UNSURE_MS = 2_000;

    private final Args args;
    private final String bootstrap;
    private final String app;
    private final long began = System.nanoTime();
    private final List<Restore> restores = new ArrayList<>();
    private final AtomicBoolean failed = new AtomicBoolean();
    private final AtomicLong exceptions = new AtomicLong();
    private Map<String, Map<String, Object>> digests = Map.of();

    private static final class Restore {
        String store;
        TopicPartition tp;
        long start;
        long end;
        long batches;
        long records;
        long startNanos;
        long endNanos;
        String how = "started";
    }

    Runner(final Args args) {
        this.args = args;
        this.bootstrap = args.need("bootstrap");
        this.app = args.need("app");
    }

    /** Writes the text of a topology, as an application that is started would, without starting one. */
    static int describe(final Args args) throws Exception {
        final Runner runner = new Runner(args);
        final String name = args.need("topology");
        final Naming naming = new Naming(args.get("prefix", name), "", args.get("store-suffix", ""));
        final List<Feature> features = Topologies.features("9.9");
        final Properties config = runner.config(name);
        final Topology topology;
        if (args.has("named")) {
            final KafkaStreams streams = Named.streams(config);
            topology = Named.topology(streams, args.need("named"), name, naming, features);
            streams.close();
        } else {
            topology = Topologies.build(name, naming, features).build(config);
        }
        Files.writeString(Path.of(args.need("into")), topology.describe().toString());
        return 0;
    }

    /** 0 done; 2 time ran out; 3 Streams ended in ERROR; 4 restored although expect-no-restore; 5 a store cannot be read. */
    int run() throws Exception {
        final String topologyName = args.need("topology");
        final Naming naming = new Naming(args.get("prefix", topologyName), "", args.get("store-suffix", ""));
        final List<Feature> features = Topologies.features(args.get("as-of", "9.9"));
        final Properties config = config(topologyName);
        final Topology topology;
        final KafkaStreams streams;
        try {
            if (!args.has("beside")) {
                removeMembersOfDeadRuns();
            }
            if (args.has("named")) {
                streams = Named.streams(config);
                topology = Named.topology(streams, args.need("named"), topologyName, naming, features);
            } else {
                topology = Topologies.build(topologyName, naming, features).build(config);
                streams = new KafkaStreams(topology, config);
            }
        } catch (final RuntimeException e) {
            exception("build", e);
            return 3;
        }
        if (args.has("describe")) {
            System.err.println(topology.describe());
        }
        if (args.has("describe-into")) {
            Files.writeString(Path.of(args.need("describe-into")), topology.describe().toString());
        }
        streams.setStateListener((now, before) -> {
            Json.print("event", "state", "from", before.toString(), "to", now.toString(), "ms", ms());
            if (now == KafkaStreams.State.ERROR) {
                failed.set(true);
            }
        });
        streams.setGlobalStateRestoreListener(new Listener());
        streams.setUncaughtExceptionHandler(e -> {
            exception("thread", e);
            if (args.has("replace-thread")) {
                return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
            }
            failed.set(true);
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        int rc;
        waitAtGate();
        try {
            if (args.has("named")) {
                Named.start(streams, topology);
            } else {
                streams.start();
            }
        } catch (final RuntimeException e) {
            exception("start", e);
            failed.set(true);
        }
        int step = 0;
        holdOn(streams);
        rc = args.has("at-once") ? 0 : settle(streams, topology, features, naming, args, step);
        for (final Args then : args.objects("then")) {
            if (rc != 0) {
                break;
            }
            step++;
            if (then.has("produce")) {
                produce(streams, then.object("produce"));
            }
            rc = settle(streams, topology, features, naming, then, step);
        }
        final String state = streams.state().toString();
        boolean closed = false;
        if (!args.has("kill")) {
            closed = streams.close(Duration.ofSeconds(args.num("close-seconds", 60)));
            rc = failed.get() ? 3 : rc;
        }
        rc = summary(rc, state, closed);
        if (args.has("kill")) {
            Json.print("event", "halt");
            Runtime.getRuntime().halt(rc);
        }
        return rc;
    }

    /** Waits until as many processes as "gate-size" have left a file in the folder "gate": they start at one moment. */
    private void waitAtGate() throws Exception {
        if (!args.has("gate")) {
            return;
        }
        final Path gate = Files.createDirectories(Path.of(args.need("gate")));
        Files.createFile(gate.resolve(Long.toString(ProcessHandle.current().pid())));
        while (gate.toFile().list().length < args.num("gate-size", 1)) {
            Thread.sleep(5);
        }
    }

    /** Waits for the file that "until" names: meanwhile the application runs under whatever load it gets. */
    private void holdOn(final KafkaStreams streams) throws InterruptedException {
        final TreeSet<String> told = new TreeSet<>();
        while (args.has("until") && !failed.get() && !Files.exists(Path.of(args.need("until")))) {
            if (args.has("beside") && streams.state().isRunningOrRebalancing()) {
                tellTasks(streams, told);
            }
            Thread.sleep(20);
        }
    }

    /** The tasks of this instance, whenever they are others than before. */
    private static void tellTasks(final KafkaStreams streams, final TreeSet<String> told) {
        final TreeSet<String> active = new TreeSet<>();
        final TreeSet<String> standby = new TreeSet<>();
        for (final org.apache.kafka.streams.ThreadMetadata thread : streams.metadataForLocalThreads()) {
            thread.activeTasks().forEach(task -> active.add(task.taskId().toString()));
            thread.standbyTasks().forEach(task -> standby.add(task.taskId().toString()));
        }
        final TreeSet<String> now = new TreeSet<>(active);
        standby.forEach(task -> now.add("standby " + task));
        if (!now.equals(told)) {
            told.clear();
            told.addAll(now);
            Json.print("event", "tasks", "active", List.copyOf(active), "standby", List.copyOf(standby));
        }
    }

    /** Waits until all input is consumed, then answers queries and reads the stores. */
    private int settle(final KafkaStreams streams, final Topology topology, final List<Feature> features, final Naming naming,
                       final Args what, final int step) throws Exception {
        try {
            if (!failed.get() && !consumedAll(streams, topology.describe())) {
                return failed.get() ? 3 : 2;
            }
        } catch (final RuntimeException e) {
            exception("wait", e);
            return 1;
        }
        if (failed.get()) {
            return 3;
        }
        if (what.has("queries")) {
            final long asked = System.nanoTime();
            final long count = new Queries(streams).answer(what.need("queries"), what.need("answers"));
            Json.print("event", "answers", "step", step, "queries", count, "tookMs", (System.nanoTime() - asked) / 1_000_000);
        }
        if (what.has("no-dump")) {
            return 0;
        }
        final long reading = System.nanoTime();
        final StoreDump dump = new StoreDump(streams, topology.describe(), features, index(naming), partitions(naming));
        dump.write(what.get("dump", null));
        digests = dump.digests;
        Json.print("event", "read", "step", step, "tookMs", (System.nanoTime() - reading) / 1_000_000);
        digests.forEach((store, d) -> Json.print("event", "store", "step", step, "store", store, "entries", d.get("entries"),
            "sha256", d.get("sha256"), "persistent", d.get("persistent"), "position", d.get("position"),
            "note", d.get("note")));
        return dump.unreadable.isEmpty() ? 0 : 5;
    }

    /**
     * A second batch while the application runs. Processing is paused until all of it has been fetched: Streams then takes the
     * records of a task's partitions in the order of their times, as it does with input that was there before the start.
     */
    private void produce(final KafkaStreams streams, final Args batch) throws Exception {
        call(streams, "pause");
        Produce.run(batch, bootstrap);
        Thread.sleep(FETCHED_MS);
        call(streams, "resume");
    }

    /** pause and resume exist since 3.3. */
    private static void call(final KafkaStreams streams, final String method) throws ReflectiveOperationException {
        try {
            KafkaStreams.class.getMethod(method).invoke(streams);
        } catch (final NoSuchMethodException older) {
            return;
        }
    }

    private Properties config(final String topologyName) {
        final Properties c = new Properties();
        c.put("application.id", app);
        c.put("client.id", app);
        c.put("bootstrap.servers", bootstrap);
        c.put("state.dir", args.need("state-dir"));
        c.put("processing.guarantee", args.get("guarantee", "alos").equals("eos") ? "exactly_once_v2" : "at_least_once");
        c.put("num.stream.threads", args.get("threads", "1"));
        c.put("topology.optimization", "all");
        c.put("statestore.cache.max.bytes", "0");
        c.put("cache.max.bytes.buffering", "0"); // its name before 3.4
        c.put("session.timeout.ms", "6000");
        c.put("heartbeat.interval.ms", "200");
        // A fetch that waits for more blocks every later request to the same broker, and there is only one.
        c.put("consumer.fetch.max.wait.ms", "20");
        c.put("poll.ms", "20");
        // At once instead of once a second of wall-clock time: what a join and a window emit, and keep, is then the same in every run.
        c.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", "0");
        c.put("__emit.interval.ms.kstreams.windowed.aggregation__", "0");
        c.put("auto.offset.reset", "earliest");
        c.put("default.key.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
        c.put("default.value.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
        if (args.get("guarantee", "alos").equals("alos")) {
            c.put("commit.interval.ms", "100");
        }
        if (!args.has("kill")) {
            // Six times the default: on a busy machine a start may take longer than that, and its transaction be aborted.
            c.put("producer.transaction.timeout.ms", "60000");
        }
        if (args.has("upgrade-from")) {
            c.put("upgrade.from", args.get("upgrade-from", null));
        }
        if (topologyName.equals("headers") || topologyName.equals("headers-joins")) {
            c.put("dsl.store.format", "HEADERS");
        }
        for (final String pair : args.all("conf")) {
            c.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        final Map<String, Object> shown = new TreeMap<>();
        c.forEach((k, v) -> shown.put(k.toString(), v));
        shown.remove("bootstrap.servers");
        shown.remove("state.dir");
        Json.print("event", "config", "version", kafkaVersion(), "topology", topologyName, "config", shown);
        return c;
    }

    /** Return the version that the kafka-clients jar names. Its class is in the package "internals" since 4.4. */
    private static String kafkaVersion() {
        final String utils = "org.apache.kafka.common.utils.";
        ReflectiveOperationException missing = null;
        for (final String parser : List.of(utils + "AppInfoParser", utils + "internals.AppInfoParser")) {
            try {
                return String.valueOf(Class.forName(parser).getMethod("getVersion").invoke(null));
            } catch (final ReflectiveOperationException e) {
                missing = e;
            }
        }
        throw new IllegalStateException("kafka-clients has no AppInfoParser", missing);
    }

    static void removeMembers(final Admin admin, final String group) throws InterruptedException {
        try {
            admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get();
        } catch (final ExecutionException none) {
            return; // no such group, or nobody in it
        }
    }

    /** A killed run stays a group member until its session times out: remove it, so that this run starts at once. */
    private void removeMembersOfDeadRuns() {
        try (Admin admin = Admin.create(Topics.client(bootstrap))) {
            removeMembers(admin, app);
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** The topics that the tasks of a topology read; internal ones without the prefix of their application. */
    static TreeSet<String> sources(final TopologyDescription description) {
        final TreeSet<String> sources = new TreeSet<>();
        for (final TopologyDescription.Subtopology sub : description.subtopologies()) {
            for (final TopologyDescription.Node node : sub.nodes()) {
                if (node instanceof TopologyDescription.Source) {
                    sources.addAll(((TopologyDescription.Source) node).topicSet());
                }
            }
        }
        return sources;
    }

    /** True once RUNNING, every source partition is committed to its end, and nothing was processed for a while. */
    private boolean consumedAll(final KafkaStreams streams, final TopologyDescription description) throws Exception {
        final long deadline = System.nanoTime() + Duration.ofSeconds(args.num("timeout", 400)).toNanos();
        final long killAt = args.num("kill-at-records", Long.MAX_VALUE);
        final TreeSet<String> sources = sources(description);
        double processed = -1;
        long since = System.nanoTime();
        long lagChecked = 0;
        long idleMs = 0; // 0: not all consumed yet
        String lag = "?";
        final boolean global = !description.globalStores().isEmpty();
        long globalThreadGone = 0;
        try (Admin admin = Admin.create(Topics.client(bootstrap))) {
            while (System.nanoTime() < deadline) {
                if (failed.get()) {
                    return false;
                }
                if (!global || hasGlobalThread()) {
                    globalThreadGone = 0;
                } else if (globalThreadGone == 0) {
                    globalThreadGone = System.nanoTime();
                } else if (System.nanoTime() - globalThreadGone > GLOBAL_GONE_MS * 1_000_000L) {
                    Json.print("event", "global-thread-ended", "state", streams.state().toString(), "ms", ms());
                    break;
                }
                final double now = processed(streams);
                final KafkaStreams.State state = streams.state();
                if (now >= killAt) {
                    summary(0, state.toString(), false);
                    Json.print("event", "halt", "processed", now);
                    Runtime.getRuntime().halt(0);
                }
                if (now != processed || state != KafkaStreams.State.RUNNING) {
                    processed = now;
                    since = System.nanoTime();
                    idleMs = 0;
                } else {
                    if (idleMs == 0 && System.nanoTime() - lagChecked > 50_000_000L) {
                        lag = lag(admin, app, sources);
                        lagChecked = System.nanoTime();
                        idleMs = lag == null ? IDLE_MS : lag.startsWith(INTERNAL) ? IDLE_UNSURE_MS : 0;
                    }
                    if (idleMs > 0 && System.nanoTime() - since >= idleMs * 1_000_000L) {
                        final String still = lag(admin, app, sources);
                        if (still == null || idleMs == IDLE_UNSURE_MS) {
                            Json.print("event", "drained", "processed", processed, "ms", ms(), "lag", still);
                            return true;
                        }
                        idleMs = 0;
                    }
                }
                Thread.sleep(killAt == Long.MAX_VALUE ? 20 : 5);
            }
        }
        Json.print("event", "timeout", "state", streams.state().toString(), "lag", lag, "ms", ms());
        return false;
    }

    /** The thread of the global stores of this client. Without it the application gets nowhere: 4.3.1 stays REBALANCING for ever. */
    private boolean hasGlobalThread() {
        final Thread[] threads = new Thread[Thread.activeCount() + 32];
        return Arrays.stream(threads, 0, Thread.enumerate(threads))
            .anyMatch(thread -> thread.getName().startsWith(app) && thread.getName().endsWith("GlobalStreamThread"));
    }

    private static double processed(final KafkaStreams streams) {
        double sum = 0;
        for (final Map.Entry<org.apache.kafka.common.MetricName, ? extends Metric> e : streams.metrics().entrySet()) {
            if (e.getKey().name().equals("process-total") && e.getKey().group().equals("stream-thread-metrics")) {
                sum += ((Number) e.getValue().metricValue()).doubleValue();
            }
        }
        return sum;
    }

    static final String INTERNAL = "internal: ";

    /** Null when all topics are committed to their ends; else a text naming the first that is not, internal ones last. */
    static String lag(final Admin admin, final String app, final TreeSet<String> sources) throws Exception {
        final Map<TopicPartition, OffsetAndMetadata> committed =
            admin.listConsumerGroupOffsets(app).partitionsToOffsetAndMetadata().get();
        final Map<TopicPartition, OffsetSpec> wanted = new LinkedHashMap<>();
        final TreeMap<String, TopicDescription> topics = Topics.describe(admin, name -> sources.contains(name)
            || name.startsWith(app + "-") && (name.endsWith("-repartition") || name.endsWith("-topic")));
        String unsure = null;
        for (final Map.Entry<String, TopicDescription> e : topics.entrySet()) {
            e.getValue().partitions().forEach(p -> wanted.put(new TopicPartition(e.getKey(), p.partition()), OffsetSpec.latest()));
        }
        final Map<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> ends = admin.listOffsets(wanted).all().get();
        for (final TopicPartition tp : wanted.keySet()) {
            final long end = ends.get(tp).offset();
            final OffsetAndMetadata at = committed.get(tp);
            final boolean internal = !sources.contains(tp.topic());
            // Internal topics may end in a transaction marker, which nobody commits past.
            final long needed = internal ? end - 1 : end;
            if (end > 0 && (at == null || at.offset() < needed)) {
                final String text = tp + " committed " + (at == null ? "nothing" : at.offset()) + " of " + end;
                if (!internal) {
                    return text;
                }
                unsure = INTERNAL + text;
            }
        }
        return unsure;
    }

    /** Keys and times of the topics that versioned stores are built from. */
    private Map<String, List<Topics.KeyTime>> index(final Naming naming) throws Exception {
        final Map<String, List<Topics.KeyTime>> index = new TreeMap<>();
        try (Admin admin = Admin.create(Topics.client(bootstrap))) {
            final java.util.Set<String> present = admin.listTopics().names().get();
            for (final String name : List.of("versioned", "events")) {
                if (present.contains(naming.topic(name))) {
                    index.put(name, Topics.index(bootstrap, naming.topic(name)));
                    if (args.has("every-partition")) {
                        index.compute(name, (topic, times) -> everywhere(times, naming));
                    }
                }
            }
        }
        return index;
    }

    /** The same keys and times in each partition: those of a topic whose number of partitions has changed moved. */
    private List<Topics.KeyTime> everywhere(final List<Topics.KeyTime> times, final Naming naming) {
        final List<Topics.KeyTime> all = new ArrayList<>();
        try {
            for (int partition = 0; partition < partitions(naming); partition++) {
                for (final Topics.KeyTime time : times) {
                    all.add(new Topics.KeyTime(time.key, time.timestamp, partition));
                }
            }
        } catch (final Exception e) {
            throw new IllegalStateException(e);
        }
        return all;
    }

    private int partitions(final Naming naming) throws Exception {
        try (Admin admin = Admin.create(Topics.client(bootstrap))) {
            return Topics.describe(admin, name -> name.startsWith(naming.topic(""))).values().stream()
                .mapToInt(d -> d.partitions().size()).max().orElse(1);
        }
    }

    private int summary(final int rcSoFar, final String state, final boolean closed) {
        final Map<String, Long> byStore = new TreeMap<>();
        long records = 0;
        long unexpected = 0;
        long first = Long.MAX_VALUE;
        long last = Long.MIN_VALUE;
        final List<String> allowed = args.all("may-restore");
        synchronized (restores) {
            for (final Restore r : restores) {
                byStore.merge(r.store, r.records, Long::sum);
                records += r.records;
                final Map<String, Object> d = digests.get(r.store);
                final boolean inMemory = d != null && Boolean.FALSE.equals(d.get("persistent"));
                if (!inMemory && !allowed.contains(r.store)) {
                    unexpected += r.records;
                }
                if (r.records > 0) {
                    first = Math.min(first, r.startNanos);
                    last = Math.max(last, r.endNanos);
                }
            }
        }
        final int rc = rcSoFar == 0 && args.has("expect-no-restore") && unexpected > 0 ? 4 : rcSoFar;
        final double seconds = records == 0 ? 0 : (last - first) / 1e9;
        final List<String> restored = byStore.entrySet().stream().filter(e -> e.getValue() > 0)
            .map(e -> e.getKey() + "=" + e.getValue()).collect(Collectors.toList());
        Json.print("event", "summary", "rc", rc, "state", state, "closedCleanly", closed, "exceptions", exceptions.get(),
            "restoredRecords", records, "restoredFromPersistentStores", unexpected, "restored", restored,
            "storesChecked", byStore.size(), "restoreSeconds", seconds,
            "restoreRecordsPerSecond", seconds > 0 ? Math.round(records / seconds) : 0, "ms", ms());
        return rc;
    }

    private long ms() {
        return (System.nanoTime() - began) / 1_000_000;
    }

    private void exception(final String where, final Throwable e) {
        exceptions.incrementAndGet();
        final List<String> causes = new ArrayList<>();
        for (Throwable c = e.getCause(); c != null && causes.size() < 10; c = c.getCause()) {
            causes.add(c.getClass().getName() + ": " + c.getMessage());
        }
        Json.print("event", "exception", "where", where, "class", e.getClass().getName(), "message", e.getMessage(),
            "causes", causes, "ms", ms());
        e.printStackTrace();
    }

    private final class Listener implements StateRestoreListener {
        private Restore find(final TopicPartition tp, final String store) {
            synchronized (restores) {
                for (int i = restores.size() - 1; i >= 0; i--) {
                    if (restores.get(i).tp.equals(tp) && restores.get(i).store.equals(store)) {
                        return restores.get(i);
                    }
                }
            }
            throw new IllegalStateException("restore of " + store + " " + tp + " goes on but never started");
        }

        @Override
        public void onRestoreStart(final TopicPartition tp, final String store, final long start, final long end) {
            final Restore r = new Restore();
            r.store = store;
            r.tp = tp;
            r.start = start;
            r.end = end;
            r.startNanos = System.nanoTime();
            r.endNanos = r.startNanos;
            synchronized (restores) {
                restores.add(r);
            }
            Json.print("event", "restore-start", "store", store, "topic", tp.topic(), "partition", tp.partition(),
                "start", start, "end", end, "ms", ms());
        }

        @Override
        public void onBatchRestored(final TopicPartition tp, final String store, final long batchEnd, final long count) {
            final Restore r = find(tp, store);
            r.batches++;
            r.records += count;
            r.endNanos = System.nanoTime();
        }

        @Override
        public void onRestoreEnd(final TopicPartition tp, final String store, final long total) {
            ended("restore-end", tp, store, total);
        }

        // A default method of the interface since 3.5; before that nobody calls it.
        public void onRestoreSuspended(final TopicPartition tp, final String store, final long total) {
            ended("restore-suspended", tp, store, total);
        }

        private void ended(final String event, final TopicPartition tp, final String store, final long total) {
            final Restore r = find(tp, store);
            r.records = Math.max(total, r.records);
            r.endNanos = System.nanoTime();
            Json.print("event", event, "store", store, "topic", tp.topic(), "partition", tp.partition(), "start", r.start,
                "end", r.end, "restored", total, "batches", r.batches, "tookMs", (r.endNanos - r.startNanos) / 1_000_000,
                "ms", ms());
        }
    }
}
