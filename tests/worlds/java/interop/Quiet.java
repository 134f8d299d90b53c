package interop;

import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.clients.admin.Admin;

/** Ends what killed applications left on the broker: open transactions are aborted, and dead members leave their groups. */
final class Quiet {
    private Quiet() { }

    static int run(final Args args) throws Exception {
        try (Admin admin = Admin.create(Topics.client(args.need("bootstrap")))) {
            final List<String> open = new ArrayList<>();
            admin.listTransactions().all().get().forEach(t -> {
                if (args.all("apps").stream().anyMatch(app -> t.transactionalId().startsWith(app + "-"))) {
                    open.add(t.transactionalId());
                }
            });
            if (!open.isEmpty()) {
                admin.fenceProducers(open).all().get();
            }
            for (final String app : args.all("apps")) {
                Runner.removeMembers(admin, app);
            }
        }
        return 0;
    }
}
