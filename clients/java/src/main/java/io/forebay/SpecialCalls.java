/* Calls of the native core that are no functions of forebay.h. */
package io.forebay;

import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/** The native core's version, and access to memory and functions by their addresses. */
interface SpecialCalls {
    int version();

    /** Returns reads between arrays on the heap; null if this implementation has none. */
    default @Nullable HeapCalls heap() {
        return null;
    }

    /** Returns the address of index 0 of a direct buffer. */
    long addressOf(ByteBuffer buffer);

    byte @Nullable [] bytesAt(long address, int length);

    /** Returns the address of a function that writes to the caller's memory; 0 for none. */
    long function(long number);
}
