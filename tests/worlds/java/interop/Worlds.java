package interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;

/** The server of generated worlds: the commands of {@link Kills}, over the topologies of {@link Mix}, and two more. */
public final class Worlds {
    private Worlds() { }

    public static void main(final String[] argv) throws IOException {
        Farm.MORE.add(new Mix());
        Main.serve(Worlds::call);
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
