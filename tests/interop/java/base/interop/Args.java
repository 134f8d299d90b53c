package interop;

import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/** The members of one command: a JSON object of strings, numbers, booleans, lists and objects. */
final class Args {
    private final Map<String, Object> values;

    Args(final Map<String, Object> values) {
        this.values = values;
    }

    /** True when the member is there and neither null nor false. */
    boolean has(final String name) {
        final Object value = values.get(name);
        return value != null && !Boolean.FALSE.equals(value);
    }

    @SuppressWarnings("unchecked")
    List<String> all(final String name) {
        final Object value = values.get(name);
        return value == null ? List.of() : ((List<Object>) value).stream().map(String::valueOf).collect(Collectors.toList());
    }

    @SuppressWarnings("unchecked")
    List<Args> objects(final String name) {
        final Object value = values.get(name);
        return value == null ? List.of()
            : ((List<Map<String, Object>>) value).stream().map(Args::new).collect(Collectors.toList());
    }

    @SuppressWarnings("unchecked")
    Args object(final String name) {
        return new Args((Map<String, Object>) values.get(name));
    }

    String get(final String name, final String fallback) {
        return has(name) ? String.valueOf(values.get(name)) : fallback;
    }

    String need(final String name) {
        if (!has(name)) {
            throw new IllegalArgumentException("missing member '" + name + "'");
        }
        return String.valueOf(values.get(name));
    }

    /** Null when the member is not there. */
    byte[] bytes(final String name) {
        return has(name) ? Base64.getDecoder().decode(need(name)) : null;
    }

    /** Null when the member is not there. */
    Instant instant(final String name) {
        return has(name) ? Instant.ofEpochMilli(num(name, 0)) : null;
    }

    Set<String> names() {
        return values.keySet();
    }

    long num(final String name, final long fallback) {
        return has(name) ? ((Number) values.get(name)).longValue() : fallback;
    }
}
