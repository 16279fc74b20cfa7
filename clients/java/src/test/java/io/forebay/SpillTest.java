/* Documents that exceed the memory: every kind of read reads them from disk. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SpillTest extends Behaviours {
    /** Enough memory for the index of the documents, and for a few documents. */
    private static final long LIMIT = 512 << 10;

    private static final long SPILL = 64 << 20;
    private static final int DOCUMENTS = 4_000;
    private static final int WRITTEN_TOGETHER = 40;
    private static final int READ_TOGETHER = 400;
    private static final int VALUE_BYTES = 1 << 10;

    @TempDir Path folder;

    @AfterEach
    void leaveNoCopies() {
        Copies.forget(folder);
    }

    private static StoreSpec large() {
        return StoreSpec.documents(Node.name(), KeyType.INT64)
                .partitions(1)
                .field("n", FieldType.INT64)
                .field("raw", FieldType.BYTES);
    }

    private static byte[] value(long number) {
        byte[] value = new byte[VALUE_BYTES];
        Arrays.fill(value, (byte) number);
        ByteBuffer.wrap(value).putLong(number);
        return value;
    }

    private static Token writeAll(Store store) {
        Token last = null;
        for (long first = 0; first < DOCUMENTS; first += WRITTEN_TOGETHER) {
            Batch batch = store.batch();
            for (long number = first; number < first + WRITTEN_TOGETHER; number++) {
                batch.add(store.put(Key.of(number)).set("n", number).set("raw", value(number)));
            }
            last = batch.send().requireComplete().token();
        }
        return last;
    }

    private static void readOneByOne(ForebayReader reader) {
        FieldHandle raw = reader.field("raw");
        FieldHandle numbers = reader.field("n");
        byte[] array = new byte[VALUE_BYTES];
        ByteBuffer direct = ByteBuffer.allocateDirect(VALUE_BYTES);
        byte[] copied = new byte[VALUE_BYTES];
        for (long number = 0; number < DOCUMENTS; number++) {
            byte[] value = value(number);
            assertArrayEquals(value, reader.getBytes(raw, number));
            assertArrayEquals(value, reader.getBytes(raw, Key.of(number)));
            assertEquals(VALUE_BYTES, reader.getBytes(raw, number, array));
            assertArrayEquals(value, array);
            assertEquals(VALUE_BYTES, reader.getBytes(raw, number, direct));
            direct.get(0, copied);
            assertArrayEquals(value, copied);
            assertEquals(number, reader.getLong(numbers, number, -1));
            assertEquals(Presence.VALUE, reader.presence(numbers, Key.of(number)));
        }
    }

    private static void readTogether(ForebayReader reader) {
        FieldHandle raw = reader.field("raw");
        try (GatherPlan plan = reader.planGatherLongs(List.of(new GatherField("n")), false)) {
            for (long first = 0; first < DOCUMENTS; first += READ_TOGETHER) {
                long[] keys = LongStream.range(first, first + READ_TOGETHER).toArray();
                byte[][] values = reader.getMany(raw, keys).toArrays();
                for (int place = 0; place < READ_TOGETHER; place++) {
                    assertArrayEquals(value(keys[place]), values[place]);
                }
                long[] gathered = new long[READ_TOGETHER];
                reader.gather(plan, Keys.of(keys), gathered, null, null);
                assertArrayEquals(keys, gathered);
            }
        }
    }

    @Test
    void documentsBeyondTheMemoryAreReadFromDisk() {
        StoreSpec spec = large();
        ReaderOptions options =
                ReaderOptions.builder(spec.name())
                        .checkpointDir(folder.resolve("kept"))
                        .memoryLimit(LIMIT)
                        .spillLimit(SPILL)
                        .build();
        Store store = CLIENT.createStore(spec);
        try (ForebayReader reader = CLIENT.reader(options)) {
            reader.awaitReady(PATIENCE);
            assertEquals(0, reader.metrics().memory().spilled());
            assertEquals(SPILL, reader.metrics().memory().spillLimit());
            reader.awaitToken(writeAll(store), PATIENCE);
            readOneByOne(reader);
            readTogether(reader);
            ReaderMetrics.MemoryUse memory = reader.metrics().memory();
            assertTrue(memory.used() <= LIMIT, memory.toString());
            assertTrue(memory.spilled() > 0, memory.toString());
            assertTrue(memory.spilled() <= SPILL, memory.toString());
        }
    }

    @Test
    void spillingNeedsADirectoryAndANonNegativeLimit() {
        StoreSpec spec = large();
        CLIENT.createStore(spec);
        ReaderOptions.Builder options = ReaderOptions.builder(spec.name());
        ReaderOptions nowhere = options.spillLimit(SPILL).build();
        InvalidArgumentException error = invalid(() -> CLIENT.reader(nowhere));
        assertTrue(error.getMessage().contains("directory of the checkpoints"));
        ReaderOptions.Builder unkept = ReaderOptions.builder(spec.name());
        ReaderOptions often = unkept.checkpointInterval(Duration.ofSeconds(1)).build();
        error = invalid(() -> CLIENT.reader(often));
        assertTrue(error.getMessage().contains("directory of the checkpoints"));
        ReaderOptions negative = options.checkpointDir(folder).spillLimit(-1).build();
        invalid(() -> CLIENT.reader(negative));
        try (ForebayReader reader = CLIENT.reader(spec.name())) {
            assertEquals(0, reader.metrics().memory().spillLimit());
        }
    }
}
