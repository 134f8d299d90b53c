package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * A server on standard input and output: each line of input is a JSON object, whose member "do" names the command; the
 * answer is any number of JSON lines, and at last {"event": "end", "rc": N}. One JVM serves many commands, one after the
 * other, since most of a short run's time is the start of the JVM.
 */
public final class Main {
    private Main() { }

    /** Carries a command out, and returns its exit code. */
    interface Server {
        int call(Args args) throws Exception;
    }

    public static void main(final String[] argv) throws IOException {
        serve(Main::call);
    }

    /** Answers the commands on standard input until its end, and ends this process. */
    static void serve(final Server server) throws IOException {
        final ObjectMapper mapper = new ObjectMapper();
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            int rc = 1;
            final long began = System.nanoTime();
            try {
                rc = server.call(new Args(mapper.readValue(line, new TypeReference<Map<String, Object>>() { })));
            } catch (final Exception | LinkageError e) {
                Json.print("event", "failure", "class", e.getClass().getName(), "message", e.getMessage());
                e.printStackTrace();
            }
            Json.print("event", "end", "rc", rc, "ms", (System.nanoTime() - began) / 1_000_000);
        }
        System.exit(0); // also when a thread of Kafka's still runs
    }

    private static int call(final Args args) throws Exception {
        switch (args.need("do")) {
            case "describe":
                return Runner.describe(args);
            case "run":
                return new Runner(args).run();
            case "produce":
                return Produce.run(args, args.need("bootstrap"));
            case "dump-changelog":
                return Topics.dumpChangelogs(args);
            case "topics":
                return Topics.list(args);
            case "alter-topics":
                return Operate.alterTopics(args);
            case "delete-records":
                return Operate.deleteRecords(args);
            case "delete-app":
                return Topics.deleteApp(args);
            case "open":
                return Opener.run(args);
            case "position":
                return Positions.run(args);
            case "smoke-topics":
                return Smoke.topics(args);
            case "smoke-drive":
                return Smoke.drive(args);
            case "smoke-client":
                return Smoke.client(args);
            case "partitions":
                return Partitions.run(args);
            case "scan":
                return Scan.run(args);
            case "ping":
                return 0;
            default:
                throw new IllegalArgumentException("unknown command '" + args.need("do") + "'");
        }
    }
}
