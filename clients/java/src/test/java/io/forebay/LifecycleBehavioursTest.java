/* Behaviours of closing, restarts, threads and failures; see proto/vectors/behaviours.toml. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LifecycleBehavioursTest extends Behaviours {
    private static final Key K = Key.of("k");
    private static final int KEYS = 200;

    @TempDir Path folder;

    @AfterEach
    void leaveNoCopies() {
        Copies.forget(folder);
    }

    @Test
    void secondCloseChangesNothing() {
        OpenStore at = open();
        at.reader().close();
        at.reader().close();
        ForebayClient client = ForebayClient.connect(Node.sharedAddress());
        client.close();
        client.close();
    }

    @Test
    void callsAfterCloseAreClosed() {
        OpenStore at = open();
        ForebayClient client = ForebayClient.connect(Node.sharedAddress());
        Store store = client.store(at.name());
        Token token = store.put(K).set("a", 1).send().token();
        ForebayReader reader = at.reader();
        FieldHandle a = reader.field("a");
        FieldHandle s = reader.field("s");
        GatherPlan plan = reader.planGatherDoubles(List.of(new GatherField("a")), true);
        DocumentScan scan = reader.scan();
        WriteStream stream = store.writeStream();
        reader.close();
        client.close();
        Reads latest = reader.with(ReadOptions.latest(PATIENCE));
        List<Runnable> calls =
                List.of(
                        () -> reader.getLong(a, K, -1),
                        () -> reader.getString(s, K),
                        () -> reader.getValue(a, K),
                        () -> reader.presence(a, K),
                        () -> reader.getDocument(K),
                        () -> latest.getDocument(K),
                        () -> reader.getMany(s, Keys.of(K)),
                        () -> reader.getDocuments(Keys.of(K)),
                        () -> reader.gather(plan, Keys.of(K), new double[1], null, null),
                        () -> reader.planGatherFloats(List.of(new GatherField("a")), true),
                        () -> reader.field("a"),
                        () -> reader.partitionOf(K),
                        reader::scan,
                        scan::next,
                        () -> reader.awaitReady(PATIENCE),
                        () -> reader.awaitToken(token, PATIENCE),
                        reader::status,
                        reader::schemaVersion,
                        () -> reader.onSchemaChange(definition -> {}),
                        () -> stream.send(store.put(K).set("a", 2)),
                        store::writeStream,
                        reader::metrics,
                        reader::definition,
                        () -> client.store(at.name()),
                        client::listStores,
                        () -> client.describeStore(at.name()),
                        () -> client.deleteStore(at.name()),
                        () -> client.reader(at.name()),
                        () -> store.put(K).set("a", 2).send(),
                        () -> store.select().send(),
                        store::definition,
                        store::refresh);
        calls.forEach(call -> refused(ClosedException.class, call));
        assertEquals(at.name(), CLIENT.describeStore(at.name()).name());
    }

    @Test
    void closeEndsConcurrentReadsWithAnswerOrClosed() throws Exception {
        OpenStore at = open();
        Batch batch = at.store().batch();
        List<Key> all = new ArrayList<>();
        for (int place = 0; place < KEYS; place++) {
            all.add(Key.of("k" + place));
            batch.add(at.store().put(all.get(place)).set("a", place).set("s", "x".repeat(place)));
        }
        ForebayReader reader = at.reader();
        reader.awaitToken(batch.send().requireComplete().token(), PATIENCE);
        Keys keys = Keys.of(all);
        FieldHandle a = reader.field("a");
        FieldHandle s = reader.field("s");
        GatherPlan plan = reader.planGatherDoubles(List.of(new GatherField("a")), true);
        double[][] matrices = new double[10][KEYS];
        AtomicBoolean closing = new AtomicBoolean();
        List<Runnable> reads =
                List.of(
                        () -> assertEquals(7, reader.getLong(a, all.get(7), -1)),
                        () -> assertEquals("xx", reader.getMany(s, keys).string(2)),
                        () -> reader.gather(plan, keys, new double[KEYS], null, null),
                        () -> reader.scan().forEachRemaining(one -> assertTrue(true)),
                        () -> reader.with(ReadOptions.latest(PATIENCE)).getLong(a, all.get(7), -1));
        ExecutorService threads = Executors.newFixedThreadPool(matrices.length);
        CountDownLatch running = new CountDownLatch(matrices.length);
        List<Future<?>> ends = new ArrayList<>();
        for (int thread = 0; thread < matrices.length; thread++) {
            Runnable read = reads.get(thread % reads.size());
            ends.add(threads.submit(() -> readUntilClosed(read, running, closing)));
        }
        running.await();
        closing.set(true);
        reader.close();
        for (Future<?> end : ends) {
            end.get();
        }
        threads.shutdown();
        refused(ClosedException.class, () -> reader.getLong(a, K, -1));
    }

    /**
     * Ends when a read throws Closed, which it may only after a close; fails on any other
     * exception.
     */
    private static void readUntilClosed(
            Runnable read, CountDownLatch running, AtomicBoolean closing) {
        read.run();
        running.countDown();
        while (true) {
            try {
                read.run();
            } catch (ClosedException end) {
                assertTrue(closing.get());
                return;
            }
        }
    }

    @Test
    void reopenedReaderAnswersAsBefore() {
        try (OpenStore at = open()) {
            at.after(at.store().put(K).set("a", 1).send()).getDocument(K);
            at.reader().close();
            at.store().upsert(K).increment("a", 1).send();
            try (ForebayReader again = CLIENT.reader(at.name())) {
                again.awaitReady(PATIENCE);
                assertEquals(2, again.getLong(again.field("a"), K, -1));
            }
        }
    }

    @Test
    void readerRestartsFromItsCheckpoints() {
        try (OpenStore at = open()) {
            ReaderOptions options =
                    ReaderOptions.builder(at.name()).checkpointDir(folder.resolve("kept")).build();
            for (int place = 0; place < KEYS; place++) {
                at.store().upsert(Key.of("k" + place)).increment("a", 1).send();
            }
            Token all = at.store().upsert(K).increment("a", 1).send().token();
            long applied;
            try (ForebayReader first = CLIENT.reader(options)) {
                first.awaitReady(PATIENCE);
                first.awaitToken(all, PATIENCE);
                try (ForebayReader second = CLIENT.reader(options)) {
                    second.awaitReady(PATIENCE);
                    assertEquals(1, second.getLong(second.field("a"), K, -1));
                    assertEquals(0, second.metrics().counts().recordsApplied());
                }
                applied = first.metrics().counts().recordsApplied();
            }
            assertTrue(applied > KEYS);
            Token later = at.store().upsert(K).increment("a", 1).send().token();
            try (ForebayReader again = CLIENT.reader(options)) {
                again.awaitReady(PATIENCE);
                again.awaitToken(later, PATIENCE);
                // Reads have started from the checkpoints; afterwards the copies are built from
                // them.
                Node.eventually(
                        "all", () -> again.metrics().counts().checkpoints().restored() == 4);
                assertTrue(again.metrics().counts().recordsApplied() < applied);
                FieldHandle a = again.field("a");
                assertEquals(2, again.getLong(a, K, -1));
                for (int place = 0; place < KEYS; place++) {
                    assertEquals(1, again.getLong(a, Key.of("k" + place), -1));
                }
            }
        }
    }

    @Test
    void readerSurvivesAServerRestart() {
        try (Node node = Node.own();
                ForebayClient client = node.connect()) {
            String name = Node.name();
            Store store =
                    client.createStore(
                            StoreSpec.documents(name, KeyType.STRING)
                                    .partitions(2)
                                    .field("a", FieldType.INT64));
            try (ForebayReader reader = client.reader(name)) {
                reader.awaitReady(PATIENCE);
                FieldHandle a = reader.field("a");
                for (int round = 1; round <= 3; round++) {
                    for (int time = 0; time < 10; time++) {
                        store.upsert(K).increment("a", 1).deadline(PATIENCE).send();
                    }
                    node.kill();
                    node.start();
                    WriteOutcome last =
                            store.upsert(K).increment("a", 1).deadline(PATIENCE).send();
                    Reads reads = reader.with(ReadOptions.after(last.token(), PATIENCE));
                    assertEquals(11 * round, reads.getLong(a, K, -1));
                }
            }
        }
    }

    @Test
    void manyThreadsShareOneReader() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try (OpenStore at = open()) {
            at.after(at.store().put(K).set("a", 0).set("b", 0).send()).getDocument(K);
            FieldHandle a = at.reader().field("a");
            AtomicBoolean ended = new AtomicBoolean();
            List<Future<Long>> reading = new ArrayList<>();
            for (int thread = 0; thread < 8; thread++) {
                reading.add(threads.submit(() -> readWhole(at.reader(), a, ended)));
            }
            for (int value = 1; value <= 200; value++) {
                at.store().upsert(K).set("a", value).set("b", -value).send();
            }
            at.latest().getDocument(K);
            ended.set(true);
            for (Future<Long> one : reading) {
                assertEquals(200, one.get());
            }
        } finally {
            threads.shutdown();
        }
    }

    private static long readWhole(ForebayReader reader, FieldHandle a, AtomicBoolean ended) {
        long last = 0;
        boolean isLast;
        do {
            isLast = ended.get();
            Document document = reader.getDocument(K);
            long found = document.getLong("a", -1);
            assertEquals(0, found + document.getLong("b", 1));
            assertTrue(found >= last);
            last = reader.getLong(a, K, -1);
            assertTrue(last >= found);
        } while (!isLast);
        return last;
    }

    @Test
    void unreachableServerIsUnavailableInTime() {
        String nowhere;
        Duration deadline = Duration.ofMillis(500);
        try (Node node = Node.own();
                ForebayClient client = ForebayClient.connect(node.address(), deadline)) {
            nowhere = node.address();
            String name = Node.name();
            Store store =
                    client.createStore(
                            StoreSpec.documents(name, KeyType.STRING)
                                    .partitions(1)
                                    .field("a", FieldType.INT64));
            node.kill();
            ForebayException error =
                    assertThrows(
                            ForebayException.class, () -> store.put(K).set("a", 1).send());
            assertTrue(
                    error instanceof UnavailableException
                            || error instanceof UnknownOutcomeException,
                    error.getMessage());
            refused(UnavailableException.class, () -> client.reader(name));
        }
        refused(UnavailableException.class, () -> ForebayClient.connect(nowhere, deadline));
    }

    @Test
    void errorsCarryClassContextAndAdvice() {
        List<String> names = new ArrayList<>();
        for (ErrorCode code : ErrorCode.values()) {
            assertEquals(code, ErrorCode.of(code.number()));
            ForebayException error = ForebayException.of(code, "what to do next");
            assertEquals(code.label() + "Exception", error.getClass().getSimpleName());
            assertEquals(code.label() + ": what to do next", error.getMessage());
            names.add(code.label());
        }
        assertEquals(16, names.stream().distinct().count());
        try (OpenStore at = open()) {
            String secret = "a-secret-value";
            InvalidArgumentException error =
                    invalid(() -> at.store().put(Key.of(secret)).set("a", secret).send());
            assertEquals(at.name(), error.store().orElseThrow());
            assertEquals("a", error.field().orElseThrow());
            assertFalse(error.getMessage().contains(secret));
            assertFalse(Key.of(secret).toString().contains(secret));
        }
    }
}
