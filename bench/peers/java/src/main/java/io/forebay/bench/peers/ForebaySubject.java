/* The embedded reader, from the released jar. */
package io.forebay.bench.peers;

import io.forebay.Batch;
import io.forebay.FieldHandle;
import io.forebay.FieldType;
import io.forebay.Forebay;
import io.forebay.ForebayClient;
import io.forebay.ForebayReader;
import io.forebay.InMemoryReader;
import io.forebay.Key;
import io.forebay.KeyType;
import io.forebay.Keys;
import io.forebay.PackedValues;
import io.forebay.ReaderOptions;
import io.forebay.StoreSpec;
import java.nio.file.Path;
import java.time.Duration;

/** A reader of four partitions: in memory, or over the files that other readers share. */
final class ForebaySubject implements Subject.BatchSubject {
    private static final int PARTITIONS = 4;
    private static final int WRITTEN_TOGETHER = 2_000;

    private static final String STORE = "read";
    private static final Duration BOUND = Duration.ofMinutes(20);

    private final ForebayReader reader;
    private final FieldHandle value;
    private final int keyBytes;
    private final boolean inMemory;

    private ForebaySubject(ForebayReader reader, int keyBytes, boolean inMemory) {
        this.reader = reader;
        this.keyBytes = keyBytes;
        this.inMemory = inMemory;
        value = reader.field("value", FieldType.BYTES);
    }

    /** Opens a reader in memory, with its documents. */
    static ForebaySubject inMemory(Data data) {
        InMemoryReader reader =
                ForebayReader.inMemory(StoreSpec.keyValue(STORE, KeyType.BYTES)
                        .partitions(PARTITIONS));
        for (long first = 0; first < data.entries(); first += WRITTEN_TOGETHER) {
            Batch batch = reader.asStore().batch();
            long end = Math.min(data.entries(), first + WRITTEN_TOGETHER);
            for (long number = first; number < end; number++) {
                Key key = Key.of(data.key(number));
                batch.add(reader.asStore().putValue(key, data.value(number)));
            }
            batch.send().requireComplete();
        }
        return new ForebaySubject(reader, data.keyBytes(), true);
    }

    /** Opens a reader of the node and the directory in this worker's environment. */
    static ForebaySubject overFiles(Data data) {
        ForebayClient client = ForebayClient.connect(System.getenv("FOREBAY_NODE"));
        Path shared = Path.of(System.getenv("FOREBAY_COPY"));
        ReaderOptions options = ReaderOptions.builder(STORE).checkpointDir(shared).build();
        ForebayReader reader = client.reader(options);
        reader.awaitReady(BOUND);
        return new ForebaySubject(reader, data.keyBytes(), false);
    }

    /** Returns whether the documents are in the process's own memory. */
    boolean isInMemory() {
        return inMemory;
    }

    /** Returns how Java calls the library. */
    static String crossing() {
        return Forebay.nativeInfo().crossing();
    }

    @Override
    public void chain(byte[] key, int steps) {
        for (int step = 0; step < steps; step++) {
            byte[] found = reader.getBytes(value, key);
            System.arraycopy(found, 0, key, 0, keyBytes);
        }
    }

    @Override
    public void loop(byte[][] keys, byte[][] values) {
        for (int place = 0; place < keys.length; place++) {
            values[place] = reader.getBytes(value, keys[place]);
        }
    }

    @Override
    public void batch(byte[][] keys, byte[][] values) {
        PackedValues packed = reader.getMany(value, Keys.of(keys));
        values[keys.length - 1] = packed.bytes(keys.length - 1);
    }

    /** Reads a batch, with an array for each value. */
    void arrays(byte[][] keys, byte[][] values) {
        byte[][] found = reader.getMany(value, Keys.of(keys)).toArrays();
        System.arraycopy(found, 0, values, 0, found.length);
    }

    @Override
    public void close() {
        reader.close();
    }
}
