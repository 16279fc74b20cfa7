/* Reads into memory segments, native and on the heap, and by keys in memory segments. */
package io.forebay.segments;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.forebay.ClosedException;
import io.forebay.FieldHandle;
import io.forebay.FieldType;
import io.forebay.ForebayException;
import io.forebay.ForebayReader;
import io.forebay.GatherField;
import io.forebay.GatherPlan;
import io.forebay.InMemoryReader;
import io.forebay.InvalidArgumentException;
import io.forebay.Key;
import io.forebay.KeyStatus;
import io.forebay.KeyType;
import io.forebay.Keys;
import io.forebay.Presence;
import io.forebay.ReadOptions;
import io.forebay.Reads;
import io.forebay.SimulatedState;
import io.forebay.StoreSpec;
import io.forebay.Write;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;

class SegmentReadsTest {
    private static final int LARGE = 100_000;
    private static final byte[] TEXT = "h\u00e9llo".getBytes(StandardCharsets.UTF_8);
    private static final InMemoryReader NUMBERS = reader(KeyType.INT64, Key.of(7), Key.of(8));
    private static final InMemoryReader TEXTS =
            reader(KeyType.STRING, Key.of("\u00e97"), Key.of("8"));
    private static final InMemoryReader BYTES =
            reader(KeyType.BYTES, Key.of(new byte[] {-1, 7}), Key.of(new byte[] {8}));

    /** Opens a store of one full document and one document with nulls. */
    private static InMemoryReader reader(KeyType type, Key full, Key nulls) {
        StoreSpec spec =
                StoreSpec.documents("segments", type)
                        .partitions(2)
                        .field("s", FieldType.STRING)
                        .field("b", FieldType.BYTES)
                        .field("i", FieldType.INT64)
                        .field("n", FieldType.INT32)
                        .field("t", FieldType.BOOL)
                        .field("at", FieldType.TIMESTAMP)
                        .field("f", FieldType.FLOAT32)
                        .field("d", FieldType.FLOAT64)
                        .field("v", FieldType.vectorF32(2));
        byte[] large = new byte[LARGE];
        Arrays.fill(large, (byte) 7);
        Write row =
                Write.row(full)
                        .set("s", new String(TEXT, StandardCharsets.UTF_8))
                        .set("b", large)
                        .set("i", 1L << 60)
                        .set("n", -3)
                        .set("t", true)
                        .set("at", Instant.ofEpochSecond(9))
                        .set("f", 1.5f)
                        .set("d", Math.PI)
                        .set("v", new float[] {2, 3});
        return ForebayReader.inMemory(spec, row, Write.row(nulls).setNull("s").setNull("i"));
    }

    @AfterAll
    static void close() {
        List.of(NUMBERS, TEXTS, BYTES).forEach(InMemoryReader::close);
    }

    private static InvalidArgumentException invalid(Runnable call) {
        return assertThrows(InvalidArgumentException.class, call::run);
    }

    private static byte[] bytes(MemorySegment segment) {
        return segment.toArray(ValueLayout.JAVA_BYTE);
    }

    /** Returns a segment of {@code bytes} bytes of every kind that can be written to. */
    private static List<MemorySegment> ofEveryKind(Arena arena, int bytes) {
        return List.of(
                arena.allocate(bytes, 8),
                MemorySegment.ofArray(new byte[bytes]),
                MemorySegment.ofArray(new byte[bytes + 5]).asSlice(3, bytes),
                MemorySegment.ofArray(new long[(bytes + 7) / 8]).asSlice(0, bytes));
    }

    @Test
    void segmentReceivesTheValueOrTheSizeNeeded() {
        List<Reads> all =
                List.of(
                        NUMBERS,
                        NUMBERS.with(ReadOptions.local().maxStaleness(Duration.ofMinutes(1))));
        FieldHandle text = NUMBERS.field("s");
        FieldHandle large = NUMBERS.field("b");
        try (Arena arena = Arena.ofConfined()) {
            for (Reads reads : all) {
                SegmentReads segments = SegmentReads.of(reads);
                for (MemorySegment out : ofEveryKind(arena, 10)) {
                    assertEquals(TEXT.length, segments.getBytes(text, 7, out));
                    assertArrayEquals(Arrays.copyOf(TEXT, 10), bytes(out));
                    assertEquals(Reads.NULL, segments.getBytes(text, 8, out));
                    assertEquals(Reads.ABSENT, segments.getBytes(text, 9, out));
                    assertEquals(LARGE, segments.getBytes(large, 7, out));
                    assertArrayEquals(Arrays.copyOf(TEXT, 10), bytes(out));
                }
                for (MemorySegment out : ofEveryKind(arena, TEXT.length - 1)) {
                    assertEquals(TEXT.length, segments.getBytes(text, 7, out));
                    assertArrayEquals(new byte[TEXT.length - 1], bytes(out));
                }
                for (MemorySegment out : ofEveryKind(arena, LARGE + 1)) {
                    assertEquals(LARGE, segments.getBytes(large, 7, out));
                    assertEquals(7, out.get(ValueLayout.JAVA_BYTE, LARGE - 1));
                    assertEquals(0, out.get(ValueLayout.JAVA_BYTE, LARGE));
                    assertEquals(TEXT.length, segments.getBytes(text, 7, out));
                }
                assertEquals(TEXT.length, segments.getBytes(text, 7, MemorySegment.NULL));
                MemorySegment none = MemorySegment.ofArray(new byte[0]);
                assertEquals(TEXT.length, segments.getBytes(text, 7, none));
            }
            MemorySegment out = arena.allocate(10);
            invalid(() -> SegmentReads.of(NUMBERS).getBytes(NUMBERS.field("i"), 7, out));
        }
    }

    @Test
    void keysOfEveryTypeAreReadWithoutConversion() {
        Map<KeyType, InMemoryReader> readers =
                Map.of(KeyType.INT64, NUMBERS, KeyType.STRING, TEXTS, KeyType.BYTES, BYTES);
        Map<KeyType, byte[]> keys =
                Map.of(
                        KeyType.INT64, new byte[] {7, 0, 0, 0, 0, 0, 0, 0},
                        KeyType.STRING, "\u00e97".getBytes(StandardCharsets.UTF_8),
                        KeyType.BYTES, new byte[] {-1, 7});
        MemorySegment out = MemorySegment.ofArray(new byte[10]);
        try (Arena arena = Arena.ofConfined()) {
            readers.forEach(
                    (type, reader) -> {
                        SegmentReads segments = SegmentReads.of(reader);
                        FieldHandle text = reader.field("s");
                        MemorySegment heap = MemorySegment.ofArray(keys.get(type));
                        MemorySegment key = arena.allocate(heap.byteSize(), 1).copyFrom(heap);
                        for (MemorySegment one : List.of(heap, key.asReadOnly())) {
                            assertEquals(
                                    TEXT.length, segments.getBytes(text, type, one, out));
                            readByKey(reader, segments, type, one);
                        }
                        for (KeyType other : KeyType.values()) {
                            if (other != type) {
                                invalid(() -> segments.getBytes(text, other, heap, out));
                            }
                        }
                    });
        }
        assertEquals(TEXT.length, read(TEXTS).getBytes(TEXTS.field("s"), "\u00e97", out));
        byte[] key = {-1, 7};
        assertEquals(TEXT.length, read(BYTES).getBytes(BYTES.field("s"), key, out));
        assertEquals(TEXT.length, read(BYTES).getBytes(BYTES.field("s"), Key.of(key), out));
        MemorySegment part = MemorySegment.ofArray(new byte[7]);
        invalid(() -> read(NUMBERS).getBytes(NUMBERS.field("s"), KeyType.INT64, part, out));
        invalid(() -> read(NUMBERS).getBytes(NUMBERS.field("s"), "7", out));
        invalid(() -> read(TEXTS).getBytes(TEXTS.field("s"), 7, out));
        MemorySegment lone = MemorySegment.ofArray(new byte[] {(byte) 0xff});
        invalid(() -> read(TEXTS).getBytes(TEXTS.field("s"), KeyType.STRING, lone, out));
    }

    private static SegmentReads read(Reads reads) {
        return SegmentReads.of(reads);
    }

    private static void readByKey(
            InMemoryReader reader, SegmentReads segments, KeyType type, MemorySegment key) {
        MemorySegment none = MemorySegment.ofArray(new byte[8]);
        assertEquals(1L << 60, segments.getLong(reader.field("i"), type, key, -1));
        assertEquals(-1, segments.getLong(reader.field("i"), type, none, -1));
        assertEquals(-3, segments.getInt(reader.field("n"), type, key, -1));
        assertEquals(true, segments.getBoolean(reader.field("t"), type, key, false));
        assertEquals(true, segments.getBoolean(reader.field("t"), type, none, true));
        long micros = segments.getTimestampMicros(reader.field("at"), type, key, -1);
        assertEquals(9_000_000, micros);
        assertEquals(1.5f, segments.getFloat(reader.field("f"), type, key, -1));
        assertEquals(Math.PI, segments.getDouble(reader.field("d"), type, key, -1));
        assertEquals(Presence.VALUE, segments.presence(reader.field("s"), type, key));
        assertEquals(Presence.ABSENT, segments.presence(reader.field("s"), type, none));
    }

    @Test
    void batchFillsSegments() {
        int bytes = 2 * TEXT.length;
        long[] keys = {7, 9, 8, 7};
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment native_ = arena.allocateFrom(ValueLayout.JAVA_LONG, keys);
            for (int kind = 0; kind < 4; kind++) {
                MemorySegment values = ofEveryKind(arena, bytes).get(kind);
                MemorySegment ends = ofEveryKind(arena, 8 * 4).get(kind);
                MemorySegment statuses = ofEveryKind(arena, 4).get(kind);
                MemorySegment presences = ofEveryKind(arena, 4).get(kind);
                FieldHandle text = NUMBERS.field("s");
                List<SegmentKeys> given =
                        List.of(
                                SegmentKeys.ofNumbers(native_),
                                SegmentKeys.ofNumbers(MemorySegment.ofArray(keys)));
                for (SegmentKeys segmentKeys : given) {
                    assertEquals(4, segmentKeys.size());
                    values.fill((byte) 1);
                    long length =
                            read(NUMBERS)
                                    .getMany(text, segmentKeys, values, ends, statuses, presences);
                    assertEquals(bytes, length);
                    assertEquals(
                            new String(TEXT, StandardCharsets.UTF_8).repeat(2),
                            new String(bytes(values), StandardCharsets.UTF_8));
                    byte found = (byte) KeyStatus.FOUND.ordinal();
                    assertArrayEquals(new byte[] {found, 0, found, found}, bytes(statuses));
                    assertArrayEquals(new byte[] {2, 0, 1, 2}, bytes(presences));
                    long[] expected = {TEXT.length, TEXT.length, TEXT.length, bytes};
                    for (int place = 0; place < 4; place++) {
                        long end = ends.get(ValueLayout.JAVA_LONG_UNALIGNED, 8L * place);
                        assertEquals(expected[place], end);
                    }
                }
                MemorySegment small = values.asSlice(0, bytes - 1);
                small.fill((byte) 1);
                ends.fill((byte) 1);
                Keys packed = Keys.of(keys);
                assertEquals(
                        bytes,
                        read(NUMBERS).getMany(text, packed, small, ends, statuses, presences));
                assertEquals(1, small.get(ValueLayout.JAVA_BYTE, 0));
                assertEquals(1, ends.get(ValueLayout.JAVA_BYTE, 0));
            }
        }
    }

    @Test
    void batchAcceptsTextAndByteKeys() {
        byte[] key = "\u00e97".getBytes(StandardCharsets.UTF_8);
        byte[] twice = Arrays.copyOf(key, 2 * key.length);
        System.arraycopy(key, 0, twice, key.length, key.length);
        MemorySegment ends = MemorySegment.ofArray(new long[] {key.length, 2L * key.length});
        SegmentKeys texts = SegmentKeys.ofStrings(MemorySegment.ofArray(twice), ends);
        MemorySegment out = MemorySegment.ofArray(new byte[64]);
        MemorySegment at = MemorySegment.ofArray(new long[4]);
        MemorySegment codes = MemorySegment.ofArray(new byte[4]);
        assertEquals(
                2 * TEXT.length,
                read(TEXTS).getMany(TEXTS.field("s"), texts, out, at, codes, codes));
        MemorySegment bytes = MemorySegment.ofArray(new byte[] {-1, 7, 8});
        MemorySegment of = MemorySegment.ofArray(new long[] {2, 3});
        SegmentKeys keys = SegmentKeys.ofBytes(bytes, of);
        assertEquals(
                TEXT.length, read(BYTES).getMany(BYTES.field("s"), keys, out, at, codes, codes));
        FieldHandle text = TEXTS.field("s");
        invalid(() -> read(TEXTS).getMany(text, keys, out, at, codes, codes));
        MemorySegment falling = MemorySegment.ofArray(new long[] {3, 2});
        SegmentKeys wrong = SegmentKeys.ofBytes(bytes, falling);
        invalid(() -> read(BYTES).getMany(BYTES.field("s"), wrong, out, at, codes, codes));
        SegmentKeys beyond = SegmentKeys.ofBytes(bytes, MemorySegment.ofArray(new long[] {4}));
        invalid(() -> read(BYTES).getMany(BYTES.field("s"), beyond, out, at, codes, codes));
        MemorySegment part = MemorySegment.ofArray(new byte[7]);
        invalid(() -> SegmentKeys.ofNumbers(part));
        invalid(() -> SegmentKeys.ofStrings(bytes, part));
        SegmentKeys none = SegmentKeys.ofNumbers(MemorySegment.NULL);
        MemorySegment nothing = MemorySegment.NULL;
        assertEquals(
                0,
                read(NUMBERS)
                        .getMany(
                                NUMBERS.field("s"), none, nothing, nothing, nothing, nothing));
    }

    @Test
    void gatherFillsSegmentsOfEveryCellType() {
        List<GatherField> fields = List.of(new GatherField("n", 4), new GatherField("v"));
        SegmentKeys keys = SegmentKeys.ofNumbers(MemorySegment.ofArray(new long[] {7, 9, 8}));
        double[] expected = {-3, 2, 3, 4, 0, 0, 4, 0, 0};
        try (Arena arena = Arena.ofConfined();
                GatherPlan floats = NUMBERS.planGatherFloats(fields, true);
                GatherPlan doubles = NUMBERS.planGatherDoubles(fields, true);
                GatherPlan longs = NUMBERS.planGatherLongs(fields, true)) {
            for (int kind = 0; kind < 4; kind++) {
                MemorySegment statuses = ofEveryKind(arena, 3).get(kind);
                MemorySegment cells = ofEveryKind(arena, 9).get(kind);
                for (GatherPlan plan : List.of(floats, doubles, longs)) {
                    MemorySegment out = ofEveryKind(arena, 80).get(kind);
                    out.fill((byte) 0);
                    read(NUMBERS).gather(plan, keys, out, statuses, cells);
                    double[] found = new double[9];
                    for (int place = 0; place < 9; place++) {
                        found[place] =
                                plan == floats
                                        ? out.get(ValueLayout.JAVA_FLOAT_UNALIGNED, 4L * place)
                                        : plan == doubles
                                                ? out.get(
                                                        ValueLayout.JAVA_DOUBLE_UNALIGNED,
                                                        8L * place)
                                                : out.get(
                                                        ValueLayout.JAVA_LONG_UNALIGNED,
                                                        8L * place);
                    }
                    assertArrayEquals(expected, found);
                    assertArrayEquals(new byte[] {1, 0, 1}, bytes(statuses));
                    assertArrayEquals(new byte[] {2, 2, 2, 0, 0, 0, 0, 0, 0}, bytes(cells));
                }
            }
            float[] array = new float[6];
            MemorySegment ofArray = MemorySegment.ofArray(array);
            read(NUMBERS).gather(floats, Keys.of(Key.of(7), Key.of(7)), ofArray, null, null);
            assertArrayEquals(new float[] {-3, 2, 3, -3, 2, 3}, array);
        }
    }

    @Test
    void unwritableSegmentsAreRefusedBeforeAnythingIsWritten() throws InterruptedException {
        Arena closed = Arena.ofConfined();
        MemorySegment gone = closed.allocate(128, 8);
        closed.close();
        MemorySegment[] others = new MemorySegment[1];
        Thread other = new Thread(() -> others[0] = Arena.ofConfined().allocate(128, 8));
        other.start();
        other.join();
        FieldHandle text = NUMBERS.field("s");
        Keys keys = Keys.of(new long[] {7, 8});
        SegmentReads segments = read(NUMBERS);
        try (Arena arena = Arena.ofConfined();
                GatherPlan plan =
                        NUMBERS.planGatherDoubles(List.of(new GatherField("d")), false)) {
            MemorySegment good = arena.allocate(128, 8);
            List<MemorySegment> unwritable =
                    List.of(
                            gone,
                            others[0],
                            good.asReadOnly(),
                            MemorySegment.ofArray(new byte[128]).asReadOnly());
            for (MemorySegment out : unwritable) {
                invalid(() -> segments.getBytes(text, 7, out));
                invalid(() -> segments.getBytes(text, Key.of(7), out));
                invalid(() -> segments.getMany(text, keys, out, good, good, good));
                invalid(() -> segments.getMany(text, keys, good, out, good, good));
                invalid(() -> segments.getMany(text, keys, good, good, out, good));
                invalid(() -> segments.getMany(text, keys, good, good, good, out));
                invalid(() -> segments.gather(plan, keys, out, good, good));
                invalid(() -> segments.gather(plan, keys, good, out, good));
                invalid(() -> segments.gather(plan, keys, good, good, out));
            }
            MemorySegment one = good.asSlice(0, 1);
            invalid(() -> segments.getMany(text, keys, good, good.asSlice(0, 15), good, good));
            invalid(() -> segments.getMany(text, keys, good, good.asSlice(4), good, good));
            invalid(() -> segments.getMany(text, keys, good, good, one, good));
            invalid(() -> segments.getMany(text, keys, good, good, good, one));
            invalid(() -> segments.gather(plan, keys, good.asSlice(0, 15), good, good));
            invalid(() -> segments.gather(plan, keys, good.asSlice(4), good, good));
            invalid(() -> segments.gather(plan, keys, good, one, good));
            invalid(() -> segments.gather(plan, keys, good, good, one));
            assertArrayEquals(new byte[128], bytes(good));
            for (MemorySegment key : List.of(gone, others[0])) {
                invalid(() -> segments.getBytes(text, KeyType.INT64, key, good));
                invalid(() -> segments.getLong(text, KeyType.INT64, key, 0));
                SegmentKeys unreadable = SegmentKeys.ofNumbers(key);
                invalid(() -> segments.gather(plan, unreadable, good, null, null));
            }
            assertArrayEquals(new byte[128], bytes(good));
        }
    }

    @Test
    void segmentReadsThrowTheErrorsOfTheReader() {
        StoreSpec spec =
                StoreSpec.documents("broken", KeyType.INT64)
                        .partitions(1)
                        .field("i", FieldType.INT64);
        MemorySegment out = MemorySegment.ofArray(new double[] {5});
        MemorySegment statuses = MemorySegment.ofArray(new byte[1]);
        SegmentKeys keys = SegmentKeys.ofNumbers(MemorySegment.ofArray(new long[] {7}));
        InMemoryReader reader = ForebayReader.inMemory(spec, Write.row(Key.of(7)).set("i", 1));
        List<GatherField> fields = List.of(new GatherField("i", 6));
        try (reader;
                GatherPlan plan = reader.planGatherDoubles(fields, true)) {
            reader.simulate(SimulatedState.notReady());
            assertThrows(
                    ForebayException.class,
                    () -> read(reader).gather(plan, keys, out, null, null));
            assertEquals(5, out.get(ValueLayout.JAVA_DOUBLE, 0));
            read(reader).gather(plan, keys, out, statuses, null);
            assertEquals(6, out.get(ValueLayout.JAVA_DOUBLE, 0));
            assertEquals(KeyStatus.UNAVAILABLE.ordinal(), bytes(statuses)[0]);
            reader.close();
            assertThrows(
                    ClosedException.class,
                    () -> read(reader).gather(plan, keys, out, statuses, null));
        }
    }

    @Test
    void closedArenaEndsConcurrentReadsWithATypedError() throws InterruptedException {
        FieldHandle text = NUMBERS.field("s");
        FieldHandle large = NUMBERS.field("b");
        for (int bytes : new int[] {TEXT.length, LARGE}) {
            Arena arena = Arena.ofShared();
            MemorySegment out = arena.allocate(bytes, 8);
            FieldHandle field = bytes == LARGE ? large : text;
            assertEquals(bytes, read(NUMBERS).getBytes(field, 7, out));
            Throwable[] ended = new Throwable[1];
            Thread reading =
                    new Thread(
                            () -> {
                                try {
                                    while (true) {
                                        read(NUMBERS).getBytes(field, 7, out);
                                    }
                                } catch (Throwable end) {
                                    ended[0] = end;
                                }
                            });
            reading.start();
            while (true) {
                try {
                    arena.close();
                    break;
                } catch (IllegalStateException inUse) {
                    // A call holds the arena, which can be closed when the call returns.
                    Thread.onSpinWait();
                }
            }
            reading.join();
            assertEquals(InvalidArgumentException.class, ended[0].getClass());
        }
    }

    @Test
    void segmentReadsAllocateNothing() {
        var threads =
                (com.sun.management.ThreadMXBean)
                        java.lang.management.ManagementFactory.getThreadMXBean();
        SegmentReads numbers = read(NUMBERS);
        SegmentReads texts = read(TEXTS);
        FieldHandle[] fields = {NUMBERS.field("s"), TEXTS.field("s"), NUMBERS.field("i")};
        long reads = 30_000;
        long allocated = Long.MAX_VALUE;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment direct = arena.allocate(64);
            MemorySegment heap = MemorySegment.ofArray(new byte[64]);
            MemorySegment key = arena.allocateFrom(ValueLayout.JAVA_LONG, 7);
            // The first rounds run before all code is compiled; one round that allocates little is
            // enough.
            for (int round = 0; round < 20 && allocated > reads / 10; round++) {
                long before = threads.getCurrentThreadAllocatedBytes();
                long sum = 0;
                for (long read = 0; read < reads; read++) {
                    sum += numbers.getBytes(fields[0], 7, direct);
                    sum += numbers.getBytes(fields[0], 7, heap);
                    sum += numbers.getBytes(fields[0], KeyType.INT64, key, direct);
                    sum += texts.getBytes(fields[1], "\u00e97", direct);
                    sum += numbers.getLong(fields[2], KeyType.INT64, key, 0) >> 60;
                }
                allocated = threads.getCurrentThreadAllocatedBytes() - before;
                assertEquals((4 * TEXT.length + 1) * reads, sum);
            }
        }
        assertTrue(allocated <= reads / 10, allocated + " bytes for " + 5 * reads + " reads");
    }
}
