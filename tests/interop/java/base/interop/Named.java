package interop;

import java.lang.reflect.InvocationTargetException;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;

/**
 * Named topologies: an internal interface that some applications use, with task directories below __NAME__. By reflection,
 * since it came with 3.0 and is gone from later releases.
 */
final class Named {
    private static final String PACKAGE = "org.apache.kafka.streams.processor.internals.namedtopology.";

    private Named() { }

    static KafkaStreams streams(final Properties config) {
        try {
            return (KafkaStreams) Class.forName(PACKAGE + "KafkaStreamsNamedTopologyWrapper")
                .getConstructor(Properties.class).newInstance(config);
        } catch (final ReflectiveOperationException e) {
            throw new IllegalStateException("this release has no named topologies", cause(e));
        }
    }

    static Topology topology(final KafkaStreams streams, final String name, final String topology, final Naming naming,
                             final List<Feature> features) {
        try {
            final StreamsBuilder builder =
                (StreamsBuilder) streams.getClass().getMethod("newNamedTopologyBuilder", String.class).invoke(streams, name);
            Topologies.fill(builder, topology, naming, features);
            return (Topology) builder.getClass().getMethod("build").invoke(builder);
        } catch (final ReflectiveOperationException e) {
            throw new IllegalStateException(name, cause(e));
        }
    }

    static void start(final KafkaStreams streams, final Topology topology) {
        try {
            streams.getClass().getMethod("start", Class.forName(PACKAGE + "NamedTopology")).invoke(streams, topology);
        } catch (final ReflectiveOperationException e) {
            throw new IllegalStateException("start", cause(e));
        }
    }

    private static Throwable cause(final ReflectiveOperationException e) {
        return e instanceof InvocationTargetException ? e.getCause() : e;
    }
}
