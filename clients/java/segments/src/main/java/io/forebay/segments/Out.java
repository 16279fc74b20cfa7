/* Where a plain call writes: the caller's segment, or memory of the call in its place. */
package io.forebay.segments;

import io.forebay.internal.Call;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A segment that a plain call fills. Foreign functions hold on to a native one while they run; for
 * one on the heap, which may move, the call's own memory is filled, and copied when it is good.
 */
final class Out {
    private final MemorySegment segment;
    private final MemorySegment target;

    private Out(MemorySegment segment, MemorySegment target) {
        this.segment = segment;
        this.target = target;
    }

    /** A place for so many bytes of a segment; of nothing for null. */
    static Out of(Call call, @Nullable MemorySegment segment, long bytes) {
        if (segment == null) {
            return new Out(MemorySegment.NULL, MemorySegment.NULL);
        }
        boolean direct = segment.isNative();
        return new Out(segment, direct ? segment : MemorySegment.ofAddress(call.room(bytes)));
    }

    /** What the call is given. */
    MemorySegment target() {
        return target;
    }

    /** Brings what the call has written to the caller. */
    void take(long bytes) {
        if (target != segment) {
            Segments.copyOut(target.address(), segment, bytes);
        }
    }
}
