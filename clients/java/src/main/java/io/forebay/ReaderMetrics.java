/* Counts and sizes of a reader since it was opened. */
package io.forebay;

/**
 * A pull snapshot of a reader's counts, for whoever exports metrics.
 *
 * @param hits reads that found a document
 * @param misses reads that found none, or an expired one
 * @param memoryBytes estimated bytes of memory of all documents
 * @param recordsApplied records applied
 * @param readBytes bytes of the records read
 * @param recordsSkipped records skipped, as all replicas skip them
 * @param repeats changes skipped because their client sent them before
 * @param tooLarge changes skipped because their document would have grown over the limit
 * @param logErrors failed calls of the log
 * @param rebuilds copies that were begun after the first
 * @param status the reader and each of its partitions
 */
public record ReaderMetrics(
        long hits,
        long misses,
        long memoryBytes,
        long recordsApplied,
        long readBytes,
        long recordsSkipped,
        long repeats,
        long tooLarge,
        long logErrors,
        long rebuilds,
        ReaderStatus status) {
    static ReaderMetrics unpack(Unpacker packed) {
        return new ReaderMetrics(
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                ReaderStatus.unpack(packed));
    }
}
