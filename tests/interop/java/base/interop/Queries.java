package interop;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.RangeQuery;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.StateQueryResult;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;

/**
 * Interactive queries (IQv2): each line of a file is a question to KafkaStreams#query, each line of another the answer of one
 * partition, of a global store (partition -1), or what was thrown instead.
 */
final class Queries {
    private static final Set<String> KINDS = Set.of("headers-key", "headers-range", "headers-window-key",
        "headers-window-range-key", "headers-window-range-time", "key", "range", "timestamped-key", "timestamped-range", "window-key",
        "window-range-key", "window-range-time", "versioned-key", "multi-versioned-key");
    private static final int GLOBAL = -1;

    private final KafkaStreams streams;
    /** Those of the release: what the topology is restricted to has nothing to do with what can be asked. */
    private final List<Feature> features = Topologies.features("9.9");
    private final ObjectMapper mapper = new ObjectMapper();

    Queries(final KafkaStreams streams) {
        this.streams = streams;
    }

    /** One question. Keys are what the store's own serde makes of the bytes; what is not given is null. */
    static final class Question {
        final String kind;
        final String order;
        final Object key;
        final Object lower;
        final Object upper;
        final Instant from;
        final Instant to;
        final Instant asOf;

        private Question(final Args line, final StoreBytes bytes) {
            kind = line.need("query");
            order = line.get("order", "any");
            key = bytes.key(line.bytes("key"));
            lower = bytes.key(line.bytes("lower"));
            upper = bytes.key(line.bytes("upper"));
            from = line.instant("from");
            to = line.instant("to");
            asOf = line.instant("as_of");
        }
    }

    /** Returns the number of questions. */
    long answer(final String questions, final String answers) throws IOException {
        long count = 0;
        try (BufferedReader in = Files.newBufferedReader(Path.of(questions), StandardCharsets.UTF_8);
             BufferedWriter out = Files.newBufferedWriter(Path.of(answers), StandardCharsets.UTF_8)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                for (final Map<String, Object> answer : answer(
                        new Args(mapper.readValue(line, new TypeReference<Map<String, Object>>() { })))) {
                    out.write(Json.write(answer));
                    out.write('\n');
                }
                count++;
            }
        }
        return count;
    }

    private List<Map<String, Object>> answer(final Args line) {
        final long id = line.num("id", 0);
        final String store = line.need("store");
        if (!KINDS.contains(line.need("query"))) {
            throw new IllegalArgumentException("unknown query '" + line.need("query") + "'");
        }
        final List<Map<String, Object>> answers = new ArrayList<>();
        try {
            final StoreBytes bytes = StoreBytes.of(streams, store);
            final Query<?> query = query(new Question(line, bytes));
            if (query == null) {
                return List.of(Json.obj("id", id, "unsupported", true));
            }
            results(line, query).forEach((partition, result) -> answers.add(answer(id, partition, result, bytes)));
        } catch (final RuntimeException e) {
            answers.add(Json.obj("id", id, "exception", e.getClass().getName(), "message", e.getMessage()));
        }
        return answers;
    }

    private <R> Map<Integer, QueryResult<?>> results(final Args line, final Query<R> query) {
        StateQueryRequest<R> request = StateQueryRequest.inStore(line.need("store")).withQuery(query);
        if (line.has("bound")) {
            request = request.withPositionBound(Positions.bound(line.object("bound")));
        }
        if (line.has("partitions")) {
            request = request.withPartitions(line.all("partitions").stream().map(Integer::valueOf).collect(Collectors.toSet()));
        }
        if (line.has("require_active")) {
            request = request.requireActive();
        }
        if (line.has("execution_info")) {
            request = request.enableExecutionInfo();
        }
        final StateQueryResult<R> all = streams.query(request);
        final Map<Integer, QueryResult<?>> results = new TreeMap<>(all.getPartitionResults());
        if (all.getGlobalResult() != null) {
            results.put(GLOBAL, all.getGlobalResult());
        }
        return results;
    }

    private Query<?> query(final Question question) {
        for (final Feature feature : features) {
            final Query<?> query = feature.query(question);
            if (query != null) {
                return query;
            }
        }
        switch (question.kind) {
            case "key":
                return KeyQuery.withKey(question.key);
            case "range":
                return question.order.equals("any") ? range(question) : null;
            case "window-key":
                return WindowKeyQuery.withKeyAndWindowStartRange(question.key, question.from, question.to);
            case "window-range-key":
                return WindowRangeQuery.withKey(question.key);
            case "window-range-time":
                return WindowRangeQuery.withWindowStartRange(question.from, question.to);
            default:
                return null; // since 3.7
        }
    }

    /** withRange takes no null before 3.7. */
    static RangeQuery<Object, Object> range(final Question question) {
        if (question.lower == null) {
            return question.upper == null ? RangeQuery.withNoBounds() : RangeQuery.withUpperBound(question.upper);
        }
        return question.upper == null ? RangeQuery.withLowerBound(question.lower)
            : RangeQuery.withRange(question.lower, question.upper);
    }

    private Map<String, Object> answer(final long id, final int partition, final QueryResult<?> result, final StoreBytes bytes) {
        final Map<String, Object> line = Json.obj("id", id, "partition", partition, "success", result.isSuccess(),
            "reason", result.isFailure() ? result.getFailureReason().name() : null,
            "message", result.isFailure() ? result.getFailureMessage() : null,
            "position", result.getPosition() == null ? null : StoreDump.position(result.getPosition()));
        if (!result.getExecutionInfo().isEmpty()) {
            line.put("execution_info", result.getExecutionInfo());
        }
        try {
            line.put("result", result.isFailure() ? null : result(result.getResult(), bytes));
        } catch (final Exception e) {
            return Json.obj("id", id, "partition", partition, "exception", e.getClass().getName(), "message", e.getMessage());
        }
        return line;
    }

    private Object result(final Object result, final StoreBytes bytes) throws Exception {
        if (!(result instanceof Iterator)) {
            return result == null ? null : row(result, bytes);
        }
        final List<Object> rows = new ArrayList<>();
        try (AutoCloseable closing = (AutoCloseable) result) { // every iterator of a store is one
            ((Iterator<?>) result).forEachRemaining(one -> rows.add(row(one, bytes)));
        }
        return rows;
    }

    private Map<String, Object> row(final Object one, final StoreBytes bytes) {
        final Map<String, Object> row = Json.obj();
        if (!(one instanceof KeyValue)) {
            putValue(row, one, bytes);
            return row;
        }
        final Object key = ((KeyValue<?, ?>) one).key;
        if (key instanceof Windowed) {
            final Windowed<?> windowed = (Windowed<?>) key;
            row.put("key", StoreDump.base64(bytes.rawKey(windowed.key())));
            row.put("start", windowed.window().start());
            row.put("end", windowed.window().end());
        } else if (key instanceof Long) {
            row.put("start", key); // the windows of one key; no store of the topologies has a number as key
        } else {
            row.put("key", StoreDump.base64(bytes.rawKey(key)));
        }
        putValue(row, ((KeyValue<?, ?>) one).value, bytes);
        return row;
    }

    private void putValue(final Map<String, Object> row, final Object value, final StoreBytes bytes) {
        if (features.stream().noneMatch(feature -> feature.putValue(row, value, bytes))) {
            StoreDump.putValue(row, value, bytes::rawValue);
        }
    }
}
