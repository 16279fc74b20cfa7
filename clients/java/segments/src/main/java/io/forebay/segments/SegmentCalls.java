/* The functions of the native core that write to the caller's segments. */
package io.forebay.segments;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.forebay.ForebayException;
import io.forebay.internal.Calls;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * Functions of {@code forebay.h}. Memory of the call is passed as raw addresses; memory of the
 * caller is passed as segments, whose arenas cannot be closed until the function returns.
 */
final class SegmentCalls {
    private static final int READ_BYTES = 40;
    private static final int WAIT_NO_DISK = 3;

    /** An fb_read_options of FB_WAIT_NO_DISK, for critical calls. */
    private static final long NO_DISK = noDisk();

    private static final MethodHandle GET_BYTES = getBytes();
    /**
     * Short reads that never wait, not even for the disk of a spilled document; the thread stays in
     * Java, so the heap does not move.
     */
    private static final MethodHandle GET_BYTES_CRITICAL =
            getBytes(Linker.Option.critical(true));
    private static final MethodHandle GET_MANY =
            handle(
                    Calls.GET_MANY,
                    JAVA_LONG,
                    JAVA_LONG,
                    JAVA_LONG,
                    JAVA_LONG,
                    ADDRESS,
                    JAVA_LONG,
                    ADDRESS,
                    ADDRESS,
                    ADDRESS,
                    JAVA_LONG,
                    JAVA_LONG);
    private static final MethodHandle GATHER_FLOAT = gather(0);
    private static final MethodHandle GATHER_DOUBLE = gather(1);
    private static final MethodHandle GATHER_LONG = gather(2);

    private SegmentCalls() {}

    private static long noDisk() {
        MemorySegment read = Arena.global().allocate(READ_BYTES, Long.BYTES);
        read.set(JAVA_INT, 0, WAIT_NO_DISK);
        return read.address();
    }

    private static MethodHandle getBytes(Linker.Option... options) {
        MemoryLayout[] arguments = {
            JAVA_LONG,
            JAVA_LONG,
            JAVA_LONG,
            JAVA_LONG,
            ADDRESS,
            JAVA_LONG,
            JAVA_LONG,
            JAVA_LONG,
            JAVA_LONG,
        };
        return Linker.nativeLinker()
                .downcallHandle(
                        function(Calls.GET_BYTES),
                        FunctionDescriptor.of(JAVA_INT, arguments),
                        options);
    }

    private static MethodHandle gather(int cell) {
        return handle(
                Calls.GATHER + cell,
                JAVA_LONG,
                JAVA_LONG,
                JAVA_LONG,
                JAVA_LONG,
                ADDRESS,
                JAVA_LONG,
                ADDRESS,
                ADDRESS,
                JAVA_LONG);
    }

    private static MethodHandle handle(int number, MemoryLayout... arguments) {
        FunctionDescriptor shape = FunctionDescriptor.of(JAVA_INT, arguments);
        return Linker.nativeLinker().downcallHandle(function(number), shape);
    }

    private static MemorySegment function(int number) {
        return MemorySegment.ofAddress(Calls.get().function(number));
    }

    /**
     * Works like {@link #getBytes}, for a segment of any kind, by a call that never leaves Java. If
     * the call returns no result, the caller repeats it through the other method, which reports the
     * error.
     */
    static int getBytesCritical(
            long reader, long field, long key, MemorySegment buffer, long length, long presence) {
        try {
            return (int) GET_BYTES_CRITICAL.invokeExact(
                    reader, field, key, NO_DISK, buffer, buffer.byteSize(), length, presence, 0L);
        } catch (Throwable failure) {
            throw failed(failure);
        }
    }

    static int getBytes(
            long reader,
            long field,
            long key,
            long read,
            MemorySegment buffer,
            long capacity,
            long length,
            long presence,
            long error) {
        try {
            return (int) GET_BYTES.invokeExact(
                    reader, field, key, read, buffer, capacity, length, presence, error);
        } catch (Throwable failure) {
            throw failed(failure);
        }
    }

    static int getMany(
            long reader,
            long field,
            long keys,
            long read,
            MemorySegment values,
            long capacity,
            MemorySegment ends,
            MemorySegment statuses,
            MemorySegment presences,
            long length,
            long error) {
        try {
            return (int) GET_MANY.invokeExact(
                    reader, field, keys, read, values, capacity, ends, statuses, presences, length,
                    error);
        } catch (Throwable failure) {
            throw failed(failure);
        }
    }

    static int gather(
            int cell,
            long reader,
            long plan,
            long keys,
            long read,
            MemorySegment values,
            long capacity,
            MemorySegment statuses,
            MemorySegment cells,
            long error) {
        try {
            return switch (cell) {
                case 0 ->
                        (int) GATHER_FLOAT.invokeExact(
                                reader, plan, keys, read, values, capacity, statuses, cells, error);
                case 1 ->
                        (int) GATHER_DOUBLE.invokeExact(
                                reader, plan, keys, read, values, capacity, statuses, cells, error);
                default ->
                        (int) GATHER_LONG.invokeExact(
                                reader, plan, keys, read, values, capacity, statuses, cells, error);
            };
        } catch (Throwable failure) {
            throw failed(failure);
        }
    }

    private static ForebayException failed(Throwable failure) {
        return failure instanceof IllegalStateException closed
                ? Segments.gone(closed)
                : Calls.get().broken(failure);
    }
}
