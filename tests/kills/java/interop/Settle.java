package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * What the broker has of killed applications comes to rest: open transactions are aborted, dead members leave, and all input
 * counts as consumed, so that a later start restores and processes nothing.
 */
final class Settle {
    private Settle() { }

    static int run(final Args args) throws Exception {
        try (Admin admin = Admin.create(Topics.client(args.need("bootstrap")))) {
            abortTransactions(admin, args.all("apps"));
            final Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
            for (final String topic : args.all("inputs")) {
                wanted.put(new TopicPartition(topic, 0), OffsetSpec.latest());
            }
            final Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            admin.listOffsets(wanted).all().get().forEach((tp, info) -> ends.put(tp, new OffsetAndMetadata(info.offset())));
            for (final String app : args.all("apps")) {
                settle(admin, app, ends);
            }
        }
        return 0;
    }

    /** Aborts the open transactions of applications. */
    static void abortTransactions(final Admin admin, final List<String> apps) throws Exception {
        final List<String> open = new ArrayList<>();
        admin.listTransactions().all().get().forEach(t -> {
            if (apps.stream().anyMatch(app -> t.transactionalId().startsWith(app + "-"))) {
                open.add(t.transactionalId());
            }
        });
        if (!open.isEmpty()) {
            admin.fenceProducers(open).all().get();
        }
    }

    private static void settle(final Admin admin, final String app, final Map<TopicPartition, OffsetAndMetadata> ends)
        throws Exception {
        for (int round = 0; ; round++) {
            try {
                Runner.removeMembers(admin, app);
                admin.alterConsumerGroupOffsets(app, ends).all().get();
                return;
            } catch (final ExecutionException notYet) {
                if (round == 100) {
                    throw notYet;
                }
                Thread.sleep(100);
            }
        }
    }
}
