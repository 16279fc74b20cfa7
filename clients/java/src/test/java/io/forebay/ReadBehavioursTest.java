/* Behaviours of single reads and their promises; see proto/vectors/behaviours.toml. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

class ReadBehavioursTest extends Behaviours {
    private static final Key K = Key.of("k");
    private static final Duration TTL = Duration.ofSeconds(3);
    private static final long WRITTEN = 100;
    private static final long PUSHED_FROM = 50;
    private static final long PUSHED_TO = 150;
    private static final long PUSHED = 1000;

    @Test
    void absentNullAndEmptyDiffer() {
        try (OpenStore at =
                open(
                        KeyType.STRING,
                        2,
                        spec ->
                                spec.field("s", FieldType.STRING)
                                        .field("b", FieldType.BYTES)
                                        .field("l", FieldType.list(FieldType.INT64)))) {
            Key empty = Key.of("empty");
            at.store().put(K).setNull("s").setNull("b").setNull("l").send();
            Write write = at.store().put(empty).set("s", "").set("b", new byte[0]);
            Reads reads = at.after(write.set("l", List.of()).send());
            at.latest().getDocument(K);
            for (String name : List.of("s", "b", "l")) {
                FieldHandle field = at.reader().field(name);
                assertEquals(Presence.ABSENT, reads.presence(field, Key.of("none")));
                assertEquals(Presence.NULL, reads.presence(field, K));
                assertEquals(Presence.VALUE, reads.presence(field, empty));
                assertNull(reads.getValue(field, K));
                assertEquals(Presence.NULL, reads.getDocument(K).presence(name));
            }
            assertEquals("", reads.getString(at.reader().field("s"), empty));
            assertArrayEquals(new byte[0], reads.getBytes(at.reader().field("b"), empty));
            assertEquals(List.of(), reads.getValue(at.reader().field("l"), empty));
        }
    }

    @Test
    void getCopiesAValueIntoTheCallersBuffer() {
        try (OpenStore at =
                open(
                        KeyType.STRING,
                        2,
                        spec -> spec.field("s", FieldType.STRING).field("b", FieldType.BYTES))) {
            at.store().put(K).set("s", "h\u00e9llo").set("b", new byte[0]).send();
            at.store().put(Key.of("null")).setNull("s").send();
            FieldHandle text = at.reader().field("s");
            FieldHandle bytes = at.reader().field("b");
            assertEquals(Presence.NULL, at.latest().presence(text, Key.of("null")));
            byte[] expected = "h\u00e9llo".getBytes(StandardCharsets.UTF_8);
            for (int room : new int[] {8, 6, 5, 0}) {
                byte[] array = new byte[room];
                ByteBuffer direct = ByteBuffer.allocateDirect(room);
                assertEquals(6, at.latest().getBytes(text, K, array));
                assertEquals(6, at.latest().getBytes(text, K, direct));
                byte[] left = room < 6 ? new byte[room] : Arrays.copyOf(expected, room);
                assertArrayEquals(left, array);
                assertEquals(ByteBuffer.wrap(left), direct);
            }
            byte[] array = {'.', '.'};
            assertEquals(0, at.reader().getBytes(bytes, K, array));
            assertEquals(Reads.NULL, at.reader().getBytes(text, "null", array));
            assertEquals(Reads.ABSENT, at.reader().getBytes(bytes, "null", array));
            assertEquals(Reads.ABSENT, at.reader().getBytes(text, "none", array));
            assertArrayEquals(new byte[] {'.', '.'}, array);
        }
    }

    /**
     * Reads until absent; asserts that the document is never absent before the expiry, and never
     * present after it.
     */
    private static void expires(Instant expiry, Supplier<Boolean> isThere) {
        Node.eventually(
                "it has expired",
                () -> {
                    Instant before = Instant.now();
                    boolean there = isThere.get();
                    Instant after = Instant.now();
                    assertTrue(there || !after.isBefore(expiry), "absent before its expiry");
                    assertTrue(!there || before.isBefore(expiry), "there after its expiry");
                    return !there;
                });
    }

    @Test
    void documentExpiresExactlyAtItsTime() {
        try (OpenStore at = open()) {
            at.store().put(K).set("a", 1).ttl(TTL).send();
            Reads reads = at.after(at.store().upsert(K).set("b", 2).send());
            Document found = reads.getDocument(K);
            assertNotNull(found, "3 s passed before the first read");
            assertEquals(2, found.getLong("b", -1));
            Instant expiry = found.expiresAt();
            expires(expiry, () -> at.reader().getDocument(K) != null);
        }
    }

    @Test
    void fieldExpiresAtItsOwnTime() {
        try (OpenStore at = open()) {
            FieldHandle a = at.reader().field("a");
            Instant sent = Instant.now();
            Write write = at.store().put(K).set("a", 1).set("b", 2).fieldTtl("a", TTL);
            Reads reads = at.after(write.send());
            reads.getDocument(K);
            Instant acknowledged = Instant.now();
            Node.eventually(
                    "the field has expired",
                    () -> {
                        Instant before = Instant.now();
                        boolean there = at.reader().presence(a, K) == Presence.VALUE;
                        Instant after = Instant.now();
                        assertTrue(there || !after.isBefore(sent.plus(TTL)));
                        assertTrue(!there || before.isBefore(acknowledged.plus(TTL)));
                        return !there;
                    });
            assertEquals(Set.of("b"), at.reader().getDocument(K).fields());
        }
    }

    @Test
    void readAfterATokenWaitsForItsWrite() {
        try (OpenStore at = open();
                OpenStore other = open()) {
            for (int value = 0; value < 20; value++) {
                WriteOutcome written = at.store().upsert(K).set("a", value).send();
                assertEquals(value, at.number(at.after(written), "a", "k"));
            }
            WriteOutcome written = at.store().upsert(K).set("a", 20).send();
            Token passedOn = Token.of(written.token().toBytes());
            assertEquals(written.token(), passedOn);
            at.reader().awaitToken(passedOn, PATIENCE);
            assertEquals(20, at.number(at.reader(), "a", "k"));
            byte[] forged = written.token().toBytes();
            forged[forged.length - 1] ^= 1;
            for (Token bad : List.of(Token.of(forged), Token.of(new byte[] {1, 2}))) {
                Reads reads = at.reader().with(ReadOptions.after(bad, PATIENCE));
                invalid(() -> reads.getDocument(K));
                invalid(() -> at.reader().awaitToken(bad, PATIENCE));
            }
            invalid(() -> other.after(written).getDocument(K));
        }
    }

    @Test
    void latestReadSeesEveryAcknowledgedWrite() {
        try (OpenStore at = open()) {
            for (int value = 0; value < 20; value++) {
                at.store().upsert(K).set("a", value).send();
                assertEquals(value, at.number(at.latest(), "a", "k"));
            }
        }
    }

    @Test
    void readBeyondItsStalenessBoundIsStale() {
        StoreOptions quick = StoreOptions.builder().heartbeat(Duration.ofMillis(200)).build();
        try (Node node = Node.own();
                ForebayClient client = node.connect()) {
            String name = Node.name();
            Store store =
                    client.createStore(
                            StoreSpec.documents(name, KeyType.STRING)
                                    .partitions(1)
                                    .field("a", FieldType.INT64)
                                    .options(quick));
            try (ForebayReader reader = client.reader(name)) {
                reader.awaitReady(PATIENCE);
                FieldHandle a = reader.field("a");
                store.put(K).set("a", 1).send();
                ReadOptions latest =
                        ReadOptions.latest(PATIENCE).maxStaleness(Duration.ofSeconds(30));
                assertEquals(1, reader.with(latest).getLong(a, K, -1));
                Reads below = reader.with(ReadOptions.local().maxStaleness(Duration.ofMillis(100)));
                invalid(() -> below.getLong(a, K, -1));
                node.kill();
                Reads bounded =
                        reader.with(ReadOptions.local().maxStaleness(Duration.ofSeconds(1)));
                Node.eventually(
                        "the reader is stale",
                        () -> {
                            DocumentAnswer answer = bounded.getDocuments(Keys.of(K)).get(0);
                            return answer.status() == KeyStatus.STALE;
                        });
                refused(StaleException.class, () -> bounded.getLong(a, K, -1));
                refused(StaleException.class, () -> bounded.getDocument(K));
                refused(StaleException.class, () -> bounded.scan().next());
                assertEquals(1, reader.getLong(a, K, -1));
            }
        }
    }

    @Test
    void readyReaderReportsStatusAndMetrics() {
        try (OpenStore at = open()) {
            Batch batch = at.store().batch();
            for (int place = 0; place < 30; place++) {
                batch.add(at.store().put(Key.of("k" + place)).set("a", place));
            }
            at.reader().awaitToken(batch.send().requireComplete().token(), PATIENCE);
            ReaderMetrics before = at.reader().metrics();
            at.reader().getDocuments(Keys.of(Key.of("k1"), Key.of("k2"), Key.of("none")));
            ReaderMetrics after = at.reader().metrics();
            assertEquals(2, after.reads().hits() - before.reads().hits());
            assertEquals(1, after.reads().misses() - before.reads().misses());
            assertTrue(after.memoryBytes() > 0 && after.counts().recordsApplied() > 0);
            ReaderStatus status = at.reader().status();
            assertTrue(at.reader().isReady());
            assertTrue(status.isReady());
            assertEquals(at.name(), status.store());
            assertEquals(ReaderStatus.Phase.SERVING, status.phase());
            assertEquals(100, status.bootstrapPercent());
            assertNotNull(status.age());
            assertEquals(4, status.partitions().size());
            long documents = 0;
            for (ReaderStatus.PartitionStatus one : status.partitions()) {
                assertEquals(ReaderStatus.Phase.SERVING, one.phase());
                assertEquals(one.endOffset() - one.offsetApplied(), one.lagRecords());
                assertTrue(one.offsetApplied() > 0);
                assertNull(one.lastError());
                documents += one.documents();
            }
            assertEquals(30, documents);
        }
    }

    @Test
    void filteredReaderAnswersOnlyItsPartitions() {
        try (OpenStore at = open()) {
            Batch batch = at.store().batch();
            for (int place = 0; place < 20; place++) {
                batch.add(at.store().put(Key.of("k" + place)).set("a", place));
            }
            Token token = batch.send().requireComplete().token();
            SortedSet<Integer> second = new TreeSet<>(Set.of(1));
            ReaderOptions one = ReaderOptions.builder(at.name()).partitions(second).build();
            try (ForebayReader reader = CLIENT.reader(one)) {
                reader.awaitReady(PATIENCE);
                reader.awaitToken(token, PATIENCE);
                FieldHandle a = reader.field("a");
                int followed = 0;
                for (int place = 0; place < 20; place++) {
                    Key key = Key.of("k" + place);
                    int partition = reader.partitionOf(key);
                    KeyStatus status = reader.getDocuments(Keys.of(key)).get(0).status();
                    if (partition == 1) {
                        followed++;
                        assertEquals(place, reader.getLong(a, key, -1));
                        assertEquals(KeyStatus.FOUND, status);
                    } else {
                        InvalidArgumentException error =
                                invalid(() -> reader.getLong(a, key, -1));
                        assertEquals(partition, error.partition().orElseThrow());
                        assertEquals(KeyStatus.NOT_FOLLOWED, status);
                    }
                }
                assertTrue(followed > 0 && followed < 20);
            }
        }
    }

    @Test
    void readerIsVerifiedWithItsNode() throws Exception {
        try (OpenStore at = open()) {
            Batch batch = at.store().batch();
            for (int place = 0; place < 200; place++) {
                batch.add(at.store().put(Key.of("k" + place)).set("a", place));
            }
            at.reader().awaitToken(batch.send().requireComplete().token(), PATIENCE);
            at.store().delete(Key.of("k0")).send();
            Thread writing =
                    new Thread(() -> at.store().put(Key.of("more")).set("a", 1).send());
            writing.start();
            long documents = 0;
            for (int partition = 0; partition < 4; partition++) {
                Verification verified = at.reader().verify(partition, PATIENCE);
                assertTrue(verified.isSame(), verified.toString());
                assertEquals(partition, verified.partition());
                assertEquals(verified.documentsHere(), verified.documentsThere());
                documents += verified.documentsHere();
            }
            writing.join();
            assertTrue(documents == 199 || documents == 200, documents + " documents");
            invalid(() -> at.reader().verify(4, PATIENCE));
            try (InMemoryReader memory =
                    ForebayReader.inMemory(StoreSpec.documents("m", KeyType.STRING)
                            .partitions(1))) {
                assertThrows(UnsupportedException.class, () -> memory.verify(0, PATIENCE));
            }
        }
    }

    @Test
    void readerOpenedLaterFindsEarlierWrites() {
        try (OpenStore at = open()) {
            for (int value = 0; value < 10; value++) {
                at.store().upsert(Key.of("k" + value % 3)).increment("a", 1).send();
            }
            try (ForebayReader late = CLIENT.reader(at.name())) {
                late.awaitReady(PATIENCE);
                FieldHandle a = late.field("a");
                long[] found = new long[3];
                for (int key = 0; key < 3; key++) {
                    found[key] = late.getLong(a, Key.of("k" + key), -1);
                }
                assertArrayEquals(new long[] {4, 3, 3}, found);
            }
        }
    }

    @Test
    void readerBootstrapsFromASnapshot() {
        StoreSpec spec =
                StoreSpec.documents(Node.name(), KeyType.INT64)
                        .partitions(2)
                        .field("a", FieldType.INT64)
                        .options(StoreOptions.builder().logRetention(Duration.ZERO).build());
        try (Node node = Node.withSnapshots();
                ForebayClient client = node.connect()) {
            Store store = client.createStore(spec);
            for (long number = 0; number < WRITTEN; number++) {
                store.upsert(Key.of(number)).set("a", number).send();
            }
            store.delete(Key.of(0)).send();
            ReaderOptions.Builder log = ReaderOptions.builder(spec.name());
            ReaderOptions options = log.snapshots(node.snapshots()).build();
            AtomicLong round = new AtomicLong();
            Node.eventually(
                    "a reader begins with snapshots",
                    () -> {
                        try (ForebayReader reader = client.reader(options)) {
                            reader.awaitReady(PATIENCE);
                            requireAll(reader, store, round.incrementAndGet());
                            ReaderMetrics.Counts counts = reader.metrics().counts();
                            return counts.bootstraps() >= 2 && counts.recordsApplied() < WRITTEN;
                        }
                    });
            for (String nowhere : List.of("nowhere", "")) {
                ReaderOptions wrong = log.snapshots(nowhere).build();
                String refusal = invalid(() -> client.reader(wrong)).getMessage();
                assertTrue(refusal.contains("names no folder for snapshots"), refusal);
            }
        }
    }

    @Test
    void readerAnswersFromTheLiveVersion() throws IOException {
        StoreSpec spec =
                StoreSpec.documents(Node.name(), KeyType.INT64)
                        .partitions(2)
                        .field("a", FieldType.INT64);
        try (Node node = Node.withSnapshots();
                ForebayClient client = node.connect()) {
            Store store = client.createStore(spec);
            for (long number = 0; number < WRITTEN; number++) {
                store.upsert(Key.of(number)).set("a", number).send();
            }
            StringBuilder rows = new StringBuilder("id,a\n");
            for (long number = PUSHED_FROM; number < PUSHED_TO; number++) {
                rows.append(number).append(',').append(PUSHED + number).append('\n');
            }
            Path file = Files.writeString(node.folder().resolve("pushed.csv"), rows);
            String of = "--store=" + spec.name();
            String[] push = {"push", of, "--key=id", file.toString()};
            String[] back = {"version", "rollback", of};
            String[] move = {"push", of, "--key=id", file.toString(), "--partitions=3"};
            try (ForebayReader reader = client.reader(spec.name())) {
                reader.awaitReady(PATIENCE);
                FieldHandle a = reader.field("a");
                long written = PUSHED_TO;
                for (String[] command : List.of(push, back, move)) {
                    node.run(command);
                    boolean isPushed = command != back;
                    WriteOutcome later = store.upsert(Key.of(written)).set("a", written).send();
                    long first = isPushed ? -1 : 0;
                    Node.eventually("it is live", () -> reader.getLong(a, 0, -1) == first);
                    requireVersion(reader, a, isPushed);
                    Reads reads = reader.with(ReadOptions.after(later.token(), PATIENCE));
                    assertEquals(written, reads.getLong(a, written, -1));
                    written++;
                }
                assertEquals(3, reader.status().partitions().size());
            }
        }
    }

    /** Asserts that every document is that of the pushed version, or of the previous one. */
    private static void requireVersion(ForebayReader reader, FieldHandle a, boolean isPushed) {
        for (long number = 0; number < PUSHED_TO; number++) {
            long pushed = number < PUSHED_FROM ? -1 : PUSHED + number;
            long before = number < WRITTEN ? number : -1;
            assertEquals(isPushed ? pushed : before, reader.getLong(a, number, -1));
        }
    }

    /** Asserts that every document is right, including one that counts the readers. */
    private static void requireAll(ForebayReader reader, Store store, long round) {
        FieldHandle a = reader.field("a");
        assertEquals(-1, reader.getLong(a, 0, -1));
        for (long number = 1; number < WRITTEN; number++) {
            assertEquals(number, reader.getLong(a, number, -1));
        }
        WriteOutcome later = store.upsert(Key.of(WRITTEN)).increment("a", 1).send();
        Reads reads = reader.with(ReadOptions.after(later.token(), PATIENCE));
        assertEquals(round, reads.getLong(a, WRITTEN, -1));
    }
}
