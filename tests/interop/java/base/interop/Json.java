package interop;

import java.io.PrintStream;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/** Minimal JSON writer: maps, collections, strings, numbers, booleans, null. */
final class Json {
    /** Standard output as the JVM got it: what is no event may be sent elsewhere (System.setOut). */
    private static final PrintStream EVENTS = System.out;

    private Json() { }

    static Map<String, Object> obj(final Object... keysAndValues) {
        final Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < keysAndValues.length; i += 2) {
            map.put((String) keysAndValues[i], keysAndValues[i + 1]);
        }
        return map;
    }

    static String write(final Object value) {
        final StringBuilder sb = new StringBuilder();
        append(sb, value);
        return sb.toString();
    }

    /** One JSON line on standard output. */
    static void print(final Object... keysAndValues) {
        final String line = write(obj(keysAndValues));
        synchronized (EVENTS) {
            EVENTS.println(line);
            EVENTS.flush();
        }
    }

    private static void append(final StringBuilder sb, final Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            sb.append(value);
        } else if (value instanceof Map) {
            String sep = "{";
            for (final Map.Entry<?, ?> e : ((Map<?, ?>) value).entrySet()) {
                sb.append(sep);
                string(sb, String.valueOf(e.getKey()));
                sb.append(':');
                append(sb, e.getValue());
                sep = ",";
            }
            sb.append(sep.equals("{") ? "{}" : "}");
        } else if (value instanceof Collection) {
            String sep = "[";
            for (final Object o : (Collection<?>) value) {
                sb.append(sep);
                append(sb, o);
                sep = ",";
            }
            sb.append(sep.equals("[") ? "[]" : "]");
        } else {
            string(sb, value.toString());
        }
    }

    private static void string(final StringBuilder sb, final String s) {
        sb.append('"');
        for (int i = 0; i < s.length(); i++) {
            final char c = s.charAt(i);
            if (c == '"' || c == '\\') {
                sb.append('\\').append(c);
            } else if (c < 0x20) {
                sb.append(String.format("\\u%04x", (int) c));
            } else {
                sb.append(c);
            }
        }
        sb.append('"');
    }
}
