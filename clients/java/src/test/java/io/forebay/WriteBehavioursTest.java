/* Behaviours of writes; their rules are in proto/vectors/behaviours.toml. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class WriteBehavioursTest extends Behaviours {
    private static final Key K = Key.of("k");
    private static final int KEY_BYTES_MAX = 64 * 1024;
    private static final int VALUE_BYTES_MAX = 16 * 1024 * 1024;

    @Test
    void getReturnsExactlyThePutFields() {
        try (OpenStore at = open()) {
            at.store().put(K).set("a", 1).set("b", 2).send();
            Document found = at.after(at.store().put(K).set("b", 3).send()).getDocument(K);
            assertEquals(Set.of("b"), found.fields());
            assertEquals(3, found.getLong("b", -1));
        }
    }

    @Test
    void getReturnsEveryUpsertedField() {
        try (OpenStore at = open()) {
            WriteOutcome written = at.store().upsert(K).set("a", 41).set("s", "Zürich 😀").send();
            assertEquals(WriteOutcome.WriteResult.APPENDED, written.result());
            assertEquals(41, at.number(at.after(written), "a", "k"));
            assertEquals("Zürich 😀", at.reader().getString(at.reader().field("s"), K));
        }
    }

    @Test
    void upsertsOfDifferentFieldsAddUp() {
        try (OpenStore at = open()) {
            at.store().upsert(K).set("a", 1).send();
            Document found = at.after(at.store().upsert(K).set("b", 2).send()).getDocument(K);
            assertEquals(1, found.getLong("a", -1));
            assertEquals(2, found.getLong("b", -1));
        }
    }

    @Test
    void deleteMakesTheDocumentAbsent() {
        try (OpenStore at = open()) {
            at.store().upsert(K).set("a", 1).send();
            assertNull(at.after(at.store().delete(K).send()).getDocument(K));
            at.store().delete(K).send();
            Document found = at.after(at.store().upsert(K).set("b", 2).send()).getDocument(K);
            assertEquals(Set.of("b"), found.fields());
        }
    }

    @Test
    void removedFieldIsAbsentAndOthersRemain() {
        try (OpenStore at = open()) {
            at.store().upsert(K).set("a", 1).set("b", 2).send();
            Document found = at.after(at.store().upsert(K).removeField("a").send()).getDocument(K);
            assertEquals(Set.of("b"), found.fields());
        }
    }

    private static StoreSpec everyType(StoreSpec spec) {
        return spec.field("bool", FieldType.BOOL)
                .field("int32", FieldType.INT32)
                .field("int64", FieldType.INT64)
                .field("float32", FieldType.FLOAT32)
                .field("float64", FieldType.FLOAT64)
                .field("string", FieldType.STRING)
                .field("bytes", FieldType.BYTES)
                .field("timestamp", FieldType.TIMESTAMP)
                .field("numbers", FieldType.list(FieldType.INT64))
                .field("texts", FieldType.list(FieldType.STRING))
                .field("times", FieldType.list(FieldType.TIMESTAMP))
                .field("f32", FieldType.vectorF32(3))
                .field("f16", FieldType.vectorF16(3))
                .field("i8", FieldType.vectorI8(3));
    }

    @Test
    void everyValueTypeIsReadAsWritten() {
        try (OpenStore at = open(KeyType.STRING, 2, WriteBehavioursTest::everyType)) {
            Instant time = Instant.ofEpochSecond(1_700_000_000, 123_456_000);
            Instant early = Instant.ofEpochSecond(-1, 999_999_000);
            byte[] i8 = {-128, 0, 127};
            float[] f32 = {Float.MIN_VALUE, -0.0f, Float.MAX_VALUE};
            float[] f16 = {0x1p-24f, -65504f, 0.5f};
            Write write = at.store().put(K).set("bool", true).set("int32", Integer.MIN_VALUE);
            write.set("int64", Long.MAX_VALUE).set("float32", Float.MIN_VALUE);
            write.set("float64", Double.MIN_VALUE).set("string", "a\0é😀?");
            write.set("bytes", new byte[] {0, -1}).set("timestamp", time);
            write.set("numbers", List.of(Long.MIN_VALUE, 0L)).set("texts", List.of("", "é"));
            write.set("times", List.of(early)).set("f32", f32).set("f16", f16).setI8("i8", i8);
            Reads reads = at.after(write.send());
            ForebayReader reader = at.reader();
            assertTrue(reads.getBoolean(reader.field("bool"), K, false));
            assertEquals(Integer.MIN_VALUE, reads.getInt(reader.field("int32"), K, 0));
            assertEquals(Long.MAX_VALUE, reads.getLong(reader.field("int64"), K, 0));
            assertEquals(Float.MIN_VALUE, reads.getFloat(reader.field("float32"), K, 0));
            assertEquals(Double.MIN_VALUE, reads.getDouble(reader.field("float64"), K, 0));
            assertEquals("a\0é😀?", reads.getString(reader.field("string"), K));
            assertArrayEquals(new byte[] {0, -1}, reads.getBytes(reader.field("bytes"), K));
            assertEquals(time, reads.getTimestamp(reader.field("timestamp"), K));
            assertEquals(List.of(Long.MIN_VALUE, 0L), reads.getValue(reader.field("numbers"), K));
            assertEquals(List.of(early), reads.getValue(reader.field("times"), K));
            Document document = reads.getDocument(K);
            assertEquals(List.of("", "é"), document.value("texts"));
            assertArrayEquals(f32, (float[]) document.value("f32"));
            assertArrayEquals(f16, (float[]) document.value("f16"));
            assertArrayEquals(i8, (byte[]) document.value("i8"));
            assertEquals(time, document.value("timestamp"));
            assertEquals(14, document.fields().size());
        }
    }

    @Test
    void keyValueStorePutsGetsAndDeletesBytes() {
        try (OpenStore at = open(StoreSpec.keyValue(Node.name(), KeyType.STRING).partitions(2))) {
            FieldHandle value = at.reader().field("value");
            at.store().putValue(K, new byte[] {1, 2}).send();
            Key empty = Key.of("empty");
            Reads reads = at.after(at.store().putValue(empty, new byte[0]).send());
            assertArrayEquals(new byte[0], reads.getBytes(value, empty));
            assertArrayEquals(new byte[] {1, 2}, at.latest().getBytes(value, K));
            assertNull(at.after(at.store().delete(K).send()).getBytes(value, K));
        }
    }

    @Test
    void documentsAreFoundUnderEveryKeyType() {
        Key[][] all = {
            {Key.of("a"), Key.of("é😀")},
            {Key.of(new byte[] {1}), Key.of(new byte[] {0, 0})},
            {Key.of(Long.MIN_VALUE), Key.of(-1), Key.of(0), Key.of(Long.MAX_VALUE)},
        };
        for (Key[] keys : all) {
            KeyType type = keys[0].type();
            try (OpenStore at = open(type, 3, spec -> spec.field("a", FieldType.INT64))) {
                Batch batch = at.store().batch();
                for (int place = 0; place < keys.length; place++) {
                    batch.add(at.store().put(keys[place]).set("a", place));
                }
                Reads reads = at.after(batch.send().requireComplete());
                for (int place = 0; place < keys.length; place++) {
                    assertEquals(place, reads.getLong(at.reader().field("a"), keys[place], -1));
                }
            }
        }
    }

    @Test
    void partitionKeyIsRequiredWithEveryKey() {
        try (OpenStore at =
                open(
                        KeyType.STRING,
                        4,
                        spec ->
                                spec.field("user", FieldType.INT64)
                                        .field("a", FieldType.INT64)
                                        .partitionKey("user"))) {
            Key one = K.withPartitionKey(Key.of(1));
            Key two = K.withPartitionKey(Key.of(2));
            Batch batch = at.store().batch();
            batch.add(at.store().put(one).set("a", 1)).add(at.store().put(two).set("a", 2));
            Reads reads = at.after(batch.send().requireComplete());
            FieldHandle a = at.reader().field("a");
            assertEquals(1, reads.getLong(a, one, -1));
            assertEquals(2, reads.getLong(a, two, -1));
            List<DocumentAnswer> both = reads.getDocuments(Keys.of(two, one));
            assertEquals(2, both.get(0).document().getLong("a", -1));
            assertEquals(1, both.get(1).document().getLong("a", -1));
            invalid(() -> reads.getLong(a, K, -1));
            invalid(() -> at.store().put(K).set("a", 1).send());
        }
    }

    @Test
    void emptyKeyIsAKey() {
        for (Key empty : List.of(Key.of(""), Key.of(new byte[0]))) {
            try (OpenStore at = open(empty.type(), 2, spec -> spec.field("a", FieldType.INT64))) {
                Reads reads = at.after(at.store().put(empty).set("a", 5).send());
                assertEquals(5, reads.getLong(at.reader().field("a"), empty, -1));
                assertEquals(empty, at.reader().scan().next().key());
            }
        }
    }

    @Test
    void largestKeyIsWrittenAndFound() {
        try (OpenStore at = open()) {
            Key key = Key.of("k".repeat(KEY_BYTES_MAX));
            Reads reads = at.after(at.store().put(key).set("a", 5).send());
            assertEquals(5, reads.getLong(at.reader().field("a"), key, -1));
        }
    }

    @Test
    void largestValueIsReadAsWritten() {
        try (OpenStore at = open(StoreSpec.keyValue(Node.name(), KeyType.STRING).partitions(1))) {
            byte[] value = new byte[VALUE_BYTES_MAX];
            for (int place = 0; place < value.length; place++) {
                value[place] = (byte) (place * 31 + (place >>> 8));
            }
            Reads reads = at.after(at.store().putValue(K, value).send());
            byte[] found = reads.getBytes(at.reader().field("value"), K);
            assertTrue(Arrays.equals(value, found));
        }
    }

    @Test
    void nonUtf8BytesAreAKey() {
        try (OpenStore at = open(KeyType.BYTES, 3, spec -> spec.field("a", FieldType.INT64))) {
            Key raw = Key.of(new byte[] {-1, 0, -64});
            byte[] asText = "\uFFFD\0\uFFFD".getBytes(StandardCharsets.UTF_8);
            Key replaced = Key.of(asText);
            Reads reads = at.after(at.store().put(raw).set("a", 1).send());
            assertEquals(1, reads.getLong(at.reader().field("a"), raw, -1));
            assertNull(reads.getDocument(replaced));
            assertEquals(raw, at.reader().scan().next().key());
            invalid(() -> Key.of("\uD800"));
        }
    }

    @Test
    void batchAnswersOneOutcomePerChangeInOrder() {
        try (OpenStore at = open()) {
            Batch batch = at.store().batch();
            for (int place = 0; place < 50; place++) {
                batch.add(at.store().upsert(Key.of("k" + place % 5)).set("a", place));
            }
            batch.add(at.store().upsert(K).set("b", 1).ifAbsent());
            batch.add(at.store().upsert(K).set("b", 2).ifAbsent());
            BatchOutcome sent = batch.send().requireComplete();
            assertEquals(52, sent.results().size());
            assertEquals(WriteOutcome.WriteResult.APPENDED, sent.results().get(49).result());
            assertEquals(WriteOutcome.WriteResult.APPLIED, sent.results().get(50).result());
            assertEquals(
                    WriteOutcome.WriteResult.CONDITION_FAILED, sent.results().get(51).result());
            Reads reads = at.after(sent);
            for (int key = 0; key < 5; key++) {
                assertEquals(45 + key, at.number(reads, "a", "k" + key));
            }
            assertEquals(1, at.number(reads, "b", "k"));
        }
    }

    @Test
    void streamAcknowledgesEveryWriteOnceInOrder() throws Exception {
        int room = 64;
        int writes = 2_000;
        FieldType order = FieldType.list(FieldType.INT64);
        try (OpenStore at =
                open(
                        KeyType.STRING,
                        4,
                        spec -> spec.field("order", order).field("a", FieldType.INT64))) {
            AtomicInteger heard = new AtomicInteger();
            List<CompletableFuture<WriteOutcome>> sent = new ArrayList<>();
            WriteStream.StreamSummary summary;
            try (WriteStream stream =
                    at.store().writeStream(StreamOptions.builder().changesMax(room).build())) {
                for (int place = 0; place < writes; place++) {
                    Write write = at.store().upsert(Key.of("k" + place % 10));
                    write.listAppend("order", List.of((long) place), writes).increment("a", 1);
                    sent.add(stream.send(write).whenComplete((one, no) -> heard.addAndGet(1)));
                    // The core is full, and as many changes are being passed on.
                    assertTrue(sent.size() - heard.get() <= 2 * room);
                }
                invalid(() -> stream.send(at.store().upsert(K).set("a", "text")));
                Write once = at.store().upsert(K).set("a", 1).ifAbsent();
                sent.add(stream.send(once).whenComplete((one, no) -> heard.addAndGet(1)));
                sent.add(stream.send(once).whenComplete((one, no) -> heard.addAndGet(1)));
                summary = stream.flush();
                refused(InvalidArgumentException.class, () -> stream.send(foreignWrite()));
                stream.send(at.store().upsert(K).increment("a", 1));
            }
            assertEquals(writes + 2, heard.get());
            assertEquals(List.of(writes + 2L, 1L, 0L), counts(summary));
            assertEquals(WriteOutcome.WriteResult.APPENDED, sent.get(0).get().result());
            assertEquals(WriteOutcome.WriteResult.APPLIED, sent.get(writes).get().result());
            assertEquals(
                    WriteOutcome.WriteResult.CONDITION_FAILED, sent.get(writes + 1).get().result());
            Reads reads = at.reader().with(ReadOptions.after(summary.token(), PATIENCE));
            for (int key = 0; key < 10; key++) {
                List<Long> expected = new ArrayList<>();
                for (long place = key; place < writes; place += 10) {
                    expected.add(place);
                }
                Document found = reads.getDocument(Key.of("k" + key));
                assertEquals(expected, found.value("order"));
                assertEquals(writes / 10, found.getLong("a", -1));
            }
            assertEquals(2, at.number(at.latest(), "a", "k"));
        }
    }

    private static List<Long> counts(WriteStream.StreamSummary summary) {
        return List.of(summary.resolved(), summary.conditionFailed(), summary.failed());
    }

    private static Write foreignWrite() {
        try (OpenStore another = open()) {
            return another.store().upsert(K).set("a", 1);
        }
    }

    @Test
    void unknownStoreIsNotFound() {
        for (Runnable call :
                List.<Runnable>of(() -> CLIENT.store("nobody"), () -> CLIENT.reader("nobody"))) {
            NotFoundException error = refused(NotFoundException.class, call);
            assertEquals("nobody", error.store().orElseThrow());
        }
    }

    @Test
    void unknownFieldIsNotFound() {
        try (OpenStore at = open()) {
            List<GatherField> fields = List.of(new GatherField("nothing"));
            for (Runnable call :
                    List.<Runnable>of(
                            () -> at.store().upsert(K).set("a", 1).set("nothing", 1).send(),
                            () -> at.reader().field("nothing"),
                            () -> at.reader().planGatherDoubles(fields, true))) {
                NotFoundException error = refused(NotFoundException.class, call);
                assertEquals("nothing", error.field().orElseThrow());
                assertEquals(at.name(), error.store().orElseThrow());
            }
            assertNull(at.latest().getDocument(K));
        }
    }

    @Test
    void keyOfAnotherTypeIsRefused() {
        try (OpenStore at = open();
                OpenStore numbers = open(KeyType.INT64, 1, s -> s.field("a", FieldType.INT64))) {
            for (Key key : List.of(Key.of(7), Key.of(new byte[] {'7'}))) {
                invalid(() -> at.store().put(key).set("a", 1).send());
                invalid(() -> at.reader().getLong(at.reader().field("a"), key, -1));
                invalid(() -> at.reader().getDocuments(Keys.of(key)));
            }
            invalid(() -> at.reader().getLong(at.reader().field("a"), 7, -1));
            invalid(() -> at.reader().getLong(at.reader().field("a"), new byte[] {'7'}, -1));
            invalid(() -> at.reader().getDocuments(new long[] {7}));
            invalid(() -> numbers.store().put(Key.of("7")).set("a", 1).send());
            assertEquals(false, at.reader().scan().hasNext());
        }
    }

    @Test
    void misfittingValueIsRefused() {
        try (OpenStore at = open(KeyType.STRING, 2, WriteBehavioursTest::everyType)) {
            for (Write write :
                    List.of(
                            at.store().put(K).set("int64", "1"),
                            at.store().put(K).set("int64", 1.5),
                            at.store().put(K).set("int32", 1L << 31),
                            at.store().put(K).set("string", new byte[] {1}),
                            at.store().put(K).set("bool", 1),
                            at.store().put(K).set("f32", new float[] {1, 2}),
                            at.store().put(K).set("numbers", List.of("a")))) {
                assertTrue(invalid(write::send).field().isPresent());
            }
            invalid(() -> at.store().put(K).set("string", new Object()));
            assertNull(at.latest().getDocument(K));
        }
    }

    @Test
    void oversizeKeyIsRefused() {
        try (OpenStore at = open()) {
            int size = KEY_BYTES_MAX + 1;
            Key key = Key.of("k".repeat(size));
            limited(KEY_BYTES_MAX, size, () -> at.store().put(key).set("a", 1).send());
            limited(KEY_BYTES_MAX, size, () -> at.reader().getDocument(key));
            assertEquals(false, at.latest().scan().hasNext());
        }
    }

    @Test
    void oversizeValueIsRefused() {
        try (OpenStore at = open(StoreSpec.keyValue(Node.name(), KeyType.STRING).partitions(1))) {
            int size = VALUE_BYTES_MAX + 1;
            limited(
                    VALUE_BYTES_MAX, size, () -> at.store().putValue(K, new byte[size]).send());
            assertNull(at.latest().getDocument(K));
        }
    }

    @Test
    void oversizeNameIsRefused() {
        String name = "n".repeat(256);
        StoreSpec store = StoreSpec.documents(name, KeyType.STRING).partitions(1);
        StoreSpec field =
                StoreSpec.documents(Node.name(), KeyType.STRING)
                        .partitions(1)
                        .field(name, FieldType.BOOL);
        limited(255, 256, () -> CLIENT.createStore(store));
        limited(255, 256, () -> CLIENT.createStore(field));
    }
}
