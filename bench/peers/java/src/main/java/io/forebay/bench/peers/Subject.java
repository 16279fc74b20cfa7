/* One side of a comparison. */
package io.forebay.bench.peers;

/**
 * A map from keys to values. The loops are its own, so that the compiler sees one map in each: a
 * loop that all shared would cost each of them a call through an interface.
 */
interface Subject extends AutoCloseable {
    /**
     * Follows the chain of keys, one get each.
     *
     * @param key the first key; afterwards the last
     * @param steps how many
     */
    void chain(byte[] key, int steps) throws Exception;

    /**
     * Reads keys that are known, one get each.
     *
     * @param keys the keys
     * @param values where the values go
     */
    void loop(byte[][] keys, byte[][] values) throws Exception;

    @Override
    default void close() throws Exception {}

    /** One with a call for many keys; what has none is read by its loop alone. */
    interface Batched extends Subject {
        /**
         * Reads keys that are known in one call.
         *
         * @param keys the keys
         * @param values where the values go; the last one at least
         */
        void batch(byte[][] keys, byte[][] values) throws Exception;
    }
}
