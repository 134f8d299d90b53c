package interop;

import org.apache.kafka.clients.admin.Admin;

/** Ends what killed applications left on the broker: open transactions are aborted, and dead members leave their groups. */
final class Quiet {
    private Quiet() { }

    static int run(final Args args) throws Exception {
        try (Admin admin = Admin.create(Topics.client(args.need("bootstrap")))) {
            Settle.abortTransactions(admin, args.all("apps"));
            for (final String app : args.all("apps")) {
                Runner.removeMembers(admin, app);
            }
        }
        return 0;
    }
}
