package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;

/** The server of generated worlds: the commands of {@link Kills}, over the topologies of {@link Mix}, and two more. */
public final class Worlds {
    private Worlds() { }

    public static void main(final String[] argv) throws IOException {
        Farm.MORE.add(new Mix());
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

    private static Properties optimized() {
        final Properties config = new Properties();
        config.put("topology.optimization", "all");
        return config;
    }

    private static int call(final Args args) throws Exception {
        switch (args.need("do")) {
            case "compare":
                return Compare.run(args);
            case "quiet":
                return Quiet.run(args);
            case "describe":
                Files.writeString(Path.of(args.need("into")), Topologies.build(args.need("topology"), new Naming(args.need("prefix")),
                    List.of(new Mix())).build(optimized()).describe().toString());
                return 0;
            default:
                return Kills.call(args);
        }
    }
}
