/* The keys of a batch in the caller's memory. */
package io.forebay.segments;

import io.forebay.KeyType;
import io.forebay.internal.Call;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Keys of a batch that are in memory segments, native or on the heap, concatenated. Each call reads
 * them again, so their arenas stay open and their contents stay unchanged while a call runs. Use
 * {@link io.forebay.Keys} for keys of stores that are partitioned by a field.
 */
public final class SegmentKeys {
    private final KeyType type;
    private final MemorySegment bytes;
    private final @Nullable MemorySegment ends;
    private final long count;

    private SegmentKeys(
            KeyType type, MemorySegment bytes, @Nullable MemorySegment ends, long count) {
        this.type = type;
        this.bytes = bytes;
        this.ends = ends;
        this.count = count;
    }

    /**
     * Wraps keys of an int64 store.
     *
     * @param numbers 8 bytes per key, in native order; duplicates are allowed
     * @return the keys
     * @throws io.forebay.InvalidArgumentException for an incomplete number
     */
    public static SegmentKeys ofNumbers(MemorySegment numbers) {
        if (numbers.byteSize() % Long.BYTES != 0) {
            throw Segments.invalid("the int64 keys do not have 8 bytes each");
        }
        long count = numbers.byteSize() / Long.BYTES;
        return new SegmentKeys(KeyType.INT64, numbers, null, count);
    }

    /**
     * Wraps keys of a string store.
     *
     * @param texts the UTF-8 of the keys
     * @param ends 8 bytes per key, in native order: the offset in {@code texts} at which the key
     *     ends and the next one starts
     * @return the keys
     * @throws io.forebay.InvalidArgumentException for an incomplete end
     */
    public static SegmentKeys ofStrings(MemorySegment texts, MemorySegment ends) {
        return new SegmentKeys(KeyType.STRING, texts, ends, countOf(ends));
    }

    /**
     * Wraps keys of a bytes store.
     *
     * @param bytes the bytes of the keys
     * @param ends 8 bytes per key, in native order: the offset in {@code bytes} at which the key
     *     ends and the next one starts
     * @return the keys
     * @throws io.forebay.InvalidArgumentException for an incomplete end
     */
    public static SegmentKeys ofBytes(MemorySegment bytes, MemorySegment ends) {
        return new SegmentKeys(KeyType.BYTES, bytes, ends, countOf(ends));
    }

    private static long countOf(MemorySegment ends) {
        if (ends.byteSize() % Long.BYTES != 0) {
            throw Segments.invalid("the ends of the keys do not have 8 bytes each");
        }
        return ends.byteSize() / Long.BYTES;
    }

    /**
     * Returns the number of keys.
     *
     * @return the number of keys
     */
    public long size() {
        return count;
    }

    /** Writes an fb_keys; returns its address. */
    long encode(Call call) {
        long endsAt = ends == null ? 0 : Segments.copiedIn(call, ends);
        long bytesAt = Segments.copiedIn(call, bytes);
        return call.keys(type, count, bytesAt, bytes.byteSize(), endsAt);
    }
}
