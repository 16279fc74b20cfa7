/* Output of plain calls: the caller's segment, or memory of the call instead. */
package io.forebay.segments;

import io.forebay.internal.Call;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A segment that a plain call fills. Foreign functions keep a native segment alive while they run.
 * For a segment on the heap, which may move, the call fills its own memory, which is copied once
 * the call has succeeded.
 */
final class OutSegment {
    private final MemorySegment segment;
    private final MemorySegment target;

    private OutSegment(MemorySegment segment, MemorySegment target) {
        this.segment = segment;
        this.target = target;
    }

    /** Returns the output for {@code bytes} bytes of a segment; of nothing for null. */
    static OutSegment of(Call call, @Nullable MemorySegment segment, long bytes) {
        if (segment == null) {
            return new OutSegment(MemorySegment.NULL, MemorySegment.NULL);
        }
        boolean direct = segment.isNative();
        MemorySegment target = direct ? segment : MemorySegment.ofAddress(call.room(bytes));
        return new OutSegment(segment, target);
    }

    /** Returns the target of the call. */
    MemorySegment target() {
        return target;
    }

    /** Copies what the call has written to the caller. */
    void take(long bytes) {
        if (target != segment) {
            Segments.copyOut(target.address(), segment, bytes);
        }
    }
}
