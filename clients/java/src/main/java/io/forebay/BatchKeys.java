/* The keys of a batch: packed once, or encoded for one call. */
package io.forebay;

/** The keys of one call. */
abstract class BatchKeys {
    /** The bytes of an fb_keys. */
    static final int BYTES = HeaderConstants.KEYS_STRUCT_BYTES;

    /** Returns the number of keys. */
    abstract int size();

    /** Writes an fb_keys; returns its address. */
    abstract long encode(CallBuffer call);

    /** Reads the keys' values as {@link HeapCalls} does. */
    abstract long read(HeapCalls heap, long reader, long field, HeapCalls.ManyValues into);

    /** Wraps an array of int64 keys without a copy, for one call. */
    static BatchKeys of(long[] keys) {
        return new Numbers(keys);
    }

    private static final class Numbers extends BatchKeys {
        private final long[] keys;

        Numbers(long[] keys) {
            this.keys = keys;
        }

        @Override
        int size() {
            return keys.length;
        }

        @Override
        long read(HeapCalls heap, long reader, long field, HeapCalls.ManyValues into) {
            return heap.getMany(reader, field, keys, into);
        }

        @Override
        long encode(CallBuffer call) {
            CallBuffer.Place numbers = call.allocateDirty((long) Long.BYTES * keys.length);
            int at = numbers.at();
            for (long key : keys) {
                numbers.buffer().putLong(at, key);
                at += Long.BYTES;
            }
            long length = (long) Long.BYTES * keys.length;
            return call.keys(KeyType.INT64, keys.length, numbers.address(), length, 0);
        }
    }
}
