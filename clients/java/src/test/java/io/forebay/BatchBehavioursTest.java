/* Behaviours of batches, gathers and scans; see proto/vectors/behaviours.toml. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class BatchBehavioursTest extends Behaviours {
    private static final Key ONE = Key.of("one");
    private static final Key TWO = Key.of("two");
    private static final Key NONE = Key.of("none");
    private static final byte ABSENT = (byte) KeyStatus.ABSENT.ordinal();
    private static final byte FOUND = (byte) KeyStatus.FOUND.ordinal();

    /**
     * Opens a store with two documents: one with all fields, one with a null and an absent field.
     */
    private static OpenStore filled() {
        OpenStore at =
                open(
                        KeyType.STRING,
                        3,
                        spec ->
                                spec.field("i", FieldType.INT32)
                                        .field("f", FieldType.FLOAT32)
                                        .field("v", FieldType.vectorF32(2))
                                        .field("s", FieldType.STRING)
                                        .field(FieldSpec.of("d", FieldType.INT32).fallback(7))
                                        .field("l", FieldType.INT64)
                                        .field("list", FieldType.list(FieldType.INT64)));
        Write one = at.store().put(ONE).set("i", 1).set("f", 1.5).set("s", "uno").set("d", 3);
        Write two = at.store().put(TWO).set("i", 2).setNull("f").set("s", "").set("l", 1L << 60);
        Batch batch = at.store().batch().add(two);
        batch.add(one.set("v", new float[] {10, 20}));
        at.reader().awaitToken(batch.send().requireComplete().token(), PATIENCE);
        return at;
    }

    private static List<GatherField> fields(String... names) {
        return java.util.Arrays.stream(names).map(GatherField::new).toList();
    }

    @Test
    void batchAnswersDuplicateKeysTwice() {
        try (OpenStore at = filled()) {
            Keys keys = Keys.of(ONE, TWO, ONE, ONE);
            PackedValues texts = at.reader().getMany(at.reader().field("s"), keys);
            assertEquals(4, texts.size());
            assertEquals("uno", texts.string(0));
            assertEquals("", texts.string(1));
            assertEquals("uno", texts.string(2));
            assertEquals("uno", texts.string(3));
            List<DocumentAnswer> documents = at.reader().getDocuments(keys);
            assertEquals(1, documents.get(3).document().getLong("i", -1));
            assertEquals(2, documents.get(1).document().getLong("i", -1));
        }
    }

    @Test
    void batchReportsMissingKeysAsAbsent() {
        try (OpenStore at = filled()) {
            Keys keys = Keys.of(NONE, ONE, Key.of("no"), TWO);
            PackedValues texts = at.reader().getMany(at.reader().field("s"), keys);
            assertNull(texts.string(0));
            assertEquals(KeyStatus.ABSENT, texts.status(0));
            assertEquals(Presence.ABSENT, texts.presence(0));
            assertEquals("uno", texts.string(1));
            assertEquals(KeyStatus.FOUND, texts.status(3));
            assertArrayEquals(new byte[0], texts.bytes(3));
            List<DocumentAnswer> documents = at.reader().getDocuments(keys);
            assertEquals(KeyStatus.ABSENT, documents.get(2).status());
            assertNull(documents.get(2).document());
            assertEquals(2, documents.get(3).document().getLong("i", -1));
        }
    }

    @Test
    void emptyBatchAnswersNothing() {
        try (OpenStore at = filled();
                GatherPlan plan = at.reader().planGatherFloats(fields("i"), true)) {
            Keys none = Keys.of(List.of());
            assertEquals(0, at.reader().getMany(at.reader().field("s"), none).size());
            assertEquals(List.of(), at.reader().getDocuments(none));
            at.reader().gather(plan, none, new float[0], new byte[0], new byte[0]);
            assertEquals(List.of(), at.store().batch().send().results());
        }
    }

    @Test
    void gatherFillsDefaults() {
        try (OpenStore at = filled()) {
            List<GatherField> fields =
                    List.of(
                            new GatherField("i", -1),
                            new GatherField("f", -2.5),
                            new GatherField("d"),
                            new GatherField("v"));
            try (GatherPlan plan = at.reader().planGatherDoubles(fields, false)) {
                assertEquals(5, plan.width());
                double[] values = new double[15];
                at.reader().gather(plan, Keys.of(ONE, TWO, NONE), values, null, null);
                double[] expected = {1, 1.5, 3, 10, 20, 2, -2.5, 7, 0, 0, -1, -2.5, 7, 0, 0};
                assertArrayEquals(expected, values);
            }
        }
    }

    @Test
    void gatherMaskDistinguishesAbsentNullAndValue() {
        try (OpenStore at = filled();
                GatherPlan plan = at.reader().planGatherDoubles(fields("i", "f", "d"), false)) {
            byte[] statuses = new byte[3];
            byte[] cells = new byte[9];
            at.reader().gather(plan, Keys.of(TWO, NONE, ONE), new double[9], statuses, cells);
            assertArrayEquals(new byte[] {FOUND, ABSENT, FOUND}, statuses);
            byte isNull = (byte) Presence.NULL.ordinal();
            byte value = (byte) Presence.VALUE.ordinal();
            byte[] expected = {value, isNull, 0, 0, 0, 0, value, value, value};
            assertArrayEquals(expected, cells);
        }
    }

    @Test
    void gatherSpreadsVectorsOverColumns() {
        try (OpenStore at = filled();
                GatherPlan plan = at.reader().planGatherFloats(fields("f", "v", "i"), true)) {
            float[] values = new float[4];
            at.reader().gather(plan, Keys.of(ONE), values, null, null);
            assertArrayEquals(new float[] {1.5f, 10, 20, 1}, values);
            List<GatherPlan.GatherColumns> columns =
                    List.of(
                            new GatherPlan.GatherColumns("f", 0, 1),
                            new GatherPlan.GatherColumns("v", 1, 2),
                            new GatherPlan.GatherColumns("i", 3, 1));
            assertEquals(columns, plan.columns());
        }
    }

    @Test
    void gatherRepeatsDuplicateKeys() {
        try (OpenStore at = filled();
                GatherPlan plan = at.reader().planGatherDoubles(fields("i", "f"), false)) {
            double[] values = new double[6];
            at.reader().gather(plan, Keys.of(ONE, TWO, ONE), values, null, null);
            assertArrayEquals(new double[] {1, 1.5, 2, 0, 1, 1.5}, values);
        }
    }

    @Test
    void gatherRefusesTooSmallArraysUntouched() {
        try (OpenStore at = filled();
                GatherPlan plan = at.reader().planGatherDoubles(fields("i", "f"), false)) {
            int[][] rooms = {{3, 2, 4}, {4, 1, 4}, {4, 2, 3}};
            for (int[] room : rooms) {
                double[] values = new double[room[0]];
                byte[] statuses = new byte[room[1]];
                byte[] cells = new byte[room[2]];
                Keys keys = Keys.of(ONE, TWO);
                invalid(() -> at.reader().gather(plan, keys, values, statuses, cells));
                assertArrayEquals(new double[room[0]], values);
                assertArrayEquals(new byte[room[1]], statuses);
                assertArrayEquals(new byte[room[2]], cells);
            }
            invalid(() -> at.reader().gather(plan, Keys.of(ONE), new float[2], null, null));
        }
    }

    @Test
    void gatherPlanRefusesInexactConversions() {
        try (OpenStore at = filled()) {
            invalid(() -> at.reader().planGatherDoubles(fields("l"), false));
            invalid(() -> at.reader().planGatherFloats(fields("i"), false));
            for (String field : List.of("s", "list")) {
                invalid(() -> at.reader().planGatherDoubles(fields(field), true));
            }
            try (GatherPlan plan = at.reader().planGatherDoubles(fields("l"), true)) {
                double[] values = new double[1];
                at.reader().gather(plan, Keys.of(TWO), values, null, null);
                assertEquals(0x1p60, values[0]);
            }
        }
    }

    @Test
    void scanEqualsGets() {
        try (OpenStore at = open()) {
            Batch batch = at.store().batch();
            for (int place = 0; place < 1000; place++) {
                batch.add(at.store().put(Key.of("k" + place)).set("a", place));
            }
            batch.add(at.store().delete(Key.of("k0")));
            at.reader().awaitToken(batch.send().requireComplete().token(), PATIENCE);
            Map<Key, Long> seen = new HashMap<>();
            try (DocumentScan scan = at.reader().scan()) {
                while (scan.hasNext()) {
                    ScannedDocument one = scan.next();
                    assertNull(seen.put(one.key(), one.document().getLong("a", -1)));
                }
            }
            assertEquals(999, seen.size());
            FieldHandle a = at.reader().field("a");
            seen.forEach((key, value) -> assertEquals(value, at.reader().getLong(a, key, -1)));
            assertTrue(!seen.containsKey(Key.of("k0")));
        }
    }
}
