/* RocksDBJava. */
package io.forebay.bench.peers;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.CompactRangeOptions;
import org.rocksdb.CompressionType;
import org.rocksdb.DataBlockIndexType;
import org.rocksdb.FlushOptions;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * A compacted database, completely in the block cache, with bloom filters and hashed data blocks.
 */
final class Rocks implements Subject.BatchSubject {
    private static final long CACHE_BYTES = 2L << 30;

    private final Options options;
    private final RocksDB database;
    private final int keyBytes;

    Rocks(Data data, Path folder) throws RocksDBException {
        RocksDB.loadLibrary();
        BlockBasedTableConfig table =
                new BlockBasedTableConfig()
                        .setBlockCache(new LRUCache(CACHE_BYTES, 0))
                        .setFilterPolicy(new BloomFilter(10, false))
                        .setDataBlockIndexType(DataBlockIndexType.kDataBlockBinaryAndHash)
                        .setDataBlockHashTableUtilRatio(0.75);
        options =
                new Options()
                        .setCreateIfMissing(true)
                        .setCompressionType(CompressionType.NO_COMPRESSION)
                        .setTableFormatConfig(table);
        database = RocksDB.open(options, folder.toString());
        try (WriteOptions written = new WriteOptions().setDisableWAL(true);
                WriteBatch batch = new WriteBatch();
                FlushOptions flush = new FlushOptions();
                CompactRangeOptions all = new CompactRangeOptions()) {
            for (long number = 0; number < data.entries(); number++) {
                batch.put(data.key(number), data.value(number));
                if (batch.count() == 1_000 || number + 1 == data.entries()) {
                    database.write(written, batch);
                    batch.clear();
                }
            }
            database.flush(flush);
            database.compactRange(database.getDefaultColumnFamily(), null, null, all);
        }
        keyBytes = data.keyBytes();
    }

    @Override
    public void chain(byte[] key, int steps) throws RocksDBException {
        for (int step = 0; step < steps; step++) {
            System.arraycopy(database.get(key), 0, key, 0, keyBytes);
        }
    }

    @Override
    public void loop(byte[][] keys, byte[][] values) throws RocksDBException {
        for (int place = 0; place < keys.length; place++) {
            values[place] = database.get(keys[place]);
        }
    }

    @Override
    public void batch(byte[][] keys, byte[][] values) throws RocksDBException {
        List<byte[]> found = database.multiGetAsList(Arrays.asList(keys));
        found.toArray(values);
    }

    @Override
    public void close() {
        database.close();
        options.close();
    }
}
