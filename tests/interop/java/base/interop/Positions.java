package interop;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.state.internals.PositionSerde;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/**
 * What Position and PositionBound do: each line of the file "operations" is {"id", "op", ...}, each line of the file "results"
 * {"id", "result"} or {"id", "exception", "message"}. A position is {topic: {partition: offset}}, a null bound is no bound.
 */
final class Positions {
    private Positions() { }

    static int run(final Args args) throws Exception {
        final ObjectMapper mapper = new ObjectMapper();
        try (BufferedReader in = Files.newBufferedReader(Path.of(args.need("operations")), StandardCharsets.UTF_8);
             BufferedWriter out = Files.newBufferedWriter(Path.of(args.need("results")), StandardCharsets.UTF_8)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                final Args operation = new Args(mapper.readValue(line, new TypeReference<Map<String, Object>>() { }));
                final Map<String, Object> answer = Json.obj("id", operation.num("id", 0));
                try {
                    answer.put("result", result(operation));
                } catch (final RuntimeException e) {
                    answer.put("exception", e.getClass().getSimpleName());
                    answer.put("message", e.getMessage());
                }
                out.write(Json.write(answer));
                out.write('\n');
            }
        }
        return 0;
    }

    private static Object result(final Args operation) {
        switch (operation.need("op")) {
            case "with-component":
                return StoreDump.position(position(operation.object("position")).withComponent(
                    operation.need("topic"), (int) operation.num("partition", 0), operation.num("offset", 0)));
            case "merge":
                return StoreDump.position(position(operation.object("position")).merge(position(operation.object("other"))));
            case "topics":
                return new TreeSet<>(position(operation.object("position")).getTopics());
            case "partition-positions":
                return position(operation.object("position")).getPartitionPositions(operation.need("topic"));
            case "bound":
                final PositionBound bound = boundOf(operation);
                return Json.obj("unbounded", bound.isUnbounded(), "position", StoreDump.position(bound.position()));
            case "is-permitted":
                return StoreQueryUtils.isPermitted(
                    position(operation.object("position")), boundOf(operation), (int) operation.num("partition", 0));
            case "serialize":
                return StoreDump.base64(PositionSerde.serialize(position(operation.object("position"))).array());
            case "deserialize":
                return StoreDump.position(PositionSerde.deserialize(ByteBuffer.wrap(operation.bytes("bytes"))));
            default:
                throw new IllegalArgumentException("unknown operation '" + operation.need("op") + "'");
        }
    }

    private static PositionBound boundOf(final Args operation) {
        return operation.has("bound") ? bound(operation.object("bound")) : PositionBound.unbounded();
    }

    static PositionBound bound(final Args topics) {
        return PositionBound.at(position(topics));
    }

    private static Position position(final Args topics) {
        final Map<String, Map<Integer, Long>> position = new HashMap<>();
        for (final String topic : topics.names()) {
            final Args offsets = topics.object(topic);
            final Map<Integer, Long> partitions = new HashMap<>();
            offsets.names().forEach(partition -> partitions.put(Integer.valueOf(partition), offsets.num(partition, 0)));
            position.put(topic, partitions);
        }
        return Position.fromMap(position);
    }
}
