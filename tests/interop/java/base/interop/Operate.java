package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What somebody who looks after a broker does to its topics. */
final class Operate {
    private Operate() { }

    /** Sets "conf" (NAME=VALUE) for each of "topics". */
    static int alterTopics(final Args args) throws Exception {
        final List<AlterConfigOp> operations = new ArrayList<>();
        for (final String pair : args.all("conf")) {
            final int equals = pair.indexOf('=');
            operations.add(new AlterConfigOp(
                new ConfigEntry(pair.substring(0, equals), pair.substring(equals + 1)), AlterConfigOp.OpType.SET));
        }
        final Map<ConfigResource, java.util.Collection<AlterConfigOp>> all = new HashMap<>();
        args.all("topics").forEach(topic -> all.put(new ConfigResource(ConfigResource.Type.TOPIC, topic), operations));
        try (Admin admin = Admin.create(Topics.client(args.need("bootstrap")))) {
            admin.incrementalAlterConfigs(all).all().get();
        }
        return 0;
    }

    /** Deletes what lies below an offset: each of "before" has "topic", "partition" and "offset", -1 for the log's end. */
    static int deleteRecords(final Args args) throws Exception {
        final Map<TopicPartition, RecordsToDelete> all = new HashMap<>();
        for (final Args one : args.objects("before")) {
            all.put(new TopicPartition(one.need("topic"), (int) one.num("partition", 0)),
                RecordsToDelete.beforeOffset(one.num("offset", 0)));
        }
        try (Admin admin = Admin.create(Topics.client(args.need("bootstrap")))) {
            admin.deleteRecords(all).all().get();
        }
        return 0;
    }
}
