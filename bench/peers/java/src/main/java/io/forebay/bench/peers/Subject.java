/* Contenders of the comparison. */
package io.forebay.bench.peers;

/**
 * A map from keys to values. Each contender has its own loops, so that the compiler sees one map in
 * each: a shared loop would cost each contender a call through an interface.
 */
interface Subject extends AutoCloseable {
    /**
     * Follows the chain of keys, one get each.
     *
     * @param key the first key; afterwards the last
     * @param steps the number of steps
     */
    void chain(byte[] key, int steps) throws Exception;

    /**
     * Reads keys that are known, one get each.
     *
     * @param keys the keys
     * @param values the output
     */
    void loop(byte[][] keys, byte[][] values) throws Exception;

    @Override
    default void close() throws Exception {}

    /** A contender with a call for many keys; other contenders are read by their loops alone. */
    interface BatchSubject extends Subject {
        /**
         * Reads keys that are known in one call.
         *
         * @param keys the keys
         * @param values the output; at least the last value
         */
        void batch(byte[][] keys, byte[][] values) throws Exception;
    }
}
