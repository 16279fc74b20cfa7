/* Reads into arrays and buffers of the caller, and their allocations. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;

class BufferReadsTest extends Behaviours {
    private static final int LARGE = 100_000;
    private static final Key ONE = Key.of("one");
    private static final Key NULLS = Key.of("nulls");
    private static final Key NONE = Key.of("none");
    private static final InMemoryReader READER = reader();
    private static final FieldHandle TEXT = READER.field("s");
    private static final FieldHandle BYTES = READER.field("b");

    private static InMemoryReader reader() {
        StoreSpec spec =
                StoreSpec.documents("buffers", KeyType.STRING)
                        .partitions(2)
                        .field("s", FieldType.STRING)
                        .field("b", FieldType.BYTES)
                        .field("i", FieldType.INT64)
                        .field("f", FieldType.FLOAT32)
                        .field("v", FieldType.vectorF32(2));
        byte[] large = new byte[LARGE];
        Arrays.fill(large, (byte) 7);
        return ForebayReader.inMemory(
                spec,
                Write.row(ONE)
                        .set("s", "h\u00e9llo")
                        .set("b", large)
                        .set("i", (1L << 53) + 1)
                        .set("f", 1.5f)
                        .set("v", new float[] {2, 3}),
                Write.row(NULLS).setNull("s").setNull("i"));
    }

    @AfterAll
    static void close() {
        READER.close();
    }

    @Test
    void arrayReceivesTheValueOrTheSizeNeeded() {
        byte[] text = "h\u00e9llo".getBytes(StandardCharsets.UTF_8);
        byte[] out = new byte[10];
        assertEquals(text.length, READER.getBytes(TEXT, ONE, out));
        assertArrayEquals(text, Arrays.copyOf(out, text.length));
        assertEquals(0, out[text.length]);
        byte[] small = new byte[text.length - 1];
        assertEquals(text.length, READER.getBytes(TEXT, ONE, small));
        assertArrayEquals(new byte[small.length], small);
        assertEquals(text.length, READER.getBytes(TEXT, ONE, new byte[0]));
        assertEquals(Reads.ABSENT, READER.getBytes(TEXT, NONE, out));
        assertEquals(Reads.ABSENT, READER.getBytes(BYTES, NULLS, out));
        assertEquals(Reads.NULL, READER.getBytes(TEXT, NULLS, out));
        assertEquals(LARGE, READER.getBytes(BYTES, ONE, out));
        byte[] large = new byte[LARGE + 1];
        assertEquals(LARGE, READER.getBytes(BYTES, ONE, large));
        assertEquals(7, large[LARGE - 1]);
        assertEquals(0, large[LARGE]);
        invalid(() -> READER.getBytes(READER.field("i"), ONE, out));
    }

    @Test
    void valueIsWholeAfterValuesOfAnySize() {
        StoreSpec spec = StoreSpec.keyValue("sizes", KeyType.INT64).partitions(2);
        try (InMemoryReader reader = ForebayReader.inMemory(spec)) {
            int[] sizes = {0, 50, 49, 51, 0, 4096, 50, 1, 4097, 1024, 4097, 50, LARGE, 3, 70_000};
            FieldHandle value = reader.field("value", FieldType.BYTES);
            long[] keys = new long[sizes.length];
            byte[][] values = new byte[sizes.length][];
            for (int place = 0; place < sizes.length; place++) {
                keys[place] = place;
                values[place] = new byte[sizes[place]];
                Arrays.fill(values[place], (byte) (place + 1));
                Batch batch = reader.asStore().batch();
                batch.add(reader.asStore().putValue(Key.of(place), values[place]));
                batch.send().requireComplete();
            }
            for (int time = 0; time < 2; time++) {
                for (int place = 0; place < sizes.length; place++) {
                    assertArrayEquals(values[place], reader.getBytes(value, keys[place]));
                    assertArrayEquals(values[place], reader.getBytes(value, Key.of(keys[place])));
                    assertNull(reader.getBytes(value, -1L - place));
                }
                for (int end = 1; end <= sizes.length; end++) {
                    byte[][] wanted = Arrays.copyOf(values, end);
                    long[] few = Arrays.copyOf(keys, end);
                    assertArrayEquals(wanted, reader.getMany(value, few).toArrays());
                    assertArrayEquals(wanted, reader.getMany(value, Keys.of(few)).toArrays());
                }
                long[] first = {1, -1, 2};
                PackedValues some = reader.getMany(value, first);
                assertEquals(KeyStatus.ABSENT, some.status(1));
                assertArrayEquals(new byte[][] {values[1], null, values[2]}, some.toArrays());
            }
        }
    }

    @Test
    void bufferReceivesTheValueAtItsPosition() {
        for (ByteBuffer out :
                List.of(ByteBuffer.allocateDirect(12), ByteBuffer.allocate(12))) {
            ByteBuffer at = out.position(2).slice().position(1);
            assertEquals(6, READER.getBytes(TEXT, ONE, at));
            assertEquals(1, at.position());
            byte[] found = new byte[6];
            out.get(3, found);
            assertEquals("h\u00e9llo", new String(found, StandardCharsets.UTF_8));
            assertEquals(0, out.get(2));
            assertEquals(0, out.get(9));
            assertEquals(6, READER.getBytes(TEXT, ONE, at.limit(6)));
            assertEquals(Reads.NULL, READER.getBytes(TEXT, NULLS, at));
            invalid(() -> READER.getBytes(TEXT, ONE, at.asReadOnlyBuffer()));
        }
    }

    @Test
    void readsIntoACallersBufferAllocateNothing() {
        var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        byte[] array = new byte[64];
        ByteBuffer direct = ByteBuffer.allocateDirect(64);
        FieldHandle number = READER.field("i");
        long reads = 100_000;
        // The first rounds run before all code is compiled; one round that allocates nothing is
        // enough.
        long allocated = Long.MAX_VALUE;
        for (int round = 0; round < 20 && allocated > reads / 10; round++) {
            long before = threads.getCurrentThreadAllocatedBytes();
            long sum = 0;
            for (int read = 0; read < reads; read++) {
                sum += READER.getBytes(TEXT, ONE, array);
                sum += READER.getBytes(TEXT, ONE, direct);
                sum += READER.getLong(number, ONE, 0) & 1;
            }
            allocated = threads.getCurrentThreadAllocatedBytes() - before;
            assertEquals(13 * reads, sum);
        }
        assertTrue(allocated <= reads / 10, allocated + " bytes for " + 3 * reads + " reads");
    }

    @Test
    void gathersIntoACallersBufferAllocateNothingPerCell() {
        var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        Key[] many = new Key[100];
        Arrays.fill(many, ONE);
        Keys keys = Keys.of(many);
        ByteBuffer out = ByteBuffer.allocateDirect(4 * 3 * 100).order(ByteOrder.nativeOrder());
        byte[] statuses = new byte[100];
        try (GatherPlan plan = READER.planGatherFloats(fields("f", "v"), false)) {
            long gathers = 2_000;
            long allocated = Long.MAX_VALUE;
            for (int round = 0; round < 20 && allocated > 300 * gathers; round++) {
                long before = threads.getCurrentThreadAllocatedBytes();
                for (int gather = 0; gather < gathers; gather++) {
                    READER.gather(plan, keys, out, statuses, null);
                }
                allocated = threads.getCurrentThreadAllocatedBytes() - before;
            }
            // The call itself allocates a few objects; one byte per cell would be too many.
            assertTrue(allocated <= 300 * gathers, allocated + " bytes for " + gathers);
        }
    }

    private static List<GatherField> fields(String... names) {
        return Arrays.stream(names).map(GatherField::new).toList();
    }

    @Test
    void matrixOfLongsPreservesEveryInteger() {
        try (GatherPlan plan = READER.planGatherLongs(fields("i"), false)) {
            long[] values = new long[3];
            byte[] cells = new byte[3];
            READER.gather(plan, Keys.of(ONE, NONE, NULLS), values, null, cells);
            assertArrayEquals(new long[] {(1L << 53) + 1, 0, 0}, values);
            assertArrayEquals(new byte[] {2, 0, 1}, cells);
            invalid(() -> READER.gather(plan, Keys.of(ONE), new double[1], null, null));
            invalid(() -> READER.gather(plan, Keys.of(ONE), new long[0], null, null));
        }
        invalid(() -> READER.planGatherLongs(fields("f"), false));
        try (GatherPlan plan = READER.planGatherLongs(fields("f", "v"), true)) {
            long[] values = new long[3];
            READER.gather(plan, Keys.of(ONE), values, null, null);
            assertArrayEquals(new long[] {1, 2, 3}, values);
        }
    }

    @Test
    void directBufferIsFilledInPlaceAndOtherBuffersAreRefused() {
        Keys keys = Keys.of(ONE, NONE);
        ByteOrder order = ByteOrder.nativeOrder();
        try (GatherPlan plan = READER.planGatherFloats(fields("f", "v"), false)) {
            ByteBuffer out = ByteBuffer.allocateDirect(40).order(order);
            byte[] statuses = new byte[2];
            READER.gather(plan, keys, out.position(8), statuses, null);
            assertEquals(8, out.position());
            float[] found = new float[10];
            out.position(0).asFloatBuffer().get(found);
            assertArrayEquals(new float[] {0, 0, 1.5f, 2, 3, 0, 0, 0, 0, 0}, found);
            assertArrayEquals(new byte[] {1, 0}, statuses);
            ByteOrder other =
                    order == ByteOrder.BIG_ENDIAN
                            ? ByteOrder.LITTLE_ENDIAN
                            : ByteOrder.BIG_ENDIAN;
            List<ByteBuffer> refused =
                    List.of(
                            ByteBuffer.allocate(40).order(order),
                            out.duplicate().order(other),
                            out.asReadOnlyBuffer().order(order),
                            out.duplicate().order(order).position(2),
                            out.duplicate().order(order).limit(23));
            for (ByteBuffer buffer : refused) {
                invalid(() -> READER.gather(plan, keys, buffer, statuses, null));
            }
            invalid(() -> READER.gather(plan, keys, out, new byte[1], null));
            float[] after = new float[10];
            out.position(0).asFloatBuffer().get(after);
            assertArrayEquals(found, after, "nothing was written by what was refused");
        }
    }

    @Test
    void batchIsPackedAndConvertsToArrays() {
        PackedValues values = READER.getMany(TEXT, Keys.of(ONE, NONE, NULLS, ONE));
        byte[][] arrays = values.toArrays();
        assertEquals(4, arrays.length);
        assertArrayEquals("h\u00e9llo".getBytes(StandardCharsets.UTF_8), arrays[3]);
        assertNull(arrays[1]);
        assertNull(arrays[2]);
    }

    @Test
    void nativeInfoNamesTheCrossingAndItsReason() {
        NativeInfo info = Forebay.nativeInfo();
        boolean isJni = Native.CALLS.getClass().getSimpleName().equals("JniCalls");
        assertEquals(isJni ? "jni" : "foreign functions", info.crossing());
        assertTrue(info.reason().contains("foreign") || info.reason().contains("older than 22"));
        assertEquals(NativeCalls.VERSION, info.abiVersion());
        assertTrue(info.library().contains("libforebay_ffi.so"), info.library());
        assertEquals("linux-amd64", info.platform());
    }
}
