package interop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;

import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.CompactionStyle;
import org.rocksdb.CompressionType;
import org.rocksdb.DBOptions;
import org.rocksdb.InfoLogLevel;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;

/**
 * Opens every RocksDB below an application directory as a Kafka Streams release does: with the RocksDB library of that
 * release, for writing, and with the column families that the release names. Works on a copy whose SST files are hard links
 * (RocksDB never changes one), so the directory stays as it is. No broker, no application: fast enough to run hundreds of times.
 */
final class Opener {
    private static final String OFFSETS = "offsets";
    private static final List<String> OLD_FAMILIES = List.of("default", "keyValueWithTimestamp");

    private Opener() { }

    /** {"do": "open", "path": DIR, "offsets": whether the release keeps offsets in the stores (since 4.3)}. */
    static int run(final Args args) throws Exception {
        RocksDB.loadLibrary();
        final Path source = Path.of(args.need("path")).toRealPath();
        final boolean offsets = args.has("offsets");
        final Path copy = Files.createTempDirectory(Path.of(args.get("temp", System.getProperty("java.io.tmpdir"))), "kstate-open-");
        boolean failed = false;
        final ExecutorService pool = Executors.newFixedThreadPool(4);
        try {
            copy(source, copy);
            final Map<String, Future<Map<String, Object>>> stores = new TreeMap<>();
            for (final Path db : databases(copy)) {
                stores.put(copy.relativize(db).toString(), pool.submit(() -> open(db, offsets)));
            }
            for (final Map.Entry<String, Future<Map<String, Object>>> store : stores.entrySet()) {
                final Map<String, Object> line = Json.obj("event", "database", "path", store.getKey());
                line.putAll(store.getValue().get());
                failed |= line.get("error") != null;
                System.out.println(Json.write(line));
            }
        } finally {
            pool.shutdown();
            delete(copy);
        }
        return failed ? 1 : 0;
    }

    private static List<Path> databases(final Path root) throws IOException {
        try (Stream<Path> files = Files.walk(root)) {
            return files.filter(f -> f.getFileName().toString().equals("CURRENT")).map(Path::getParent).toList();
        }
    }

    private static Map<String, Object> open(final Path db, final boolean withOffsets) {
        final Map<String, Object> result = new LinkedHashMap<>();
        final List<ColumnFamilyHandle> handles = new ArrayList<>();
        final List<String> names = new ArrayList<>();
        try (Options listing = new Options();
             DBOptions options = options();
             BloomFilter bloom = new BloomFilter();
             ColumnFamilyOptions data = dataOptions(bloom);
             ColumnFamilyOptions plain = new ColumnFamilyOptions().setCompressionType(CompressionType.NO_COMPRESSION)
                 .setWriteBufferSize(1024 * 1024)) {
            final List<String> present = new ArrayList<>();
            for (final byte[] name : RocksDB.listColumnFamilies(listing, db.toString())) {
                present.add(new String(name, StandardCharsets.UTF_8));
            }
            result.put("families", present);
            // An older release names the two that it knows: a third one makes RocksDB refuse.
            present.stream().filter(name -> withOffsets || OLD_FAMILIES.contains(name)).forEach(names::add);
            final List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
            for (final String name : names) {
                descriptors.add(descriptor(name, data, plain));
            }
            options.setAtomicFlush(withOffsets);
            try (RocksDB database = RocksDB.open(options, db.toString(), descriptors, handles)) {
                if (withOffsets && !names.contains(OFFSETS)) {
                    handles.add(database.createColumnFamily(descriptor(OFFSETS, data, plain)));
                    names.add(OFFSETS);
                }
                final Map<String, Object> families = new TreeMap<>();
                for (int i = 0; i < names.size(); i++) {
                    if (names.get(i).equals(OFFSETS)) {
                        result.put(OFFSETS, rows(database, handles.get(i)));
                    } else {
                        families.put(names.get(i), digest(database, handles.get(i)));
                    }
                }
                result.put("data", families);
                handles.forEach(ColumnFamilyHandle::close);
            }
        } catch (final RocksDBException | RuntimeException e) {
            result.put("error", String.valueOf(e.getMessage()).replace(db.toString(), "DB"));
        }
        return result;
    }

    private static ColumnFamilyDescriptor descriptor(final String name, final ColumnFamilyOptions data,
                                                     final ColumnFamilyOptions offsets) {
        return new ColumnFamilyDescriptor(name.getBytes(StandardCharsets.UTF_8), name.equals(OFFSETS) ? offsets : data);
    }

    /** As RocksDBStore#openDB sets them. */
    private static DBOptions options() {
        return new DBOptions().setCreateIfMissing(true).setErrorIfExists(false).setInfoLogLevel(InfoLogLevel.ERROR_LEVEL)
            .setIncreaseParallelism(2);
    }

    static ColumnFamilyOptions dataOptions(final BloomFilter bloom) {
        final BlockBasedTableConfig table = new BlockBasedTableConfig();
        table.setBlockSize(4096L);
        table.setFilterPolicy(bloom);
        return new ColumnFamilyOptions().setTableFormatConfig(table).setWriteBufferSize(16 * 1024 * 1024L)
            .setCompressionType(CompressionType.NO_COMPRESSION).setMaxWriteBufferNumber(3)
            .setCompactionStyle(CompactionStyle.UNIVERSAL);
    }

    private static Map<String, Object> rows(final RocksDB database, final ColumnFamilyHandle family) throws RocksDBException {
        final Map<String, Object> rows = new TreeMap<>();
        try (RocksIterator all = database.newIterator(family)) {
            for (all.seekToFirst(); all.isValid(); all.next()) {
                rows.put(new String(all.key(), StandardCharsets.UTF_8), StoreDump.hex(all.value()));
            }
            all.status();
        }
        return rows;
    }

    /** Number of rows, and SHA-256 over all of them: of each the lengths (4 bytes each), key and value. */
    private static Map<String, Object> digest(final RocksDB database, final ColumnFamilyHandle family) throws RocksDBException {
        final MessageDigest sha;
        try {
            sha = MessageDigest.getInstance("SHA-256");
        } catch (final java.security.NoSuchAlgorithmException never) {
            throw new IllegalStateException(never);
        }
        long count = 0;
        try (RocksIterator all = database.newIterator(family)) {
            for (all.seekToFirst(); all.isValid(); all.next()) {
                final byte[] key = all.key();
                final byte[] value = all.value();
                sha.update(java.nio.ByteBuffer.allocate(8).putInt(key.length).putInt(value.length).array());
                sha.update(key);
                sha.update(value);
                count++;
            }
            all.status(); // an iterator ends at a corrupt block too: this throws then
        }
        return Json.obj("rows", count, "sha256", StoreDump.hex(sha.digest()));
    }

    private static void copy(final Path source, final Path target) throws IOException {
        Files.walkFileTree(source, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult preVisitDirectory(final Path dir, final BasicFileAttributes attributes) throws IOException {
                Files.createDirectories(target.resolve(source.relativize(dir).toString()));
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFile(final Path file, final BasicFileAttributes attributes) throws IOException {
                final Path to = target.resolve(source.relativize(file).toString());
                if (file.toString().endsWith(".sst")) {
                    try {
                        Files.createLink(to, file);
                        return FileVisitResult.CONTINUE;
                    } catch (final IOException | UnsupportedOperationException elsewhere) {
                        // another file system: copy it
                    }
                }
                final String name = file.getFileName().toString();
                // A POSIX lock belongs to the process: closing any copy of .lock is harmless, but there is no use for one.
                if (!name.equals(".lock") && !name.equals("LOG") && !name.startsWith("LOG.old.")) {
                    Files.copy(file, to, StandardCopyOption.REPLACE_EXISTING);
                }
                return FileVisitResult.CONTINUE;
            }
        });
    }

    private static void delete(final Path root) throws IOException {
        try (Stream<Path> files = Files.walk(root)) {
            for (final Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }
}
