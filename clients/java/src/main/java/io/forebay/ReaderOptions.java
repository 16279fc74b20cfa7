/* Options of a reader. */
package io.forebay;

import java.time.Duration;
import java.util.SortedSet;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * A reader's options.
 *
 * @param store the store's name
 * @param partitions the partitions to follow, or null for all
 * @param servePartial whether to answer from partitions that have not caught up, for which absent
 *     may mean not yet
 * @param readyAgeMax oldest age at which the reader becomes ready
 * @param openTimeout longest wait of the open
 * @param checkpoints the checkpoints, from which a restart continues; null for none
 * @param memoryBudget most bytes of the documents and their index; 0 for half of the control
 *     group's limit or of the host's memory, whichever is less, and for less if half would leave
 *     less than 56 MiB and 8 MiB for each partition
 * @param spillBytesMax most bytes of disk, in the directory of the checkpoints, for documents that
 *     exceed the memory budget; 0 spills nothing
 * @param snapshots URL of the folder of snapshots from which a reader without a checkpoint starts;
 *     null to start from the log
 */
public record ReaderOptions(
        String store,
        @Nullable SortedSet<Integer> partitions,
        boolean servePartial,
        Duration readyAgeMax,
        Duration openTimeout,
        @Nullable Checkpoints checkpoints,
        long memoryBudget,
        long spillBytesMax,
        @Nullable String snapshots) {
    private static final int BYTES = HeaderConstants.READER_OPTIONS_STRUCT_BYTES;
    private static final Duration TEN_SECONDS = Duration.ofSeconds(10);

    /**
     * Returns the options of a reader of all partitions of a store.
     *
     * @param store the store's name
     * @return the options
     */
    public static ReaderOptions of(String store) {
        return new ReaderOptions(store, null, false, TEN_SECONDS, TEN_SECONDS, null, 0, 0, null);
    }

    /**
     * Returns the same options, following only these partitions; reads of others are refused.
     *
     * @param only their numbers
     * @return the options
     */
    public ReaderOptions following(SortedSet<Integer> only) {
        return new ReaderOptions(
                store,
                new TreeSet<>(only),
                servePartial,
                readyAgeMax,
                openTimeout,
                checkpoints,
                memoryBudget,
                spillBytesMax,
                snapshots);
    }

    /**
     * Returns the same options, also answering from partitions that have not caught up once.
     *
     * @return the options
     */
    public ReaderOptions servingPartial() {
        return new ReaderOptions(
                store,
                partitions,
                true,
                readyAgeMax,
                openTimeout,
                checkpoints,
                memoryBudget,
                spillBytesMax,
                snapshots);
    }

    /**
     * Returns the same options with checkpoints.
     *
     * @param kept the checkpoints
     * @return the options
     */
    public ReaderOptions keeping(Checkpoints kept) {
        return new ReaderOptions(
                store,
                partitions,
                servePartial,
                readyAgeMax,
                openTimeout,
                kept,
                memoryBudget,
                spillBytesMax,
                snapshots);
    }

    /**
     * Returns the same options with a memory budget. If an entry needs more memory, the reader
     * spills documents, if it may. Otherwise the reader stops applying entries, and its status says
     * so; it still answers reads, which turn stale by their bounds. Readers that share a copy count
     * it once, in the budget of the reader that maintains it.
     *
     * @param bytes most bytes of the documents and their index, not below 0; 0 for the default
     * @return the options
     */
    public ReaderOptions takingAtMost(long bytes) {
        return new ReaderOptions(
                store,
                partitions,
                servePartial,
                readyAgeMax,
                openTimeout,
                checkpoints,
                bytes,
                spillBytesMax,
                snapshots);
    }

    /**
     * Returns the same options with disk space, in the directory of the checkpoints ({@link
     * #keeping}), for documents that exceed the memory budget; without such a directory the reader
     * is refused. The reader spills the least recently written documents, and a read of a spilled
     * document waits for the disk; the index stays in memory.
     *
     * @param bytes most bytes of spilled documents, not below 0; 0 to spill nothing
     * @return the options
     */
    public ReaderOptions spillingAtMost(long bytes) {
        return new ReaderOptions(
                store,
                partitions,
                servePartial,
                readyAgeMax,
                openTimeout,
                checkpoints,
                memoryBudget,
                bytes,
                snapshots);
    }

    /**
     * Returns the same options, starting from a snapshot if there is no checkpoint, and following
     * the log from there. A snapshot avoids reading the whole log, and replaces the trimmed part of
     * the log. The snapshot's images are fetched into the directory of the checkpoints. Credentials
     * come from the environment, by the names that the object stores' own tools use.
     *
     * @param url the folder of the snapshots: {@code file:///folder}, {@code s3://bucket/folder},
     *     {@code az://container/folder} or {@code gs://bucket/folder}; opening a reader with a URL
     *     that names no such folder throws {@link InvalidArgumentException}
     * @return the options
     */
    public ReaderOptions beginningWith(String url) {
        return new ReaderOptions(
                store,
                partitions,
                servePartial,
                readyAgeMax,
                openTimeout,
                checkpoints,
                memoryBudget,
                spillBytesMax,
                url);
    }

    long encode(CallBuffer call) {
        if (memoryBudget < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the memory budget is below 0 bytes; give 0 or more");
        }
        if (spillBytesMax < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the room for spilled documents is below 0 bytes; give 0 or more");
        }
        if (snapshots != null && snapshots.isEmpty()) {
            // The native core treats an empty text as none.
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "an empty URL names no folder for snapshots; give file:///FOLDER, or null");
        }
        CallBuffer.Place place = call.allocate(BYTES);
        call.text(place.buffer(), place.at(), store);
        if (partitions != null) {
            CallBuffer.Place numbers = call.allocate(Math.max(8, 4L * partitions.size()));
            place.buffer().putLong(place.at() + 16, numbers.address());
            place.buffer().putLong(place.at() + 24, partitions.size());
            int at = numbers.at();
            for (int partition : partitions) {
                numbers.buffer().putInt(at, partition);
                at += 4;
            }
        }
        place.buffer().putLong(place.at() + 32, Read.millis(readyAgeMax));
        place.buffer().putLong(place.at() + 40, Read.millis(openTimeout));
        place.buffer().putInt(place.at() + 48, servePartial ? 1 : 0);
        if (checkpoints != null) {
            String directory = checkpoints.directory().toAbsolutePath().toString();
            call.text(place.buffer(), place.at() + 56, directory);
            place.buffer().putLong(place.at() + 72, Read.millis(checkpoints.every()));
            place.buffer().putLong(place.at() + 80, checkpoints.bytesMax());
        }
        place.buffer().putLong(place.at() + 88, memoryBudget);
        place.buffer().putLong(place.at() + 96, spillBytesMax);
        if (snapshots != null) {
            call.text(place.buffer(), place.at() + 104, snapshots);
        }
        return place.address();
    }
}
