/* Reads between arrays on the heap, for JDK 22 and later; only such a JDK compiles this file. */
package io.forebay;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/** {@link HeapCalls} by critical calls: the thread stays in Java, so the heap does not move. */
final class ForeignHeapCalls implements HeapCalls {
    private static final MethodHandle GET =
            handle("get", JAVA_LONG, JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
    private static final MethodHandle GET_BY_NUMBER =
            handle("getByNumber", JAVA_LONG, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG);
    private static final MethodHandle GET_MANY =
            handle(
                    "getMany",
                    JAVA_LONG,
                    JAVA_LONG,
                    JAVA_INT,
                    JAVA_LONG,
                    ADDRESS,
                    JAVA_LONG,
                    ADDRESS,
                    ADDRESS,
                    JAVA_LONG,
                    ADDRESS,
                    ADDRESS,
                    ADDRESS);

    private static MethodHandle handle(String name, MemoryLayout... arguments) {
        String symbol = "Java_io_forebay_HeapCalls_" + name;
        return Linker.nativeLinker()
                .downcallHandle(
                        SymbolLookup.loaderLookup().find(symbol).orElseThrow(),
                        FunctionDescriptor.of(JAVA_LONG, arguments),
                        Linker.Option.critical(true));
    }

    @Override
    public long get(long reader, long field, int keyType, byte[] key, byte[] out) {
        try {
            return (long) GET.invokeExact(
                    reader,
                    field,
                    keyType,
                    MemorySegment.ofArray(key),
                    (long) key.length,
                    MemorySegment.ofArray(out),
                    (long) out.length);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public long get(long reader, long field, long key, byte[] out) {
        try {
            return (long) GET_BY_NUMBER.invokeExact(
                    reader, field, key, MemorySegment.ofArray(out), (long) out.length);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public long getMany(
            long reader, long field, int keyType, byte[] keys, long[] ends, ManyValues into) {
        MemorySegment given = MemorySegment.ofArray(keys);
        return getMany(reader, field, keyType, given, MemorySegment.ofArray(ends), into);
    }

    @Override
    public long getMany(long reader, long field, byte[] keys, ManyValues into) {
        return byNumbers(reader, field, MemorySegment.ofArray(keys), into);
    }

    @Override
    public long getMany(long reader, long field, long[] keys, ManyValues into) {
        return byNumbers(reader, field, MemorySegment.ofArray(keys), into);
    }

    private static long byNumbers(
            long reader, long field, MemorySegment keys, ManyValues into) {
        return getMany(reader, field, KeyType.INT64.code(), keys, MemorySegment.NULL, into);
    }

    private static long getMany(
            long reader,
            long field,
            int keyType,
            MemorySegment keys,
            MemorySegment ends,
            ManyValues into) {
        try {
            return (long) GET_MANY.invokeExact(
                    reader,
                    field,
                    keyType,
                    (long) into.statuses().length,
                    keys,
                    keys.byteSize(),
                    ends,
                    MemorySegment.ofArray(into.values()),
                    (long) into.values().length,
                    MemorySegment.ofArray(into.ends()),
                    MemorySegment.ofArray(into.statuses()),
                    MemorySegment.ofArray(into.presences()));
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }
}
