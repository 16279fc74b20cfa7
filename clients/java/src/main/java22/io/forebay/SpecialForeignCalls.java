/* The foreign calls that differ from the plain form, and the link to the library's functions. */
package io.forebay;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * The part of {@link ForeignCalls} that is written by hand. The functions are the entry points of
 * {@code clients/c/src/jni.rs}, called as plain functions with null for environment and class.
 *
 * <p>Short reads that wait for nothing are critical calls: the thread does not leave Java for them,
 * which saves most of the cost of a native call, and a garbage collection waits until they return.
 * Critical calls take about a microsecond, never block, not even for the disk of a spilled
 * document, and make no upcalls. If a critical call does not return a result, a plain call repeats
 * it, which waits for the disk and reports errors. All other calls are plain calls.
 */
abstract class SpecialForeignCalls implements NativeCalls {
    /** Largest copy of a critical call; a plain call copies more bytes than this. */
    private static final long CRITICAL_BYTES_MAX = 64 * 1024;

    /** Address of an fb_read_options of FB_WAIT_NO_DISK, for critical calls. */
    private static final long NO_DISK = noDisk();

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = SymbolLookup.loaderLookup();

    private static final MethodHandle VERSION_OF = handle("version", 0);
    private static final MethodHandle FUNCTION = function();
    private static final MethodHandle READER_GET_SCALAR = handle("readerGetScalar", 7);
    private static final MethodHandle READER_GET_BYTES = handle("readerGetBytes", 9);
    private static final MethodHandle READER_PRESENCE = handle("readerPresence", 6);

    private static final MethodHandle READER_GET_SCALAR_CRITICAL =
            handle("readerGetScalar", 7, Linker.Option.critical(false));
    private static final MethodHandle READER_GET_BYTES_CRITICAL =
            handle("readerGetBytes", 9, Linker.Option.critical(false));
    private static final MethodHandle READER_PRESENCE_CRITICAL =
            handle("readerPresence", 6, Linker.Option.critical(false));

    private static long noDisk() {
        MemorySegment read =
                Arena.global().allocate(HeaderConstants.READ_OPTIONS_STRUCT_BYTES, Long.BYTES);
        read.set(ValueLayout.JAVA_INT, 0, HeaderConstants.WAIT_NO_DISK);
        return read.address();
    }

    /**
     * Returns the handle of a function of environment, class and {@code numbers} further numbers.
     */
    static MethodHandle handle(String name, int numbers, Linker.Option... options) {
        ValueLayout[] arguments = new ValueLayout[2 + numbers];
        Arrays.fill(arguments, ValueLayout.JAVA_LONG);
        MemorySegment function = LIBRARY.find("Java_io_forebay_JniCalls_" + name).orElseThrow();
        FunctionDescriptor shape = FunctionDescriptor.of(ValueLayout.JAVA_INT, arguments);
        return LINKER.downcallHandle(function, shape, options);
    }

    private static MethodHandle function() {
        MemorySegment function = LIBRARY.find("Java_io_forebay_JniCalls_function").orElseThrow();
        ValueLayout number = ValueLayout.JAVA_LONG;
        return LINKER.downcallHandle(
                function, FunctionDescriptor.of(number, number, number, number));
    }

    @Override
    public int version() {
        try {
            return (int) VERSION_OF.invokeExact(0L, 0L);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public HeapCalls heap() {
        return new ForeignHeapCalls();
    }

    @Override
    public long addressOf(ByteBuffer buffer) {
        return MemorySegment.ofBuffer(buffer).address() - buffer.position();
    }

    @Override
    public byte @Nullable [] bytesAt(long address, int length) {
        return MemorySegment.ofAddress(address).reinterpret(length).toArray(ValueLayout.JAVA_BYTE);
    }

    @Override
    public long function(long number) {
        try {
            return (long) FUNCTION.invokeExact(0L, 0L, number);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGetScalar(
            long reader, long field, long wanted, long key, long read, long scalar, long error) {
        try {
            if (read == 0) {
                int status =
                        (int) READER_GET_SCALAR_CRITICAL.invokeExact(
                                0L, 0L, reader, field, wanted, key, NO_DISK, scalar, 0L);
                if (status == 0) {
                    return status;
                }
            }
            return (int) READER_GET_SCALAR.invokeExact(
                    0L, 0L, reader, field, wanted, key, read, scalar, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGetBytes(
            long reader,
            long field,
            long key,
            long read,
            long buffer,
            long capacity,
            long length,
            long presence,
            long error) {
        try {
            if (read == 0 && capacity <= CRITICAL_BYTES_MAX) {
                int status =
                        (int) READER_GET_BYTES_CRITICAL.invokeExact(
                                0L, 0L, reader, field, key, NO_DISK, buffer, capacity, length,
                                presence, 0L);
                if (status == 0) {
                    return status;
                }
            }
            return (int) READER_GET_BYTES.invokeExact(
                    0L, 0L, reader, field, key, read, buffer, capacity, length, presence, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerPresence(
            long reader, long field, long key, long read, long presence, long error) {
        try {
            if (read == 0) {
                int status =
                        (int) READER_PRESENCE_CRITICAL.invokeExact(
                                0L, 0L, reader, field, key, NO_DISK, presence, 0L);
                if (status == 0) {
                    return status;
                }
            }
            return (int) READER_PRESENCE.invokeExact(
                    0L, 0L, reader, field, key, read, presence, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }
}
