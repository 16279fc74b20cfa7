/* Counts and sizes of a reader since it was opened. */
package io.forebay;

import java.util.OptionalLong;

/**
 * A snapshot of a reader's counts, for metrics exporters.
 *
 * @param hits reads that found a document
 * @param misses reads that found no document, or an expired one
 * @param memoryBytes estimated bytes of memory of all documents
 * @param memoryUsed bytes of the partitions that this reader maintains: documents, their index and
 *     free space
 * @param memoryLimit the bound of these bytes; empty without a bound
 * @param spilledBytes bytes on disk of the documents that exceed the memory limit
 * @param spillLimit the bound of these bytes; 0 if nothing is spilled
 * @param recordsApplied records applied
 * @param logBytesRead bytes of the records read
 * @param recordsSkipped records skipped, as all replicas skip them
 * @param duplicatesSkipped changes skipped because their client had sent them before
 * @param oversizedSkipped changes skipped because their document would have exceeded the limit
 * @param logErrors failed calls of the log
 * @param rebuilds copies that were started after the first
 * @param bootstraps copies that were started from a snapshot
 * @param bootstrapsFailed snapshots that were unavailable or unusable
 * @param checkpoints counts of the reader's checkpoints
 * @param status the reader and each of its partitions
 */
public record ReaderMetrics(
        long hits,
        long misses,
        long memoryBytes,
        long memoryUsed,
        OptionalLong memoryLimit,
        long spilledBytes,
        long spillLimit,
        long recordsApplied,
        long logBytesRead,
        long recordsSkipped,
        long duplicatesSkipped,
        long oversizedSkipped,
        long logErrors,
        long rebuilds,
        long bootstraps,
        long bootstrapsFailed,
        CheckpointCounts checkpoints,
        ReaderStatus status) {
    /**
     * Counts of the checkpoints of all partitions together.
     *
     * @param written written, durably
     * @param failed not written: the disk refused, or the partition is too large
     * @param restored used to continue after a restart, at most one per partition
     * @param damaged ignored at open because they are damaged, or given up later because damage was
     *     found
     * @param ignored ignored at open for another reason
     * @param blocksRepaired damaged blocks of restored checkpoints that were repaired: reads are
     *     right, and the disk deserves a check
     */
    public record CheckpointCounts(
            long written,
            long failed,
            long restored,
            long damaged,
            long ignored,
            long blocksRepaired) {}

    static ReaderMetrics unpack(Unpacker packed) {
        return new ReaderMetrics(
                packed.i64(),
                packed.i64(),
                packed.i64(),
                packed.i64(),
                limit(packed.i64()),
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

    private static OptionalLong limit(long bytes) {
        return bytes == -1 ? OptionalLong.empty() : OptionalLong.of(bytes);
    }
}
