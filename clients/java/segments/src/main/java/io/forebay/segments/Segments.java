/* Checks of the caller's segments, and copies between them and the memory of a call. */
package io.forebay.segments;

import io.forebay.ForebayException;
import io.forebay.internal.Call;
import io.forebay.internal.Calls;
import java.lang.foreign.MemorySegment;

/** Memory segments of the caller's. */
final class Segments {
    /** All native memory; only the call's own memory is copied from and to. */
    private static final MemorySegment MEMORY = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private Segments() {}

    static ForebayException invalid(String message) {
        return Calls.get().invalid(message);
    }

    /** Returns the exception for an arena that is closed while a call begins. */
    static ForebayException gone(RuntimeException cause) {
        ForebayException gone = invalid("an arena was closed; keep it open while reads use it");
        gone.initCause(cause);
        return gone;
    }

    /** Refuses a segment that this thread cannot read. */
    static void requireReadable(MemorySegment segment) {
        if (!segment.scope().isAlive()) {
            throw invalid("the segment's arena is closed; give a segment of one that is open");
        }
        if (!segment.isAccessibleBy(Thread.currentThread())) {
            throw invalid("the segment is another thread's; allocate it in a shared arena");
        }
    }

    /** Refuses a segment that this thread cannot write {@code bytes} bytes to. */
    static void requireWritable(MemorySegment segment, long bytes) {
        if (segment.isReadOnly()) {
            throw invalid("the segment is read-only; give one to write to");
        }
        requireReadable(segment);
        if (segment.byteSize() < bytes) {
            throw invalid(
                    "the segment has " + segment.byteSize() + " bytes; give one of " + bytes);
        }
    }

    /** Refuses a native segment that is not aligned for items of {@code bytes} bytes. */
    static void requireAligned(MemorySegment segment, long bytes) {
        if (segment.isNative() && segment.address() % bytes != 0) {
            throw invalid("align the segment to " + bytes + " bytes");
        }
    }

    /** Copies a segment into the memory of a call; returns the address of the copy. */
    static long copiedIn(Call call, MemorySegment from) {
        requireReadable(from);
        long at = call.room(from.byteSize());
        try {
            MemorySegment.copy(from, 0, MEMORY, at, from.byteSize());
        } catch (IllegalStateException closed) {
            throw gone(closed);
        }
        return at;
    }

    /** Copies memory of a call into a segment. */
    static void copyOut(long from, MemorySegment to, long bytes) {
        try {
            MemorySegment.copy(MEMORY, from, to, 0, bytes);
        } catch (IllegalStateException closed) {
            throw gone(closed);
        }
    }
}
