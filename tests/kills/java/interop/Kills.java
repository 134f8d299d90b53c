package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;

/** The server of the generator of kills: commands as JSON lines, as {@link Main} has them. */
public final class Kills {
    private Kills() { }

    public static void main(final String[] argv) throws IOException {
        final ObjectMapper mapper = new ObjectMapper();
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            int rc = 1;
            try {
                rc = call(new Args(mapper.readValue(line, new TypeReference<Map<String, Object>>() { })));
            } catch (final Exception | LinkageError e) {
                Json.print("event", "failure", "class", e.getClass().getName(), "message", e.getMessage());
                e.printStackTrace();
            }
            Json.print("event", "end", "rc", rc);
        }
        System.exit(0);
    }

    static int call(final Args args) throws Exception {
        switch (args.need("do")) {
            case "produce":
                return Produce.run(args, args.need("bootstrap"));
            case "kill":
                return Farm.kill(args);
            case "start":
                return Farm.start(args);
            case "settle":
                return Settle.run(args);
            case "replay":
                return Replay.run(args);
            case "dump-changelog":
                return Changelogs.dump(args);
            default:
                throw new IllegalArgumentException("unknown command '" + args.need("do") + "'");
        }
    }
}
