/*
 * A reader beyond its memory limit applies nothing more, and still answers from what it has
 * applied.
 */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

class MemoryLimitTest extends Behaviours {
    private static final long LIMIT = 512 << 10;
    private static final int DOCUMENTS = 1_000;

    private static StoreSpec large() {
        return StoreSpec.documents(Node.name(), KeyType.INT64)
                .partitions(1)
                .field("raw", FieldType.BYTES);
    }

    private static ReaderStatus.PartitionStatus partition(ForebayReader reader) {
        return reader.status().partitions().get(0);
    }

    @Test
    void readerOverItsBudgetStopsApplyingAndKeepsAnswering() {
        StoreSpec spec = large();
        byte[] value = new byte[1 << 10];
        Arrays.fill(value, (byte) 7);
        ReaderOptions options = ReaderOptions.builder(spec.name()).memoryLimit(LIMIT).build();
        Store store = CLIENT.createStore(spec);
        try (ForebayReader reader = CLIENT.reader(options)) {
            reader.awaitReady(PATIENCE);
            assertEquals(LIMIT, reader.metrics().memory().limit().orElseThrow());
            Token last = null;
            for (int number = 0; number < DOCUMENTS; number++) {
                last = store.put(Key.of(number)).set("raw", value).send().token();
            }
            Token all = last;
            refused(
                    DeadlineExceededException.class,
                    () -> reader.awaitToken(all, Duration.ofSeconds(1)));
            Node.eventually("it says why", () -> partition(reader).lastError() != null);
            ReaderStatus.PartitionStatus halted = partition(reader);
            assertEquals(ReaderStatus.Phase.SERVING, halted.phase());
            assertTrue(halted.lastError().startsWith("LimitExceeded: "), halted.lastError());
            assertTrue(halted.lastError().contains("raise the reader's memory limit"));
            // The applied documents are visible, as of one position, and nothing after it.
            int applied = (int) halted.documents();
            assertTrue(applied > DOCUMENTS / 10 && applied < DOCUMENTS, "applied " + applied);
            FieldHandle raw = reader.field("raw");
            assertArrayEquals(value, reader.getBytes(raw, Key.of(0)));
            assertArrayEquals(value, reader.getBytes(raw, Key.of(applied - 1)));
            assertNull(reader.getBytes(raw, Key.of(applied)));
            assertTrue(reader.metrics().memory().used() <= LIMIT);
            Reads fresh = reader.with(ReadOptions.local().maxStaleness(Duration.ofSeconds(2)));
            Node.eventually("it is stale", () -> isStale(fresh, raw));
        }
    }

    private static boolean isStale(Reads reads, FieldHandle raw) {
        try {
            reads.getBytes(raw, Key.of(0));
            return false;
        } catch (StaleException stale) {
            return true;
        }
    }

    @Test
    void readerWithoutABudgetGetsADefault() {
        StoreSpec spec = large();
        CLIENT.createStore(spec);
        try (ForebayReader reader = CLIENT.reader(spec.name())) {
            reader.awaitReady(PATIENCE);
            assertTrue(reader.metrics().memory().limit().orElseThrow() > LIMIT);
        }
        ReaderOptions negative = ReaderOptions.builder(spec.name()).memoryLimit(-1).build();
        invalid(() -> CLIENT.reader(negative));
    }
}
