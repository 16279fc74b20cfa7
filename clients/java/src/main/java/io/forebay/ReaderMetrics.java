/* Counts and sizes of a reader since it was opened. */
package io.forebay;

import java.util.OptionalLong;

/**
 * A pull snapshot of a reader's counts, for whoever exports metrics.
 *
 * @param hits reads that found a document
 * @param misses reads that found none, or an expired one
 * @param memoryBytes estimated bytes of memory of all documents
 * @param memoryUsed bytes that the partitions which this reader keeps take: documents, their index
 *     and free space
 * @param memoryBudget bytes that they may take; empty without a bound
 * @param spilledBytes bytes on disk that documents take which have no room in memory
 * @param spillLimit bytes on disk that they may take; 0 where nothing is spilled
 * @param recordsApplied records applied
 * @param readBytes bytes of the records read
 * @param recordsSkipped records skipped, as all replicas skip them
 * @param repeats changes skipped because their client sent them before
 * @param tooLarge changes skipped because their document would have grown over the limit
 * @param logErrors failed calls of the log
 * @param rebuilds copies that were begun after the first
 * @param bootstraps copies that were begun with a snapshot
 * @param bootstrapsFailed snapshots that could not be had, or not be used
 * @param checkpoints what happened to its checkpoints
 * @param status the reader and each of its partitions
 */
public record ReaderMetrics(
        long hits,
        long misses,
        long memoryBytes,
        long memoryUsed,
        OptionalLong memoryBudget,
        long spilledBytes,
        long spillLimit,
        long recordsApplied,
        long readBytes,
        long recordsSkipped,
        long repeats,
        long tooLarge,
        long logErrors,
        long rebuilds,
        long bootstraps,
        long bootstrapsFailed,
        CheckpointCounts checkpoints,
        ReaderStatus status) {
    /**
     * What happened to the checkpoints of all partitions together.
     *
     * @param written written, durably
     * @param failed not written: the disk refused, or the partition is too large
     * @param restored gone on from, at most one per partition
     * @param damaged ignored at open because they are damaged, or given up because they were found
     *     so later
     * @param ignored ignored at open for another reason
     * @param blocksMended blocks of those gone on from that were damaged and mended: what is read
     *     is right, and the disk is worth a look
     */
    public record CheckpointCounts(
            long written,
            long failed,
            long restored,
            long damaged,
            long ignored,
            long blocksMended) {}

    static ReaderMetrics unpack(Unpacker packed) {
        return new ReaderMetrics(
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                budget(packed.i64()),
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
                packed.i64(),
                new CheckpointCounts(
                        packed.i64(),
                        packed.i64(),
                        packed.i64(),
                        packed.i64(),
                        packed.i64(),
                        packed.i64()),
                ReaderStatus.unpack(packed));
    }

    private static OptionalLong budget(long bytes) {
        return bytes == -1 ? OptionalLong.empty() : OptionalLong.of(bytes);
    }
}
