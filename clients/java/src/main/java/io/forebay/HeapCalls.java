/* Reads between arrays on the heap, without a copy in off-heap memory. */
package io.forebay;

/**
 * The functions of {@code clients/c/src/java_critical.rs}, which never wait. Each returns the
 * length of the read data, which is beyond the array's length if the data does not fit; or one of
 * the codes here.
 */
interface HeapCalls {
    /** There is no document, or the document does not have the field. */
    long ABSENT = -1;

    /** The field is null. */
    long NULL = -2;

    /**
     * The call failed; the same call through {@link NativeCalls} returns the result or the error.
     */
    long FAILED = -3;

    long get(long reader, long field, int keyType, byte[] key, byte[] out);

    long get(long reader, long field, long key, byte[] out);

    /** Reads by string or bytes keys. */
    long getMany(
            long reader, long field, int keyType, byte[] keys, long[] ends, ManyValues into);

    /** Reads by int64 keys, of 8 bytes each. */
    long getMany(long reader, long field, byte[] keys, ManyValues into);

    /** Reads by int64 keys. */
    long getMany(long reader, long field, long[] keys, ManyValues into);

    /** The output of a batch: an array for all values, and three arrays with one entry per key. */
    record ManyValues(byte[] values, long[] ends, byte[] statuses, byte[] presences) {}
}
