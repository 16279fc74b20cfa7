/* Later events: asynchronous writes, callbacks that throw, log records. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;

class AsyncWriteTest extends Behaviours {
    private static final Key K = Key.of("k");

    /** Stores log records. */
    private static final class RecordingHandler extends Handler {
        final List<LogRecord> records = new CopyOnWriteArrayList<>();

        @Override
        public void publish(LogRecord record) {
            records.add(record);
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}

        boolean has(Level level, String logger) {
            return records.stream()
                    .anyMatch(
                            record ->
                                    record.getLevel().equals(level)
                                            && record.getLoggerName().startsWith(logger));
        }
    }

    private static <E> E failure(Class<E> type, CompletableFuture<?> future) {
        ExecutionException failed = assertThrows(ExecutionException.class, future::get);
        return assertInstanceOf(type, failed.getCause());
    }

    @Test
    void asynchronousWritesAllComplete() throws Exception {
        try (OpenStore at = open()) {
            List<CompletableFuture<WriteOutcome>> sent = new ArrayList<>();
            for (int time = 0; time < 300; time++) {
                sent.add(at.store().upsert(K).increment("a", 1).sendAsync());
            }
            Batch batch = at.store().batch().add(at.store().upsert(K).set("b", 1).ifAbsent());
            for (CompletableFuture<WriteOutcome> one : sent) {
                assertEquals(WriteOutcome.WriteResult.APPENDED, one.get().result());
            }
            BatchOutcome outcome = batch.sendAsync().get();
            assertEquals(
                    WriteOutcome.WriteResult.CONDITION_FAILED, outcome.results().get(0).result());
            assertEquals(300, at.number(at.latest(), "a", "k"));
        }
    }

    @Test
    void invalidWriteIsAFailedFuture() {
        try (OpenStore at = open()) {
            Write mistaken = at.store().put(K).set("a", "text");
            assertEquals(
                    at.name(),
                    failure(InvalidArgumentException.class, mistaken.sendAsync())
                            .store()
                            .orElseThrow());
            Write unknown = at.store().put(K).set("nothing", 1);
            failure(NotFoundException.class, unknown.sendAsync());
            Batch large = at.store().batch();
            for (int place = 0; place <= 16_384; place++) {
                large.add(at.store().delete(K));
            }
            LimitExceededException limit =
                    failure(LimitExceededException.class, large.sendAsync());
            assertEquals(16_384, limit.limit().orElseThrow());
            assertEquals(16_385, limit.actual().orElseThrow());
        }
    }

    @Test
    void retryResolvesAnUnknownOutcome() {
        try (Node node = Node.own();
                ForebayClient client = node.connect()) {
            StoreSpec spec = StoreSpec.documents(Node.name(), KeyType.STRING).partitions(1);
            Store store = client.createStore(spec.field("a", FieldType.INT64));
            Write write = store.upsert(K).increment("a", 1);
            node.freeze();
            CompletableFuture<WriteOutcome> sent =
                    write.deadline(Duration.ofMillis(300)).sendAsync();
            UnknownOutcomeException unknown = failure(UnknownOutcomeException.class, sent);
            node.kill();
            node.start();
            PendingWrite pending = unknown.pending().orElseThrow();
            BatchOutcome resolved = retried(pending);
            try (ForebayReader reader = client.reader(spec.name())) {
                reader.awaitReady(PATIENCE);
                reader.awaitToken(resolved.token(), PATIENCE);
                assertEquals(1, reader.getLong(reader.field("a"), K, -1));
            }
        }
    }

    private static BatchOutcome retried(PendingWrite pending) {
        try {
            return pending.retry();
        } catch (UnknownOutcomeException again) {
            return retried(again.pending().orElseThrow());
        }
    }

    @Test
    void streamResolvesWritesInFlightAfterAServerRestart() throws Exception {
        try (Node node = Node.own();
                ForebayClient client = node.connect()) {
            StoreSpec spec = StoreSpec.documents(Node.name(), KeyType.STRING).partitions(1);
            Store store = client.createStore(spec.field("a", FieldType.INT64));
            node.kill();
            StreamOptions options =
                    StreamOptions.builder()
                            .changesMax(4)
                            .deadline(Duration.ofMillis(300))
                            .build();
            List<CompletableFuture<WriteOutcome>> sent = new ArrayList<>();
            try (WriteStream stream = store.writeStream(options)) {
                for (int time = 0; time < 4; time++) {
                    sent.add(stream.send(store.upsert(K).increment("a", 1)));
                }
                Write fifth = store.upsert(K).increment("a", 1);
                refused(UnavailableException.class, () -> stream.send(fifth));
                refused(UnknownOutcomeException.class, stream::flush);
                node.start();
                Node.eventually(
                        "all are resolved",
                        () -> sent.stream().allMatch(CompletableFuture::isDone));
                assertEquals(4, stream.flush().resolved());
            }
            for (CompletableFuture<WriteOutcome> one : sent) {
                assertEquals(WriteOutcome.WriteResult.APPENDED, one.get().result());
            }
        }
    }

    @Test
    void abandonedStreamWritesHaveAnUnknownOutcome() {
        try (Node node = Node.own();
                ForebayClient client = node.connect()) {
            StoreSpec spec = StoreSpec.documents(Node.name(), KeyType.STRING).partitions(1);
            Store store = client.createStore(spec.field("a", FieldType.INT64));
            node.kill();
            StreamOptions options =
                    StreamOptions.builder().deadline(Duration.ofMillis(300)).build();
            WriteStream stream = store.writeStream(options);
            CompletableFuture<WriteOutcome> sent =
                    stream.send(store.upsert(K).increment("a", 1));
            refused(UnknownOutcomeException.class, stream::close);
            failure(UnknownOutcomeException.class, sent);
            stream.close();
        }
    }

    @Test
    void throwingCallbackIsLoggedAndStopsNoOtherCallback() {
        RecordingHandler kept = new RecordingHandler();
        Logger logger = Logger.getLogger(CompletionQueue.class.getName());
        logger.setUseParentHandlers(false);
        logger.addHandler(kept);
        try (OpenStore at = open()) {
            List<Integer> told = new CopyOnWriteArrayList<>();
            at.reader()
                    .onSchemaChange(
                            definition -> {
                                throw new IllegalStateException("on purpose");
                            });
            at.reader().onSchemaChange(definition -> told.add(definition.version()));
            FieldSpec added = FieldSpec.of("new", FieldType.INT64);
            CLIENT.alterStore(at.name(), 0, List.of(Alteration.addField(added)));
            Node.eventually("the other callback is told", () -> told.contains(2));
            Node.eventually(
                    "the failure is logged", () -> kept.has(Level.SEVERE, logger.getName()));
            at.store().upsert(K).set("new", 1).send();
        } finally {
            logger.removeHandler(kept);
            logger.setUseParentHandlers(true);
        }
    }

    @Test
    void coreRecordsReachTheirLoggersAtTheRequestedLevel() {
        Logger logger = Logger.getLogger("io.forebay.core");
        RecordingHandler kept = new RecordingHandler();
        kept.setLevel(Level.ALL);
        logger.setUseParentHandlers(false);
        logger.addHandler(kept);
        logger.setLevel(Level.FINE);
        try (Node node = Node.own();
                ForebayClient client = node.connect()) {
            StoreSpec spec = StoreSpec.documents(Node.name(), KeyType.STRING).partitions(1);
            client.createStore(spec.field("a", FieldType.INT64));
            try (ForebayReader reader = client.reader(spec.name())) {
                reader.awaitReady(PATIENCE);
                node.kill();
                Node.eventually(
                        "the reader says that it is held up",
                        () -> kept.has(Level.WARNING, "io.forebay.core.forebay_"));
            }
            LogRecord record = kept.records.get(0);
            assertTrue(!record.getMessage().isBlank(), record.getLoggerName());
        } finally {
            logger.setLevel(Level.WARNING);
            NativeLog.refresh();
            logger.removeHandler(kept);
            logger.setUseParentHandlers(true);
        }
    }
}
