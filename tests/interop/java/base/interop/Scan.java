package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import org.rocksdb.BloomFilter;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;

/** How fast rocksdbjni reads a store from beginning to end: the measure for whoever reads it without a JVM. */
final class Scan {
    private Scan() { }

    /** {"do": "scan", "path": the database, "family": NAME, "rounds": N}: an event "scan" for each round. */
    static int run(final Args args) throws RocksDBException {
        RocksDB.loadLibrary();
        final List<ColumnFamilyHandle> handles = new ArrayList<>();
        final List<ColumnFamilyDescriptor> families = new ArrayList<>();
        try (Options listing = new Options();
             DBOptions options = new DBOptions();
             BloomFilter bloom = new BloomFilter();
             ColumnFamilyOptions data = Opener.dataOptions(bloom)) {
            int wanted = -1;
            for (final byte[] name : RocksDB.listColumnFamilies(listing, args.need("path"))) {
                wanted = new String(name, StandardCharsets.UTF_8).equals(args.get("family", "default")) ? families.size() : wanted;
                families.add(new ColumnFamilyDescriptor(name, data));
            }
            if (wanted < 0) {
                throw new IllegalArgumentException("no column family '" + args.get("family", "default") + "'");
            }
            try (RocksDB database = RocksDB.openReadOnly(options, args.need("path"), families, handles)) {
                for (int round = 0; round < args.num("rounds", 1); round++) {
                    round(database, handles.get(wanted), round);
                }
                handles.forEach(ColumnFamilyHandle::close);
            }
        }
        return 0;
    }

    private static void round(final RocksDB database, final ColumnFamilyHandle family, final int round) throws RocksDBException {
        final long began = System.nanoTime();
        long rows = 0;
        long bytes = 0; // of use: nobody may leave out a read whose result nobody looks at
        try (RocksIterator all = database.newIterator(family)) {
            for (all.seekToFirst(); all.isValid(); all.next()) {
                bytes += all.key().length + all.value().length;
                rows++;
            }
            all.status();
        }
        Json.print("event", "scan", "round", round, "rows", rows, "bytes", bytes, "seconds", (System.nanoTime() - began) / 1e9);
    }
}
