/* Behaviours of in-memory readers. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class MemoryBehavioursTest extends Behaviours {
    private static final Duration SOON = Duration.ofMillis(50);
    private static final Duration HOUR = Duration.ofHours(1);

    private static StoreSpec spec() {
        return StoreSpec.documents("memory", KeyType.STRING)
                .partitions(2)
                .field("a", FieldType.INT64)
                .field("b", FieldType.INT64)
                .field("s", FieldType.STRING)
                .field("l", FieldType.list(FieldType.INT64));
    }

    private static Write row(String key) {
        return Write.row(Key.of(key));
    }

    private static Map<String, Object> found(Reads reads, String key) {
        Document document = reads.getDocument(Key.of(key));
        return document == null ? null : values(document);
    }

    /** Returns the fields with a value or null. */
    private static Map<String, Object> values(Document document) {
        Map<String, Object> values = new TreeMap<>();
        document.fields().forEach(field -> values.put(field, document.value(field)));
        return values;
    }

    private static long number(ForebayReader reader, String field, String key) {
        return reader.getLong(reader.field(field), Key.of(key), -1);
    }

    private static Map<String, Map<String, Object>> all(ForebayReader reader) {
        Map<String, Map<String, Object>> documents = new TreeMap<>();
        try (DocumentScan scan = reader.scan()) {
            while (scan.hasNext()) {
                ScannedDocument found = scan.next();
                assertNull(
                        documents.put(found.key().text(), values(found.document())),
                        "a document came twice");
            }
        }
        return documents;
    }

    /** Makes the reads of a ranking, by any reader: the program under test. */
    private static List<String> profile(ForebayReader users, List<String> keys) {
        FieldHandle visits = users.field("visits");
        FieldHandle score = users.field("score");
        FieldHandle city = users.field("city");
        Reads reads = users.with(ReadOptions.local().maxStaleness(Duration.ofSeconds(60)));
        List<String> answers = new ArrayList<>();
        for (String name : keys) {
            Key key = Key.of(name);
            answers.add(
                    reads.getLong(visits, key, -1)
                            + " "
                            + reads.getDouble(score, key, 0.5)
                            + " "
                            + reads.getString(city, key));
        }
        return answers;
    }

    @Test
    void inMemoryReaderIsReadyWithItsRows() {
        Write[] rows =
                IntStream.range(0, 100)
                        .mapToObj(place -> row("k" + place).set("a", place))
                        .toArray(Write[]::new);
        try (InMemoryReader reader = ForebayReader.inMemory(spec(), rows)) {
            reader.awaitReady(Duration.ZERO);
            assertTrue(reader.isReady());
            assertEquals(Duration.ZERO, reader.status().age());
            assertEquals(100, all(reader).size());
            assertEquals(Map.of("a", 42L), found(reader, "k42"));
            assertNull(found(reader, "none"));
        }
        NotFoundException unknown =
                refused(
                        NotFoundException.class,
                        () -> ForebayReader.inMemory(spec(), row("k").set("c", 1)));
        assertEquals("c", unknown.field().orElseThrow());
        invalid(() -> ForebayReader.inMemory(spec(), Write.row(Key.of(7)).set("a", 1)));
        invalid(() -> row("k").set("a", 1).send());
    }

    @Test
    void inMemoryWritesHaveTheMeaningOfStoreWrites() {
        StoreSpec versioned = spec().options(StoreOptions.builder().versioned(true).build());
        try (InMemoryReader reader = ForebayReader.inMemory(versioned, row("k").set("a", 1))) {
            Store store = reader.asStore();
            Key key = Key.of("k");
            WriteOutcome written =
                    store.upsert(key)
                            .increment("a", 4)
                            .listAppend("l", List.of(1L, 2L, 3L), 2)
                            .send();
            Map<String, Object> expected = Map.of("a", 5L, "l", List.of(2L, 3L));
            assertEquals(expected, found(reader, "k"));
            Reads after = reader.with(ReadOptions.after(written.token(), SOON));
            assertEquals(expected, found(after, "k"));
            assertEquals(expected, found(reader.with(ReadOptions.latest(SOON)), "k"));
            long version = reader.getDocument(key).version().orElseThrow();
            WriteOutcome late = store.upsert(key).set("a", 0).ifAbsent().send();
            assertEquals(WriteOutcome.WriteResult.CONDITION_FAILED, late.result());
            assertEquals(version, late.version().orElseThrow());
            WriteOutcome met = store.upsert(key).set("a", 9).ifVersion(version).send();
            assertEquals(WriteOutcome.WriteResult.APPLIED, met.result());
            WriteOutcome notNewer = store.upsert(key).set("a", 8).ifNewer("a").send();
            assertEquals(WriteOutcome.WriteResult.CONDITION_FAILED, notNewer.result());
            reader.put(key).set("a", 1).send();
            assertEquals(Map.of("a", 1L), found(reader, "k"));
            reader.upsert(key).setNull("a").send();
            assertEquals(Presence.NULL, reader.presence(reader.field("a"), key));
            reader.delete(key).send();
            assertNull(found(reader, "k"));
            Batch batch = store.batch();
            for (int place = 0; place < 3_000; place++) {
                batch.add(store.upsert(Key.of("k" + place)).increment("a", 1));
                batch.add(store.upsert(Key.of("k" + place)).increment("a", 1));
            }
            assertEquals(6_000, batch.send().requireComplete().results().size());
            assertEquals(3_000, all(reader).size());
            assertTrue(all(reader).values().stream().allMatch(Map.of("a", 2L)::equals));
            refused(NotFoundException.class, () -> store.upsert(key).set("c", 1).send());
            invalid(() -> store.upsert(key).set("a", "x").send());
            try (InMemoryReader other = ForebayReader.inMemory(versioned)) {
                Token foreign = other.upsert(key).set("a", 1).send().token();
                invalid(() -> found(reader.with(ReadOptions.after(foreign, SOON)), "k"));
            }
        }
    }

    @Test
    void inMemoryClockMovesOnlyOnRequest() {
        Write row = row("k").set("a", 1).ttl(Duration.ofSeconds(10));
        try (InMemoryReader reader = ForebayReader.inMemory(spec(), row)) {
            Instant began = reader.clock();
            reader.upsert(Key.of("k")).set("b", 2).fieldTtl("b", Duration.ofSeconds(4)).send();
            Reads fresh = reader.with(ReadOptions.local().maxStaleness(Duration.ofSeconds(2)));
            reader.setClock(began.plusNanos(3_999_999_000L));
            assertEquals(Map.of("a", 1L, "b", 2L), found(fresh, "k"));
            reader.advance(Duration.ofNanos(1_000));
            assertEquals(Map.of("a", 1L), found(fresh, "k"));
            reader.setClock(began.plusNanos(9_999_999_000L));
            assertEquals(Map.of("a", 1L), found(fresh, "k"));
            reader.setClock(began.plusSeconds(10));
            assertNull(found(fresh, "k"));
            invalid(() -> reader.setClock(began));
            reader.upsert(Key.of("k")).increment("a", 1).send();
            assertEquals(Map.of("a", 1L), found(reader, "k"));
            reader.advance(Duration.ofSeconds(1_000_000));
            assertTrue(reader.isReady());
        }
    }

    @Test
    void inMemoryReaderAcceptsAlterations() {
        StoreSpec spec =
                StoreSpec.documents("memory", KeyType.STRING)
                        .partitions(2)
                        .field("x_a", FieldType.INT32)
                        .field("x_b", FieldType.INT32)
                        .field("y", FieldType.INT32);
        Write row = row("k").set("x_a", 1).set("x_b", 2).set("y", 3);
        try (InMemoryReader reader = ForebayReader.inMemory(spec, row)) {
            Key key = Key.of("k");
            FieldHandle narrow = reader.field("y", FieldType.INT32);
            FieldHandle dropped = reader.field("x_a");
            Definition altered =
                    reader.alter(
                            List.of(
                                    Alteration.renameField("y", "z"),
                                    Alteration.widenField("z", FieldType.INT64),
                                    Alteration.addField(FieldSpec.of("n", FieldType.STRING)),
                                    Alteration.dropFieldsByPrefix("x_")));
            assertEquals(altered.version(), reader.schemaVersion());
            assertEquals(altered, reader.asStore().refresh());
            assertEquals(Map.of("z", 3L), found(reader, "k"));
            assertEquals(3, reader.getInt(narrow, key, -1));
            assertEquals(Presence.ABSENT, reader.presence(dropped, key));
            reader.upsert(key).set("y", 1L << 40).set("n", "new").send();
            invalid(() -> reader.getInt(narrow, key, -1));
            assertEquals(Map.of("z", 1L << 40, "n", "new"), found(reader, "k"));
            refused(
                    NotFoundException.class,
                    () -> reader.alter(List.of(Alteration.dropField("y2"))));
            reader.alter(List.of(Alteration.dropAll()));
            assertNull(found(reader, "k"));
            reader.upsert(key).set("z", 5).send();
            assertEquals(Map.of("z", 5L), found(reader, "k"));
        }
    }

    private static List<KeyStatus> statuses(Reads reads, String... keys) {
        Key[] asked = Stream.of(keys).map(Key::of).toArray(Key[]::new);
        List<DocumentAnswer> answers = reads.getDocuments(Keys.of(asked));
        return answers.stream().map(DocumentAnswer::status).toList();
    }

    /**
     * Gathers the field a with the default 5 for the keys k and l; asserts that neither answers.
     */
    private static void gathersNothing(InMemoryReader reader, Reads reads, KeyStatus status) {
        try (GatherPlan plan = reader.planGatherLongs(List.of(new GatherField("a", 5)), false)) {
            long[] values = {7, 7};
            byte[] statuses = new byte[2];
            byte[] cells = {9, 9};
            reads.gather(plan, Keys.of(Key.of("k"), Key.of("l")), values, statuses, cells);
            byte code = (byte) status.ordinal();
            assertArrayEquals(new byte[] {code, code}, statuses);
            assertArrayEquals(new long[] {5, 5}, values);
            assertArrayEquals(new byte[] {0, 0}, cells);
        }
    }

    @Test
    void inMemoryReaderSimulatesNotReady() throws Exception {
        try (InMemoryReader reader = ForebayReader.inMemory(spec(), row("k").set("a", 1))) {
            reader.simulate(SimulatedState.notReady());
            assertFalse(reader.isReady());
            refused(UnavailableException.class, () -> number(reader, "a", "k"));
            KeyStatus unavailable = KeyStatus.UNAVAILABLE;
            assertEquals(List.of(unavailable, unavailable), statuses(reader, "k", "l"));
            gathersNothing(reader, reader, unavailable);
            refused(UnavailableException.class, () -> reader.awaitReady(SOON));
            Token token = reader.upsert(Key.of("l")).set("a", 2).send().token();
            Reads soon = reader.with(ReadOptions.after(token, SOON));
            refused(UnavailableException.class, () -> found(soon, "l"));
            Reads patient = reader.with(ReadOptions.after(token, PATIENCE));
            CompletableFuture<Map<String, Object>> waits =
                    CompletableFuture.supplyAsync(() -> found(patient, "l"));
            reader.simulate(SimulatedState.none());
            assertEquals(Map.of("a", 2L), waits.get());
            assertTrue(reader.isReady());
            assertEquals(1, number(reader, "a", "k"));
        }
    }

    @Test
    void inMemoryReaderSimulatesStaleness() {
        try (InMemoryReader reader = ForebayReader.inMemory(spec(), row("k").set("a", 1))) {
            reader.simulate(SimulatedState.stale(HOUR));
            assertFalse(reader.isReady());
            assertEquals(HOUR, reader.status().age());
            Reads below = reader.with(ReadOptions.local().maxStaleness(HOUR.minusMillis(1)));
            Reads within = reader.with(ReadOptions.local().maxStaleness(HOUR));
            refused(StaleException.class, () -> found(below, "k"));
            assertEquals(Map.of("a", 1L), found(within, "k"));
            reader.upsert(Key.of("k")).set("a", 2).send();
            refused(StaleException.class, () -> found(below, "k"));
            assertEquals(List.of(KeyStatus.STALE, KeyStatus.STALE), statuses(below, "k", "l"));
            gathersNothing(reader, below, KeyStatus.STALE);
            assertEquals(Map.of("a", 2L), found(reader, "k"));
            reader.advance(HOUR);
            assertEquals(HOUR.multipliedBy(2), reader.status().age());
            reader.simulate(SimulatedState.none());
            assertEquals(Map.of("a", 2L), found(below, "k"));
            assertTrue(reader.isReady());
        }
    }

    @Test
    void inMemoryReaderSimulatesClosed() {
        try (InMemoryReader reader = ForebayReader.inMemory(spec(), row("k").set("a", 1))) {
            FieldHandle a = reader.field("a");
            Key key = Key.of("k");
            reader.simulate(SimulatedState.closed());
            refused(ClosedException.class, () -> reader.getLong(a, key, -1));
            refused(ClosedException.class, () -> reader.field("a"));
            refused(ClosedException.class, () -> reader.awaitReady(SOON));
            refused(ClosedException.class, () -> reader.upsert(key).set("a", 2).send());
            refused(ClosedException.class, () -> reader.advance(HOUR));
            refused(
                    ClosedException.class, () -> reader.alter(List.of(Alteration.dropAll())));
            refused(ClosedException.class, () -> reader.simulate(SimulatedState.none()));
            Runnable close = reader::close;
            close.run();
            refused(ClosedException.class, () -> reader.upsert(key).set("a", 2).send());
            refused(ClosedException.class, reader::clock);
            refused(ClosedException.class, reader::isReady);
        }
    }

    private static List<Write> written(Store store) {
        List<Write> writes = new ArrayList<>();
        for (int place = 0; place < 40; place++) {
            Key key = Key.of("k" + place);
            writes.add(store.put(key).set("visits", place).set("city", "c" + place));
            writes.add(store.upsert(key).increment("visits", 100).set("score", place / 2.0));
            if (place % 3 == 0) {
                writes.add(store.upsert(key).removeField("score").setNull("city"));
            }
            if (place % 7 == 0) {
                writes.add(store.delete(key));
            }
        }
        return writes;
    }

    @Test
    void inMemoryReaderAnswersLikeANode() {
        StoreSpec spec =
                StoreSpec.documents(Node.name(), KeyType.STRING)
                        .partitions(4)
                        .field("visits", FieldType.INT64)
                        .field("score", FieldType.FLOAT64)
                        .field("city", FieldType.STRING);
        try (OpenStore served = open(spec);
                InMemoryReader memory = ForebayReader.inMemory(spec)) {
            Batch batch = served.store().batch();
            written(served.store()).forEach(batch::add);
            ForebayReader node = served.reader();
            node.awaitToken(batch.send().requireComplete().token(), PATIENCE);
            written(memory.asStore()).forEach(Write::send);
            List<String> asked = IntStream.range(0, 45).mapToObj(place -> "k" + place).toList();
            assertEquals(profile(node, asked), profile(memory, asked));
            assertEquals(all(node), all(memory));
            Alteration gone = Alteration.dropField("score");
            Definition altered = CLIENT.alterStore(served.name(), 0, List.of(gone));
            memory.alter(List.of(gone));
            refused(NotFoundException.class, () -> profile(memory, asked));
            Node.eventually("the drop", () -> node.schemaVersion() == altered.version());
            refused(NotFoundException.class, () -> profile(node, asked));
        }
    }
}
