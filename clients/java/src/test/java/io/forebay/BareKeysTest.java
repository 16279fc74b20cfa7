/* Reads by int64, string and bytes keys directly, without an object for the key. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;

class BareKeysTest extends Behaviours {
    /** The bare key's class, and a reader of a store of such keys. */
    private static final Map<Class<?>, InMemoryReader> READERS =
            Map.of(
                    long.class, reader(KeyType.INT64, Key.of(-7L), Key.of(8L)),
                    String.class, reader(KeyType.STRING, Key.of("-7"), Key.of("8")),
                    byte[].class, reader(KeyType.BYTES, key("-7"), key("8")));

    /** The field of each read, and the parameters after its key. */
    private static final Map<String, String> FIELDS =
            new TreeMap<>(
                    Map.of(
                            "getLong", "int64",
                            "getInt", "int32",
                            "getBoolean", "bool",
                            "getTimestampMicros", "timestamp",
                            "getTimestamp", "timestamp",
                            "getFloat", "float32",
                            "getDouble", "float64",
                            "getString", "string",
                            "getBytes", "bytes"));

    private static Key key(String text) {
        return Key.of(text.getBytes(StandardCharsets.UTF_8));
    }

    private static InMemoryReader reader(KeyType type, Key full, Key nulls) {
        StoreSpec spec =
                StoreSpec.documents("bare", type)
                        .partitions(3)
                        .field("int64", FieldType.INT64)
                        .field("int32", FieldType.INT32)
                        .field("bool", FieldType.BOOL)
                        .field("timestamp", FieldType.TIMESTAMP)
                        .field("float32", FieldType.FLOAT32)
                        .field("float64", FieldType.FLOAT64)
                        .field("string", FieldType.STRING)
                        .field("bytes", FieldType.BYTES);
        Write row =
                Write.row(full)
                        .set("int64", 1L << 60)
                        .set("int32", -3)
                        .set("bool", true)
                        .set("timestamp", Instant.ofEpochSecond(9))
                        .set("float32", 1.5f)
                        .set("float64", Math.PI)
                        .set("string", "h\u00e9llo")
                        .set("bytes", new byte[] {4, 5});
        return ForebayReader.inMemory(spec, row, Write.row(nulls).setNull("int64"));
    }

    @AfterAll
    static void close() {
        READERS.values().forEach(InMemoryReader::close);
    }

    /** Returns every read of one document by a {@link Key}. */
    private static List<Method> readsByKey() {
        List<Method> found = new ArrayList<>();
        for (Method method : Reads.class.getDeclaredMethods()) {
            if (Arrays.asList(method.getParameterTypes()).contains(Key.class)) {
                found.add(method);
            }
        }
        assertTrue(found.size() >= 14, found::toString);
        return found;
    }

    /** Returns the arguments of a read: its handle, a key, and the parameters after the key. */
    private static Object[] arguments(Method read, Reads reader, Object key) {
        Class<?>[] types = read.getParameterTypes();
        Object[] arguments = new Object[types.length];
        for (int place = 0; place < types.length; place++) {
            if (types[place] == FieldHandle.class) {
                String field = FIELDS.getOrDefault(read.getName(), "string");
                arguments[place] = ((ForebayReader) reader).field(field);
            } else if (place == types.length - 1 && place > 1) {
                arguments[place] = behindTheKey(types[place]);
            } else {
                arguments[place] = key;
            }
        }
        return arguments;
    }

    private static Object behindTheKey(Class<?> type) {
        Map<Class<?>, Object> all =
                Map.of(
                        long.class, 5L,
                        int.class, 6,
                        boolean.class, true,
                        float.class, 7f,
                        double.class, 8.0,
                        byte[].class, new byte[16],
                        ByteBuffer.class, ByteBuffer.allocateDirect(16));
        return all.get(type);
    }

    private static Method bare(Method read, Class<?> key) throws NoSuchMethodException {
        Class<?>[] types = read.getParameterTypes().clone();
        types[Arrays.asList(types).indexOf(Key.class)] = key;
        return Reads.class.getMethod(read.getName(), types);
    }

    /** Returns a read's result and the contents of its buffer, to be compared. */
    private static List<Object> answer(Method read, Reads reader, Object key) throws Exception {
        Object[] arguments = arguments(read, reader, key);
        Object answer = read.invoke(reader, arguments);
        Object last = arguments.length == 3 ? arguments[2] : null;
        List<Object> all = new ArrayList<>();
        for (Object part : Arrays.asList(answer, last)) {
            if (part instanceof byte[] bytes) {
                all.add(ByteBuffer.wrap(bytes));
            } else if (part instanceof Document document) {
                all.add(document.getLong("int64", -1));
                all.add(document.value("string"));
            } else if (part instanceof ByteBuffer || part == answer) {
                all.add(part);
            }
        }
        return all;
    }

    private static Object bareKey(Class<?> type, String text) {
        if (type == long.class) {
            return Long.valueOf(text);
        }
        return type == String.class ? text : text.getBytes(StandardCharsets.UTF_8);
    }

    private static Key key(Class<?> type, String text) {
        if (type == long.class) {
            return Key.of(Long.parseLong(text));
        }
        return type == String.class ? Key.of(text) : key(text);
    }

    @Test
    void everyReadAcceptsEveryBareKeyTypeLikeAKeyObject() throws Exception {
        for (Method read : readsByKey()) {
            for (Map.Entry<Class<?>, InMemoryReader> at : READERS.entrySet()) {
                Method bare = bare(read, at.getKey());
                for (String key : List.of("-7", "8", "9")) {
                    List<Object> expected =
                            answer(read, at.getValue(), key(at.getKey(), key));
                    Object given = bareKey(at.getKey(), key);
                    assertEquals(expected, answer(bare, at.getValue(), given), bare::toString);
                }
            }
        }
    }

    @Test
    void everyReadRefusesAKeyOfAnotherType() throws Exception {
        for (Method read : readsByKey()) {
            for (Class<?> type : READERS.keySet()) {
                Method bare = bare(read, type);
                for (Map.Entry<Class<?>, InMemoryReader> at : READERS.entrySet()) {
                    if (at.getKey() != type) {
                        Object[] arguments =
                                arguments(bare, at.getValue(), bareKey(type, "-7"));
                        InvocationTargetException refused =
                                assertThrows(
                                        InvocationTargetException.class,
                                        () -> bare.invoke(at.getValue(), arguments));
                        assertInstanceOf(
                                InvalidArgumentException.class,
                                refused.getCause(),
                                bare::toString);
                    }
                }
            }
        }
    }

    @Test
    void stringKeysAreUtf8OfAnyLengthAndAlwaysText() {
        List<String> keys =
                List.of(
                        "",
                        "a\u0000b",
                        "\u007f\u0080\u07ff\u0800\uffff",
                        "\ud7ff\ue000",
                        "\ud83d\ude00\udbff\udfff",
                        "\u20ac".repeat(5_000),
                        "k".repeat(60_000));
        StoreSpec spec =
                StoreSpec.documents("texts", KeyType.STRING)
                        .partitions(2)
                        .field("i", FieldType.INT64);
        Write[] rows = new Write[keys.size()];
        Arrays.setAll(rows, place -> Write.row(Key.of(keys.get(place))).set("i", place));
        try (InMemoryReader reader = ForebayReader.inMemory(spec, rows)) {
            FieldHandle field = reader.field("i");
            for (int place = 0; place < rows.length; place++) {
                assertEquals(place, reader.getLong(field, keys.get(place), -1));
            }
            for (String lone : List.of("\ud800", "\udc00", "a\ud800b", "\ud800\ud800\udc00")) {
                invalid(() -> reader.getLong(field, lone, -1));
                invalid(() -> reader.getLong(field, lone + "a".repeat(20_000), -1));
                invalid(() -> reader.getLong(field, Key.of(lone), -1));
            }
            int tooLong = 64 * 1024 + 1;
            limited(tooLong - 1, tooLong, () -> reader.getDocument("k".repeat(tooLong)));
        }
    }

    @Test
    void storePartitionedByAFieldNeedsThePartitionKey() {
        StoreSpec spec =
                StoreSpec.documents("within", KeyType.INT64)
                        .partitions(2)
                        .field("user", FieldType.INT64)
                        .field("i", FieldType.INT64)
                        .partitionKey("user");
        Key key = Key.of(1).withPartitionKey(Key.of(2));
        try (InMemoryReader reader =
                ForebayReader.inMemory(spec, Write.row(key).set("i", 3))) {
            FieldHandle field = reader.field("i");
            assertEquals(3, reader.getLong(field, key, -1));
            invalid(() -> reader.getLong(field, 1L, -1));
            invalid(() -> reader.getDocuments(new long[] {1}));
        }
    }

    @Test
    void batchesAcceptArraysOfKeys() {
        long[] numbers = {8, -7, 9, -7};
        String[] texts = {"8", "-7", "9", "-7"};
        byte[][] bytes = new byte[texts.length][];
        Arrays.setAll(bytes, place -> texts[place].getBytes(StandardCharsets.UTF_8));
        Map<Class<?>, Keys> all =
                Map.of(
                        long.class, Keys.of(numbers),
                        String.class, Keys.of(texts),
                        byte[].class, Keys.of(bytes));
        String[] expected = {null, "h\u00e9llo", null, "h\u00e9llo"};
        all.forEach(
                (type, keys) -> {
                    InMemoryReader reader = READERS.get(type);
                    assertEquals(4, keys.size());
                    assertArrayEquals(
                            expected, strings(reader.getMany(reader.field("string"), keys)));
                });
        InMemoryReader reader = READERS.get(long.class);
        FieldHandle field = reader.field("string");
        assertArrayEquals(expected, strings(reader.getMany(field, numbers)));
        assertEquals(KeyStatus.ABSENT, reader.getDocuments(numbers).get(2).status());
        assertEquals(1L << 60, reader.getDocuments(numbers).get(3).document().getLong("int64", 0));
        assertEquals(0, reader.getMany(field, new long[0]).size());
        InMemoryReader other = READERS.get(String.class);
        invalid(() -> other.getMany(other.field("string"), numbers));
        invalid(() -> other.getDocuments(numbers));
    }

    private static String[] strings(PackedValues values) {
        String[] all = new String[values.size()];
        Arrays.setAll(all, values::string);
        return all;
    }

    @Test
    void gathersAcceptArraysOfKeys() {
        long[] keys = {8, -7, 9};
        byte[] statuses = new byte[3];
        byte[] cells = new byte[3];
        InMemoryReader reader = READERS.get(long.class);
        List<GatherField> fields = List.of(new GatherField("int32", 2));
        try (GatherPlan floats = reader.planGatherFloats(fields, true);
                GatherPlan doubles = reader.planGatherDoubles(fields, false);
                GatherPlan longs = reader.planGatherLongs(fields, false)) {
            float[] ofFloats = new float[3];
            reader.gather(floats, keys, ofFloats, statuses, cells);
            assertArrayEquals(new float[] {2, -3, 2}, ofFloats);
            assertArrayEquals(new byte[] {1, 1, 0}, statuses);
            assertArrayEquals(new byte[] {0, 2, 0}, cells);
            double[] ofDoubles = new double[3];
            reader.gather(doubles, keys, ofDoubles, null, null);
            assertArrayEquals(new double[] {2, -3, 2}, ofDoubles);
            long[] ofLongs = new long[3];
            reader.gather(longs, keys, ofLongs, null, null);
            assertArrayEquals(new long[] {2, -3, 2}, ofLongs);
            ByteBuffer direct = ByteBuffer.allocateDirect(24).order(ByteOrder.nativeOrder());
            reader.gather(longs, keys, direct, null, null);
            assertEquals(-3, direct.getLong(8));
            invalid(() -> reader.gather(longs, keys, new long[2], null, null));
        }
        InMemoryReader other = READERS.get(String.class);
        try (GatherPlan plan = other.planGatherFloats(fields, true)) {
            float[] untouched = {1, 1, 1};
            invalid(() -> other.gather(plan, keys, untouched, null, null));
            assertArrayEquals(new float[] {1, 1, 1}, untouched);
        }
    }

    @Test
    void readsByBareKeysAllocateNothing() {
        byte[] array = new byte[64];
        ByteBuffer direct = ByteBuffer.allocateDirect(64);
        InMemoryReader numbers = READERS.get(long.class);
        InMemoryReader texts = READERS.get(String.class);
        InMemoryReader bytes = READERS.get(byte[].class);
        FieldHandle[] text = new FieldHandle[3];
        FieldHandle[] int64 = new FieldHandle[3];
        List<InMemoryReader> readers = List.of(numbers, texts, bytes);
        Arrays.setAll(text, place -> readers.get(place).field("string"));
        Arrays.setAll(int64, place -> readers.get(place).field("int64"));
        byte[] key = {'-', '7'};
        long reads = 30_000;
        var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        long allocated = Long.MAX_VALUE;
        // The first rounds run before all code is compiled; one round that allocates nothing is
        // enough.
        for (int round = 0; round < 20 && allocated > reads / 10; round++) {
            long before = threads.getCurrentThreadAllocatedBytes();
            long sum = 0;
            for (long read = 0; read < reads; read++) {
                // Numbers that no cache of boxes contains, and one existing key.
                sum += numbers.getLong(int64[0], 1_000_000 + read, 1);
                sum += numbers.getBytes(text[0], -7, array);
                sum += numbers.getBytes(text[0], -7, direct);
                sum += texts.getLong(int64[1], "none", 1);
                sum += texts.getBytes(text[1], "-7", array);
                sum += bytes.getLong(int64[2], array, 1);
                sum += bytes.getBytes(text[2], key, direct);
            }
            allocated = threads.getCurrentThreadAllocatedBytes() - before;
            assertEquals(27 * reads, sum);
        }
        assertTrue(allocated <= reads / 10, allocated + " bytes for " + 7 * reads + " reads");
    }
}
