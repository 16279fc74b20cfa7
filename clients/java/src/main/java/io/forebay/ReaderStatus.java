/* Status of a reader and of each of its partitions. */
package io.forebay;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The status of a reader at one moment.
 *
 * @param store the store's name
 * @param isReady whether the process should get traffic
 * @param phase the phase of the partition that is furthest from serving
 * @param bootstrapPercent progress of all first copies, 0 to 100: of the snapshots that they
 *     start from while any is downloaded, then of the logs after the snapshots
 * @param bootstrapRemaining time until the first copies are complete; null before there is a rate
 * @param age the highest age of the partitions; null while one is unknown
 * @param schemaVersion the newest schema version that any partition has seen
 * @param partitions every followed partition, in order
 */
public record ReaderStatus(
        String store,
        boolean isReady,
        Phase phase,
        int bootstrapPercent,
        @Nullable Duration bootstrapRemaining,
        @Nullable Duration age,
        int schemaVersion,
        List<PartitionStatus> partitions) {
    /** The phase of a partition. */
    public enum Phase {
        /** The partition has not caught up once, and returns {@code Unavailable}. */
        BOOTSTRAPPING,
        /** The partition answers reads. */
        SERVING,
        /** An invariant of the partition broke; it returns {@code Internal} until it is rebuilt. */
        POISONED;

        static Phase of(int code) {
            return values()[code - 1];
        }
    }

    /**
     * The status of one partition.
     *
     * @param partition the partition's number
     * @param phase the phase
     * @param generation the number of the copy that is served, from 1
     * @param offsetApplied the first offset that is not applied yet
     * @param endOffset the log's end, as last reported
     * @param lagRecords records between the applied offset and the end
     * @param age the possible age of the served data; null while it is unknown
     * @param schemaVersion the newest schema version that the partition has seen
     * @param documents number of documents
     * @param documentBytes bytes of their keys and rows
     * @param snapshotDownload progress of the snapshot that the copy starts from; null unless the
     *     snapshot is downloaded or waits for its turn
     * @param lastError the reason why nothing is applied; null if entries are applied
     */
    public record PartitionStatus(
            int partition,
            Phase phase,
            int generation,
            long offsetApplied,
            long endOffset,
            long lagRecords,
            @Nullable Duration age,
            int schemaVersion,
            long documents,
            long documentBytes,
            @Nullable SnapshotDownload snapshotDownload,
            @Nullable String lastError) {}

    /**
     * The progress of a snapshot download.
     *
     * @param bytes bytes that are fetched
     * @param bytesInAll size of the image
     */
    public record SnapshotDownload(long bytes, long bytesInAll) {
        static @Nullable SnapshotDownload unpack(Unpacker packed) {
            long bytes = packed.i64();
            long bytesInAll = packed.i64();
            return bytesInAll == 0 ? null : new SnapshotDownload(bytes, bytesInAll);
        }
    }

    static ReaderStatus unpack(Unpacker packed) {
        String store = packed.text();
        boolean isReady = packed.flag();
        Phase phase = Phase.of(packed.u8());
        int percent = packed.u8();
        Duration remaining = packed.duration();
        Duration age = packed.duration();
        int schemaVersion = packed.i32();
        int count = packed.i32();
        List<PartitionStatus> partitions = new ArrayList<>(count);
        for (int place = 0; place < count; place++) {
            partitions.add(
                    new PartitionStatus(
                            packed.i32(),
                            Phase.of(packed.u8()),
                            packed.i32(),
                            packed.i64(),
                            packed.i64(),
                            packed.i64(),
                            packed.duration(),
                            packed.i32(),
                            packed.i64(),
                            packed.i64(),
                            SnapshotDownload.unpack(packed),
                            emptyToNull(packed.text())));
        }
        List<PartitionStatus> all = List.copyOf(partitions);
        return new ReaderStatus(
                store, isReady, phase, percent, remaining, age, schemaVersion, all);
    }

    private static @Nullable String emptyToNull(String text) {
        return text.isEmpty() ? null : text;
    }
}
