/* What is read between arrays on the heap, without a copy in off-heap memory. */
package io.forebay;

/**
 * The functions of {@code clients/c/src/heap.rs}, which wait for nothing. Each answers the length
 * of what is read, which is beyond the array where it has no room; or one of the numbers here.
 */
interface HeapCalls {
    /** There is no document, or it has no such field. */
    long ABSENT = -1;

    /** The field is null. */
    long NULL = -2;

    /** It was not answered; whoever asks by {@link NativeCalls} gets the answer, or hears why. */
    long FAILED = -3;

    long get(long reader, long field, int keyType, byte[] key, byte[] out);

    long get(long reader, long field, long key, byte[] out);

    /** By string or bytes keys. */
    long getMany(
            long reader, long field, int keyType, byte[] keys, long[] ends, ManyValues into);

    /** By int64 keys, of 8 bytes each. */
    long getMany(long reader, long field, byte[] keys, ManyValues into);

    /** By int64 keys. */
    long getMany(long reader, long field, long[] keys, ManyValues into);

    /** Where the values of many keys go: an array for all of them, and three with one per key. */
    record ManyValues(byte[] values, long[] ends, byte[] statuses, byte[] presences) {}
}
