package interop;

import java.io.IOException;

/** The server of the generator of kills: commands as JSON lines, as {@link Main} has them. */
public final class Kills {
    private Kills() { }

    public static void main(final String[] argv) throws IOException {
        Main.serve(Kills::call);
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
