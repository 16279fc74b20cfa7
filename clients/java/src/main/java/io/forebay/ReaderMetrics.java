/* Counts and sizes of a reader since it was opened. */
package io.forebay;

import java.util.OptionalLong;

/**
 * A snapshot of a reader's counts, for metrics exporters.
 *
 * @param reads reads of documents, by their result
 * @param memoryBytes estimated bytes of memory of all documents
 * @param memory memory of the partitions that this reader maintains, and its bounds
 * @param counts counts of all partitions together
 * @param status the reader and each of its partitions
 */
public record ReaderMetrics(
        ReadCounts reads, long memoryBytes, MemoryUse memory, Counts counts, ReaderStatus status) {
    /**
     * Counts of reads.
     *
     * @param hits reads that found a document
     * @param misses reads that found no document, or an expired one
     */
    public record ReadCounts(long hits, long misses) {
        static ReadCounts unpack(Unpacker packed) {
            return new ReadCounts(packed.i64(), packed.i64());
        }
    }

    /**
     * The memory of the partitions that a reader maintains.
     *
     * @param used bytes of documents, their index and free space
     * @param limit the bound of these bytes: the memory limit; empty without a bound
     * @param spilled bytes on disk of the documents that exceed the memory limit
     * @param spillLimit the bound of these bytes; 0 if nothing is spilled
     */
    public record MemoryUse(long used, OptionalLong limit, long spilled, long spillLimit) {
        static MemoryUse unpack(Unpacker packed) {
            return new MemoryUse(packed.i64(), limitOf(packed.i64()), packed.i64(), packed.i64());
        }

        private static OptionalLong limitOf(long bytes) {
            return bytes == -1 ? OptionalLong.empty() : OptionalLong.of(bytes);
        }
    }

    /**
     * Counts of records and copies.
     *
     * @param recordsApplied records applied
     * @param logBytesRead bytes of the records read
     * @param recordsSkipped records skipped, as all replicas skip them
     * @param duplicatesSkipped changes skipped because their client had sent them before
     * @param oversizedSkipped changes skipped because their document would have exceeded the limit
     * @param logErrors failed calls of the log
     * @param rebuilds copies that were started after the first
     * @param bootstraps copies that were started from a snapshot
     * @param bootstrapsFailed snapshots that were unavailable or unusable
     * @param checkpoints counts of checkpoints
     */
    public record Counts(
            long recordsApplied,
            long logBytesRead,
            long recordsSkipped,
            long duplicatesSkipped,
            long oversizedSkipped,
            long logErrors,
            long rebuilds,
            long bootstraps,
            long bootstrapsFailed,
            CheckpointCounts checkpoints) {
        static Counts unpack(Unpacker packed) {
            return new Counts(
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    CheckpointCounts.unpack(packed));
        }
    }

    /**
     * Counts of checkpoints.
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
            long blocksRepaired) {
        static CheckpointCounts unpack(Unpacker packed) {
            return new CheckpointCounts(
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64(),
                    packed.i64());
        }
    }

    static ReaderMetrics unpack(Unpacker packed) {
        return new ReaderMetrics(
                ReadCounts.unpack(packed),
                packed.i64(),
                MemoryUse.unpack(packed),
                Counts.unpack(packed),
                ReaderStatus.unpack(packed));
    }
}
