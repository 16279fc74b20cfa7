/* What a batch asks for: packed once, or laid out for one call. */
package io.forebay;

/** The keys of one call. */
abstract class BatchKeys {
    /** The bytes of an fb_keys. */
    static final int BYTES = 64;

    /** How many there are. */
    abstract int size();

    /** Writes an fb_keys; answers its address. */
    abstract long encode(CallBuffer call);

    /** Reads their values as {@link HeapCalls} does. */
    abstract long read(HeapCalls heap, long reader, long field, HeapCalls.ManyValues into);

    /** An array of int64 keys as it is, for one call. */
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
