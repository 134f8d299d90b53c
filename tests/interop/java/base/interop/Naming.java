package interop;

import java.time.Duration;

/** Names and time constants shared by the topologies and the producer. */
final class Naming {
    static final long BASE_TS = 1_704_067_200_000L; // 2024-01-01T00:00:00Z
    static final Duration SPAN = Duration.ofMinutes(26); // event time that one batch of records spans
    static final Duration WINDOW = Duration.ofMinutes(1);
    static final Duration RETENTION = Duration.ofMinutes(20); // segment interval is half of it: three live segments
    static final Duration GRACE = Duration.ofMinutes(2);
    static final Duration SESSION_GAP = Duration.ofSeconds(40);
    static final Duration HISTORY = Duration.ofMinutes(20);
    static final Duration HISTORY_SEGMENT = Duration.ofMinutes(4);

    private final String prefix;
    private final String storePrefix;
    private final String storeSuffix;

    Naming(final String prefix) {
        this(prefix, "", "");
    }

    /** storeSuffix: what the application appends to the name of each store that it may rename. */
    Naming(final String prefix, final String storePrefix, final String storeSuffix) {
        this.prefix = prefix;
        this.storePrefix = storePrefix;
        this.storeSuffix = storeSuffix;
    }

    /** Names of a second part of a topology, whose topics and stores the first part does not have. */
    Naming part(final String name) {
        return new Naming(prefix + "-" + name, storePrefix + name + "-", storeSuffix);
    }

    String topic(final String name) {
        return prefix + "-" + name;
    }

    String store(final String name) {
        return storePrefix + name + storeSuffix;
    }
}
