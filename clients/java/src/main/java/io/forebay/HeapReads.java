/* Local reads of strings and bytes, directly between arrays on the heap. */
package io.forebay;

import io.forebay.HeapCalls.ManyValues;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * The reads that {@link NativeReads} tries first, if this Java calls the native core by foreign
 * functions. A garbage collection waits for these reads, so they are bounded: by the keys of a
 * batch, and by the copied bytes. {@link #ELSEWHERE} directs all other reads to off-heap memory,
 * failures included: the read there reports the error.
 */
final class HeapReads {
    /** Marks a result that must be read through off-heap memory. */
    static final byte[] ELSEWHERE = new byte[0];

    /** Largest value that is read into an array of its field's usual size. */
    static final int LIKELY_BYTES_MAX = 4096;

    private static final int COPIED_BYTES_MAX = 64 * 1024;
    private static final int BATCH_KEYS_MAX = 1024;
    private static final int BATCH_BYTES_MAX = 512 * 1024;
    private static final int TRIES = 2;

    private static final @Nullable HeapCalls HEAP = Native.CALLS.heap();

    private HeapReads() {}

    /** Returns a value in a new array, null if absent or null; or {@link #ELSEWHERE}. */
    static byte @Nullable [] copied(
            NativeReads reads, FieldHandle field, KeyType type, byte[] key) {
        int likely = field.likelyBytes();
        if (HEAP == null || likely < 0 || !reads.read.isLocal()) {
            return ELSEWHERE;
        }
        byte[] out = new byte[likely];
        return fitted(field, out, HEAP.get(reads.reader, field.id(), type.code(), key, out));
    }

    /** Works like the method above, by an int64 key. */
    static byte @Nullable [] copied(NativeReads reads, FieldHandle field, long key) {
        int likely = field.likelyBytes();
        if (HEAP == null || likely < 0 || !reads.read.isLocal()) {
            return ELSEWHERE;
        }
        byte[] out = new byte[likely];
        return fitted(field, out, HEAP.get(reads.reader, field.id(), key, out));
    }

    private static byte @Nullable [] fitted(FieldHandle field, byte[] out, long length) {
        if (length == out.length) {
            return out;
        }
        if (length < 0) {
            return length == HeapCalls.FAILED ? ELSEWHERE : null;
        }
        field.saw(length);
        return length < out.length ? Arrays.copyOf(out, (int) length) : ELSEWHERE;
    }

    /** Copies a value to an array; returns the same as {@link HeapCalls#get}. */
    static long copiedInto(
            NativeReads reads, FieldHandle field, KeyType type, byte[] key, byte[] out) {
        if (HEAP == null || out.length > COPIED_BYTES_MAX || !reads.read.isLocal()) {
            return HeapCalls.FAILED;
        }
        return inside(HEAP.get(reads.reader, field.id(), type.code(), key, out));
    }

    /** Works like the method above, by an int64 key. */
    static long copiedInto(NativeReads reads, FieldHandle field, long key, byte[] out) {
        if (HEAP == null || out.length > COPIED_BYTES_MAX || !reads.read.isLocal()) {
            return HeapCalls.FAILED;
        }
        return inside(HEAP.get(reads.reader, field.id(), key, out));
    }

    /** Lengths that no array has are refused by the other path. */
    private static long inside(long length) {
        return length > Integer.MAX_VALUE ? HeapCalls.FAILED : length;
    }

    /** Returns the values of many keys; null if they must be read through off-heap memory. */
    static @Nullable PackedValues packed(NativeReads reads, FieldHandle field, BatchKeys keys) {
        int count = keys.size();
        long capacity = field.likelyBytes(count);
        // Before the first batch, the size of the values is unknown.
        if (HEAP == null || capacity == 0 || count > BATCH_KEYS_MAX || !reads.read.isLocal()) {
            return null;
        }
        long[] ends = new long[count];
        byte[] statuses = new byte[count];
        byte[] presences = new byte[count];
        for (int time = 0; time < TRIES && capacity <= BATCH_BYTES_MAX; time++) {
            byte[] values = new byte[(int) capacity];
            ManyValues into = new ManyValues(values, ends, statuses, presences);
            long length = keys.read(HEAP, reads.reader, field.id(), into);
            if (length < 0) {
                return null;
            }
            field.saw(length, count);
            if (length <= capacity) {
                boolean wide = capacity - length > length / 4;
                byte[] fit = wide ? Arrays.copyOf(values, (int) length) : values;
                return new PackedValues(fit, ends, statuses, presences);
            }
            capacity = length;
        }
        return null;
    }
}
