/* Behaviours of merges, conditions and administration; see proto/vectors/behaviours.toml. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

class ConditionBehavioursTest extends Behaviours {
    private static final Key K = Key.of("k");

    @Test
    void concurrentIncrementsAddUpExactly() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try (OpenStore at = open()) {
            List<Future<?>> running = new ArrayList<>();
            for (int thread = 0; thread < 8; thread++) {
                running.add(
                        threads.submit(
                                () -> {
                                    for (int time = 0; time < 25; time++) {
                                        at.store().upsert(K).increment("a", 3).send();
                                    }
                                }));
            }
            for (Future<?> one : running) {
                one.get();
            }
            assertEquals(8 * 25 * 3, at.number(at.latest(), "a", "k"));
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void minMaxAndListMergesTakeEffect() {
        try (OpenStore at =
                open(
                        KeyType.STRING,
                        2,
                        spec ->
                                spec.field("low", FieldType.INT64)
                                        .field("high", FieldType.FLOAT64)
                                        .field("recent", FieldType.list(FieldType.INT64))
                                        .field("tags", FieldType.list(FieldType.STRING)))) {
            for (long value : new long[] {5, 2, 9}) {
                Write write = at.store().upsert(K).min("low", value).max("high", (double) value);
                write.listAppend("recent", List.of(value, value + 1), 3);
                write.setAdd("tags", List.of("x", "t" + value), 10).send();
            }
            Write last = at.store().upsert(K).setRemove("tags", List.of("t2", "none"));
            Document found = at.after(last.send()).getDocument(K);
            assertEquals(2, found.getLong("low", -1));
            assertEquals(9, found.getDouble("high", -1));
            assertEquals(List.of(3L, 9L, 10L), found.value("recent"));
            assertEquals(List.of("x", "t5", "t9"), found.value("tags"));
        }
    }

    @Test
    void ifAbsentRaceHasExactlyOneWinner() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(6);
        try (OpenStore at = open()) {
            List<Future<WriteOutcome>> racing = new ArrayList<>();
            for (int place = 0; place < 6; place++) {
                int own = place;
                racing.add(
                        threads.submit(
                                () -> {
                                    try (ForebayClient client =
                                            ForebayClient.connect(
                                                    Node.sharedAddress(), PATIENCE)) {
                                        Store store = client.store(at.name());
                                        return store.put(K).set("a", own).ifAbsent().send();
                                    }
                                }));
            }
            int winner = -1;
            for (int place = 0; place < 6; place++) {
                if (racing.get(place).get().result() == WriteOutcome.WriteResult.APPLIED) {
                    assertEquals(-1, winner);
                    winner = place;
                }
            }
            assertEquals(winner, at.number(at.latest(), "a", "k"));
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void ifVersionAppliesOnlyToTheGivenVersion() {
        StoreOptions versioned = StoreOptions.builder().versioned(true).build();
        try (OpenStore at =
                open(
                        KeyType.STRING,
                        1,
                        spec -> spec.field("a", FieldType.INT64).options(versioned))) {
            Reads reads = at.after(at.store().put(K).set("a", 1).send());
            long version = reads.getDocument(K).version().orElseThrow();
            WriteOutcome applied = at.store().put(K).set("a", 2).ifVersion(version).send();
            assertEquals(WriteOutcome.WriteResult.APPLIED, applied.result());
            WriteOutcome missed = at.store().put(K).set("a", 3).ifVersion(version).send();
            assertEquals(WriteOutcome.WriteResult.CONDITION_FAILED, missed.result());
            Document found = at.after(missed).getDocument(K);
            assertEquals(found.version(), missed.version());
            assertEquals(2, found.getLong("a", -1));
        }
    }

    @Test
    void ifNewerAppliesOnlyALargerValue() {
        try (OpenStore at = open()) {
            WriteOutcome first = at.store().upsert(K).set("a", 5).set("b", 1).ifNewer("a").send();
            assertEquals(WriteOutcome.WriteResult.APPLIED, first.result());
            for (long same : new long[] {5, 4}) {
                Write write = at.store().upsert(K).set("a", same).set("b", 2).ifNewer("a");
                assertEquals(WriteOutcome.WriteResult.CONDITION_FAILED, write.send().result());
            }
            assertEquals(1, at.number(at.latest(), "b", "k"));
            WriteOutcome grown = at.store().upsert(K).set("a", 6).set("b", 3).ifNewer("a").send();
            assertEquals(WriteOutcome.WriteResult.APPLIED, grown.result());
            assertEquals(3, at.number(at.after(grown), "b", "k"));
            invalid(() -> at.store().upsert(K).ifNewer("a").ifAbsent());
        }
    }

    @Test
    void storesAreCreatedDescribedAlteredAndDeleted() {
        StoreOptions given =
                StoreOptions.builder()
                        .ttl(Duration.ofSeconds(90))
                        .versioned(true)
                        .heartbeat(Duration.ofMillis(1_500))
                        .logRetention(Duration.of(3_000_001, ChronoUnit.MICROS))
                        .build();
        try (OpenStore at =
                open(
                        KeyType.STRING,
                        4,
                        spec ->
                                spec.field("a", FieldType.INT64)
                                        .field("b", FieldType.INT64)
                                        .field("s", FieldType.STRING)
                                        .options(given))) {
            Definition described = CLIENT.describeStore(at.name());
            assertEquals(given, described.options());
            assertEquals(described, at.store().definition());
            assertEquals(described, at.reader().definition());
            assertEquals(1, described.version());
            assertEquals(4, described.partitions());
            assertEquals(FieldType.STRING, described.field("s").orElseThrow().type());
            assertTrue(CLIENT.listStores().contains(described));
            StoreSpec again = StoreSpec.documents(at.name(), KeyType.STRING).partitions(1);
            refused(ConflictException.class, () -> CLIENT.createStore(again));
            List<Alteration> rename = List.of(Alteration.renameField("a", "c"));
            Definition altered = CLIENT.alterStore(at.name(), 1, rename);
            assertEquals(List.of("a"), altered.field("c").orElseThrow().aliases());
            assertEquals(described, CLIENT.describeStore(at.name(), 1));
            assertEquals(altered, CLIENT.describeStore(at.name(), 2));
            refused(NotFoundException.class, () -> CLIENT.describeStore(at.name(), 9));
            List<Alteration> drop = List.of(Alteration.dropField("b"));
            refused(ConflictException.class, () -> CLIENT.alterStore(at.name(), 1, drop));
            assertEquals(given, setOptions(at.name(), altered.options()));
            StoreOptions whole = given.toBuilder().logRetention(null).build();
            assertEquals(whole, setOptions(at.name(), whole));
            StoreOptions negative = given.toBuilder().logRetention(Duration.ofSeconds(-1)).build();
            invalid(() -> setOptions(at.name(), negative));
            CLIENT.deleteStore(at.name());
            refused(NotFoundException.class, () -> CLIENT.describeStore(at.name()));
            refused(NotFoundException.class, () -> at.store().put(K).set("b", 1).send());
        }
    }

    @Test
    void refreshReturnsTheNewestDefinition() {
        try (OpenStore at = open();
                ForebayClient other = ForebayClient.connect(Node.sharedAddress(), PATIENCE)) {
            Store store = at.store();
            Definition altered = other.alterStore(at.name(), 1, List.of(Alteration.dropField("b")));
            assertEquals(1, store.definition().version());
            assertEquals(altered, store.refresh());
            assertEquals(altered, store.definition());
            other.deleteStore(at.name());
            refused(NotFoundException.class, store::refresh);
            other.createStore(StoreSpec.keyValue(at.name(), KeyType.STRING).partitions(1));
            refused(NotFoundException.class, store::refresh);
        }
    }

    private static StoreOptions setOptions(String store, StoreOptions options) {
        return CLIENT.alterStore(store, 0, List.of(Alteration.setOptions(options))).options();
    }
}
