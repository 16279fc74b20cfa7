/* The keys of a batch, where they lie. */
package io.forebay.segments;

import io.forebay.KeyType;
import io.forebay.internal.Call;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Keys of a batch that lie in memory segments, native or on the heap, one behind another. They are
 * read anew by each call, so their arenas stay open and what they hold stays as it is while one
 * runs. Keys of stores that are partitioned by a field go by {@link io.forebay.Keys}.
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
     * Keys of an int64 store.
     *
     * @param numbers 8 bytes per key, in native order; one may stand twice
     * @return the keys
     * @throws io.forebay.InvalidArgumentException for a part of a number
     */
    public static SegmentKeys ofNumbers(MemorySegment numbers) {
        if (numbers.byteSize() % Long.BYTES != 0) {
            throw Segments.invalid("int64 keys have 8 bytes each");
        }
        long count = numbers.byteSize() / Long.BYTES;
        return new SegmentKeys(KeyType.INT64, numbers, null, count);
    }

    /**
     * Keys of a string store.
     *
     * @param texts the UTF-8 of the keys
     * @param ends 8 bytes per key, in native order: where in {@code texts} it ends and the next one
     *     starts
     * @return the keys
     * @throws io.forebay.InvalidArgumentException for a part of an end
     */
    public static SegmentKeys ofStrings(MemorySegment texts, MemorySegment ends) {
        return new SegmentKeys(KeyType.STRING, texts, ends, countOf(ends));
    }

    /**
     * Keys of a bytes store.
     *
     * @param bytes the bytes of the keys
     * @param ends 8 bytes per key, in native order: where in {@code bytes} it ends and the next one
     *     starts
     * @return the keys
     * @throws io.forebay.InvalidArgumentException for a part of an end
     */
    public static SegmentKeys ofBytes(MemorySegment bytes, MemorySegment ends) {
        return new SegmentKeys(KeyType.BYTES, bytes, ends, countOf(ends));
    }

    private static long countOf(MemorySegment ends) {
        if (ends.byteSize() % Long.BYTES != 0) {
            throw Segments.invalid("the ends of keys have 8 bytes each");
        }
        return ends.byteSize() / Long.BYTES;
    }

    /**
     * The number of keys.
     *
     * @return how many there are
     */
    public long size() {
        return count;
    }

    /** Writes an fb_keys; answers its address. */
    long encode(Call call) {
        long endsAt = ends == null ? 0 : Segments.copiedIn(call, ends);
        long bytesAt = Segments.copiedIn(call, bytes);
        return call.keys(type, count, bytesAt, bytes.byteSize(), endsAt);
    }
}
