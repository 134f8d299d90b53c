package interop;

import java.util.Map;

import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.Options;

/**
 * The setting rocksdb.config.setter=interop.SmallBuffers: RocksDB flushes after a few kilobytes, so that a killed run leaves
 * data, and the mark of an open store, on disk. With the default sizes a small store keeps all of that in memory.
 */
public final class SmallBuffers implements RocksDBConfigSetter {
    @Override
    public void setConfig(final String storeName, final Options options, final Map<String, Object> configs) {
        options.setWriteBufferSize(16 * 1024);
    }

    @Override
    public void close(final String storeName, final Options options) { }
}
